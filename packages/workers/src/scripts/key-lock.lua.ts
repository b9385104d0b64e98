/**
 * This Lua takes and releases the lock of a job's key in the step that takes and ends the job. A lane without it leaves
 * the locks to the worker.
 */
import { luaString } from "./rules/lua.ts";

/** What the scripts need to take and release a key's lock by themselves, when it is on the queue's own Redis. */
export interface LockRules {
  /** The library of `@x/redlock-core`. */
  readonly lua: string;
  /** The text before the key in the name of its lock. */
  readonly prefix: string;
  /** No lock has a name that begins with this text. */
  readonly reserved: string;
  readonly ttlMs: number;
}

export const noKeyLock: string = /* lua */ `
local function lockOf() return false end
local function passOn() return false end
local function unlock() return false end
`;

export const keyLock = ({ lua, prefix, reserved, ttlMs }: LockRules): string => /* lua */ `
${lua}
-- That of a further slot has the separator in it, which no key has.
local function lockName(pin, slot) return ${luaString(prefix)} .. pin .. (slot and '\\31' .. slot or '') end

-- Takes the lock of a job's one key, if it is free: its fencing token, or false. The others are asked for by the
-- worker. The job is taken already: whatever is wrong with the lock's keys must not end the script. \`slot\`: the number
-- of its slot, if that is not the first.
local function lockOf(pin, token, slot)
  if token == '' or not hasKeys(pin) or not isSingle(pin) then return false end
  local name = lockName(pin, slot)
  if string.sub(name, 1, ${Buffer.byteLength(reserved)}) == ${luaString(reserved)} then return false end
  local ok, fencingToken = pcall(lockIfFree, name, token, '${ttlMs}')
  return ok and fencingToken or false
end

-- From one job of a key to the next, which has the lock without a gap: its fencing token, or false.
local function passOn(pin, token, next)
  if token == '' or next == '' then return false end
  local ok, fencingToken = pcall(passOnIfUnwanted, ${luaString(prefix)} .. pin, token, next, '${ttlMs}')
  return ok and fencingToken or false
end

local function unlock(pin, token, slot)
  local ok, isOurs = pcall(unlockIfUnwanted, lockName(pin, slot), token)
  return ok and isOurs
end
`;
