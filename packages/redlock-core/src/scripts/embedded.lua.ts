/**
 * Defines three functions for a script of another package. It runs on the one node of a `Redlock`, in the same atomic
 * step as what the lock protects. `key` is the lock's own key, and `ttl` is in ms.
 *
 * - `lockIfFree(key, token, ttl)` takes a lock that nobody has or waits for. It returns the fencing token as text, or
 *   nil. It never takes a lock that a `Redlock` refuses to lock.
 * - `passOnIfUnwanted(key, token, next, ttl)` gives a lock that nobody waits for from this token to the next one, and
 *   returns as lockIfFree does.
 * - `unlockIfUnwanted(key, token)` releases a lock that nobody waits for. It returns true if the lock was the token's
 *   until now.
 *
 * What they do not do they leave as it was, for acquire.lua.ts and release.lua.ts. They raise what Redis raises, and
 * where there is no further fencing token: call them with pcall. A lock is written last, so that what raises has taken
 * none.
 *
 * The fencing token is the node's next number, as in batch.lua.ts. A script that needs several writes the last number
 * that it may need ahead of them, so a few are lost where it does not. Side keys are named as in keys.ts. The script
 * defines `call` before. Every name, string and call here is paid for by every job of somebody's queue.
 */
import { CLIENT_KEYS, NODE_KEYS, RESERVED_ENDINGS } from "../rules/keys.ts";
import { isTokenText, noToken } from "./number.lua.ts";
import { besideLock } from "./side-keys.lua.ts";

const { waiting, lastNumber } = NODE_KEYS;
/** A script that needs a second number writes so many at once. */
const AT_ONCE = 16;

export const embedded: string = /* lua */ `
local besideLock = ${besideLock}

-- What is read once, with the first lock: while the script runs, nobody else changes it.
local somebodyWaits, last
local function holderOfLock(key)
  if last ~= nil then return call('GET', key) end
  local seen = call('MGET', key, '${waiting}', '${lastNumber}')
  somebodyWaits, last = seen[2], seen[3]
  return seen[1]
end

local function isWaitedFor(key)
  return somebodyWaits and call('EXISTS', besideLock(key) .. ':waiters') == 1
end

local function writeNumber(number)
  if not ${isTokenText("number")} then error(${noToken("number")}, 0) end
  call('SET', '${lastNumber}', number)
end

-- The last number that was given, and the last one that is written: what is between is the script's.
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
  -- What keys.ts refuses: the key of something beside another lock, or one that has the same keys beside it.
  if string.find(key, '}', 1, true) then
    if besideLock(string.sub(key, 2, -2)) == besideLock(key) then return end
    for _, ending in ipairs({${RESERVED_ENDINGS.map((ending) => `'${ending}'`).join(", ")}}) do
      if string.sub(key, -#ending) == ending then return end
    end
    if string.sub(key, 1, ${CLIENT_KEYS.length}) == '${CLIENT_KEYS}' then return end
  end
  -- Whether somebody has it, SET finds out.
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
