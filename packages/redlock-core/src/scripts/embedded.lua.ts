/**
 * Defines three Lua functions for a script of another package. The script runs on the only node of a `Redlock`, so a
 * lock is acquired in the same atomic step as the work it protects. `key` is the lock's own key, and `ttl` is in ms.
 *
 * - `lockIfFree(key, token, ttl)` acquires a lock that is free and has no waiters. Returns the fencing token as text,
 *   or nil. Never acquires a lock that a `Redlock` refuses to lock.
 * - `passOnIfUnwanted(key, token, next, ttl)` passes a lock without waiters from one token to the next. Returns the
 *   same as lockIfFree.
 * - `unlockIfUnwanted(key, token)` releases a lock without waiters. Returns true if the token held the lock until now.
 *
 * In all other cases the functions leave the lock unchanged, for acquire.lua.ts and release.lua.ts. A function raises
 * errors of Redis, and an error if there is no further fencing token: call it with pcall. The lock is written last, so
 * a function that raises an error has not acquired a lock.
 *
 * The fencing token is the node's next number, as in batch.lua.ts. A script that needs a second number reserves several
 * numbers at once, and loses the numbers that it does not use. The script must define `call` before. Each name, string
 * and call here adds to the cost of every job of a queue.
 */
import { CLIENT_KEYS, NODE_KEYS, RESERVED_ENDINGS } from "../rules/keys.ts";
import { lengthOfLine } from "./hand-over.lua.ts";
import { isTokenText, noToken } from "./number.lua.ts";
import { besideLock } from "./side-keys.lua.ts";

const { lines, lastNumber } = NODE_KEYS;
/** Number of numbers that a script reserves when it needs a second one. */
const AT_ONCE = 16;

export const embedded: string = /* lua */ `
local besideLock = ${besideLock}

-- Read once, together with the first lock: while the script runs, no other client can change these values.
local somebodyWaits, last
local function holderOfLock(key)
  if last ~= nil then return call('GET', key) end
  local seen = call('MGET', key, '${lastNumber}')
  somebodyWaits, last = call('EXISTS', '${lines}') == 1, seen[2]
  return seen[1]
end

local function isWaitedFor(key)
  local lines = '${lines}'
  return somebodyWaits and ${lengthOfLine("key")} > 0
end

local function writeNumber(number)
  if not ${isTokenText("number")} then error(${noToken("number")}, 0) end
  call('SET', '${lastNumber}', number)
end

-- The last number given, and the last number written. The numbers in between are reserved for this script.
local given, written
local function nextNumber()
  if not given then
    local time = call('TIME')
    local number = time[1] .. string.sub('00000' .. time[2], -6)
    if last and last >= number then number = string.format('%.0f', last + 1) end
    writeNumber(number)
    given = tonumber(number)
    written = given
    return number
  end
  if given == written then
    writeNumber(string.format('%.0f', written + ${AT_ONCE}))
    written = written + ${AT_ONCE}
  end
  given = given + 1
  return string.format('%.0f', given)
end

local function lockIfFree(key, token, ttl)
  -- Keys that keys.ts refuses: the side key of another lock, or a key with the same side keys as another lock.
  if string.find(key, '}', 1, true) then
    if besideLock(string.sub(key, 2, -2)) == besideLock(key) then return end
    for _, ending in ipairs({${RESERVED_ENDINGS.map((ending) => `'${ending}'`).join(", ")}}) do
      if string.sub(key, -#ending) == ending then return end
    end
    if string.sub(key, 1, ${CLIENT_KEYS.length}) == '${CLIENT_KEYS}' then return end
  end
  -- SET finds out whether the lock is held.
  if last == nil then holderOfLock(key) end
  if isWaitedFor(key) then return end
  local number = nextNumber()
  return call('SET', key, token, 'PX', ttl, 'NX') and number or nil
end

local function passOnIfUnwanted(key, token, next, ttl)
  if holderOfLock(key) ~= token or isWaitedFor(key) then return end
  local number = nextNumber()
  call('SET', key, next, 'PX', ttl)
  return number
end

local function unlockIfUnwanted(key, token)
  return holderOfLock(key) == token and not isWaitedFor(key) and call('DEL', key) == 1
end
`;
