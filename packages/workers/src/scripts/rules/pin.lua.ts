/**
 * Pure: Lua that computes the *pin* of a job, a single text of sorted, unique keys, as described in entity-key.ts. The
 * pin is '' if the job has no key, and BAD followed by the reason if its keys cannot be used. Nil if JavaScript must
 * compute the keys.
 */
import { indexOf, KEY_FAULTS, MAX_KEY_BYTES, MAX_KEYS } from "../../rules/entity-key.ts";
import { luaString } from "./lua.ts";

/**
 * Returns the library. `path` contains the fields that lead to the key in the job's data. Undefined if a function
 * computes the key.
 */
export function pinLibrary(path: readonly string[] | undefined): string {
  return `
local BAD = '\\30'

local function hasKeys(pin)
  return pin and pin ~= '' and string.byte(pin, 1) ~= 30
end

local function isSingle(pin)
  return not string.find(pin, '\\31', 1, true)
end
${path === undefined ? noPath : fromPath(path)}`;
}

const noData = /* lua */ `if not data then return BAD .. 'cannot be found: the job has no data' end`;

const noPath = /* lua */ `
local function pinOfData(data)
  ${noData}
end
`;

const fromPath = (path: readonly string[]): string => /* lua */ `
-- Returns a value as the text of a key. Returns nil and the reason if the value cannot be a key.
local function textOf(value)
  if type(value) == 'string' then
    if #value == 0 then return nil, '${KEY_FAULTS.empty}' end
    if #value > ${MAX_KEY_BYTES} then return nil, '${KEY_FAULTS.tooLong}' end
    if string.find(value, '%c') then return nil, '${KEY_FAULTS.control}' end
    return value
  end
  if type(value) ~= 'number' then return nil, '${KEY_FAULTS.notText}' end
  if value ~= math.floor(value) or value > 9007199254740991 or value < -9007199254740991 then
    return nil, '${KEY_FAULTS.notSafe}'
  end
  return value == 0 and '0' or string.format('%.0f', value)
end

local function pinOfData(data)
  ${noData}
  local ok, value = pcall(cjson.decode, data)
  -- Lua can read less than JavaScript: no half of a surrogate pair, and no deep nesting.
  if not ok then return end
${path.map(step).join("")}
  if value == nil or value == cjson.null then return '' end
  if type(value) ~= 'table' then
    local text, fault = textOf(value)
    return text or BAD .. fault
  end
  if #value == 0 then return BAD .. '${KEY_FAULTS.noList}' end
  if #value > ${MAX_KEYS} then return BAD .. '${KEY_FAULTS.tooMany}' end
  local keys, seen = {}, {}
  for i = 1, #value do
    local text, fault = textOf(value[i])
    if fault then return BAD .. fault end
    if not seen[text] then keys[#keys + 1] = text seen[text] = true end
  end
  table.sort(keys)
  return table.concat(keys, '\\31')
end
`;

/** Returns the Lua of one more field of the path, like a step of `valueAt`. Lua counts from 1. */
function step(field: string): string {
  const index = indexOf(field);
  const named = `value = value[${luaString(field)}]`;
  const next =
    index === undefined ? named : `if value[${index + 1}] ~= nil then value = value[${index + 1}] else ${named} end`;
  return `  if type(value) ~= 'table' then return '' end\n  ${next}\n`;
}
