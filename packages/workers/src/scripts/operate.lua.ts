/**
 * The one script of the functions in operators.lua.ts. The lane library comes before it. The parameters are:
 *
 * - KEYS[1]: P lane:holders, for the slot.
 * - KEYS[2]: P lane:none, which never exists. A Cluster that moves the slot key by key then refuses the whole script,
 *   which would otherwise find only some of its keys.
 * - ARGV[1]: P.
 * - ARGV[2]: the time in ms.
 * - ARGV[3]: the name of the function, followed by its arguments.
 *
 * Redis compiles one text and keeps one copy of the library. With a script for each function, Redis compiled twenty.
 */
import { at } from "./lane.lua.ts";
import { KEY_FACTS } from "./operator-replies.ts";
import * as operators from "./operators.lua.ts";

export type OperatorCommand = keyof typeof operators;

/** No function has more parameters than this. */
const PARAMETERS = ["ARGV[4]", "ARGV[5]", "ARGV[6]", "ARGV[7]"];

const functions = Object.entries(operators).map(([name, text]) => `${name} = ${text}`);

export const operate: string = /* lua */ `
${at("ARGV[1]", "ARGV[2]")}

-- Returns the arguments after the first \`count\` arguments of the function.
local function argumentsAfter(count)
  local list = {}
  for i = 4 + count, #ARGV do list[#list + 1] = ARGV[i] end
  return list
end

-- Returns the rate of a key with the counted starts as "<starts>,<max>,<ms>"; '' if the key has no rate.
local function rateOf(key)
  local lane = contended()
  local max, ms = lane.rateOf(key)
  if not max then return '' end
  -- The newest starts come first, so all counted starts come before all others.
  local counted, beyond, now = 0, call('LLEN', lane.startsOf(key)), lane.redisMs()
  while counted < beyond do
    local middle = math.floor((counted + beyond) / 2)
    local start = string.match(call('LINDEX', lane.startsOf(key), middle), '^%d+')
    if tonumber(start) + ms > now then counted = middle + 1 else beyond = middle end
  end
  return string.format('%.0f,%.0f,%.0f', counted, max, ms)
end

-- Reports whether the worker of a job is gone: the job is active, and BullMQ's lock of the job has expired.
local function isStalled(id)
  return call('EXISTS', P .. id .. ':lock') == 0 and call('LPOS', P .. 'active', id) and true or false
end

-- Returns the seconds since a worker with keys last registered; '' if none is registered. Returns 0 if BullMQ's lock of
-- an active job exists.
local function heardAgo()
  for _, id in ipairs(call('LRANGE', P .. 'active', 0, 99)) do
    if call('EXISTS', P .. id .. ':lock') == 1 then return 0 end
  end
  local newest
  for _, entry in ipairs(call('HVALS', P .. 'lane:workers')) do
    local seen = tonumber(string.match(entry, '^%d+'))
    if seen and (not newest or seen > newest) then newest = seen end
  end
  return newest and math.max(0, tonumber(call('TIME')[1]) - newest) or ''
end

-- Returns the facts of a key that operators see. A fact that does not apply is ''.
local function keyFacts(key)
  local lane = contended()
  local isPaused = lane.pausedFor(key)
  local holders = lane.holdersOf(key)
  local heads = call('ZRANGE', line(key), 0, 1)
  local head = heads[1] == PAUSED and heads[2] or heads[1]
  local _, limitedUntil = lane.limitedFor(key)
  return {
    key = key,
    holders = table.concat(holders, '\\31'),
    startedOn = holders[1] ~= '' and call('HGET', P .. holders[1], 'processedOn') or '',
    parked = call('ZCARD', line(key)) - (isPaused and 1 or 0),
    pause = call('HGET', P .. 'lane:paused', key) or '',
    limitedUntil = limitedUntil and string.format('%.0f', limitedUntil) or '',
    slots = lane.slotCount(key),
    rate = rateOf(key),
    policy = POLICIES[key] and call('HGET', HOLDERS, key .. '\\31') or '',
    waitingSince = head and call('HGET', P .. head, 'timestamp') or '',
    keysAhead = ROTATE and call('ZRANK', P .. 'lane:ring', key) or '',
    isStalled = holders[1] ~= '' and isStalled(holders[1]) and 1 or 0
  }
end

local function keyReply(facts) return ${KEY_FACTS.arrayOf("facts")} end

local functions = {
${functions.join(",\n")}
}
return functions[ARGV[3]](${PARAMETERS.join(", ")})
`;
