/**
 * Acquires and releases the lock of a job's key in the step that takes or ends the job. A lane without this part leaves
 * the locks to the worker.
 */
import { luaString } from "./rules/lua.ts";

/** Facts with which the scripts acquire and release a key's lock, if the locks are on the queue's own Redis. */
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
-- The name of the lock of a further slot contains the separator, which no key contains.
local function lockName(pin, slot) return ${luaString(prefix)} .. pin .. (slot and '\\31' .. slot or '') end

-- Acquires the lock of a job's one key, if it is free. Returns the fencing token, or false. The worker requests the
-- locks of several keys. The job is taken already, so an error of the lock's keys must not end the script. \`slot\`:
-- the number of the job's slot, unless it is the first.
local function lockOf(pin, token, slot)
  if token == '' or not hasKeys(pin) or not isSingle(pin) then return false end
  local name = lockName(pin, slot)
  if string.sub(name, 1, ${Buffer.byteLength(reserved)}) == ${luaString(reserved)} then return false end
  local ok, fencingToken = pcall(lockIfFree, name, token, '${ttlMs}')
  return ok and fencingToken or false
end

-- Passes the lock from one job of a key to the next without a gap. Returns the fencing token, or false.
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
