/**
 * Defines `acquire(first, count, token, ballot, place, ttl, member, note)`, which votes on one attempt, all resources
 * or none. No expiry is ever shortened: only a missing key or a reservation is replaced.
 *
 * - The locks are KEYS[first], KEYS[first + 1] and so on.
 * - `ttl` is in ms.
 * - `member` is '' if it does not wait here.
 * - `note` is '' or a text for whoever looks.
 *
 * The note of a grant is kept in `{k}:note` for `ttl` ms, as "<token> <fencing token> <node's time in µs> <note>". It
 * says something of the lock only while the lock has the same token. The attempt may get no quorum, and notes are
 * neither prolonged nor deleted.
 *
 * It replies:
 * - 1: granted. Every lock key holds the token, every register at least the ballot. A node alone replies the number
 *   that it gave the grant.
 * - {0, index, pttl, ms}: the index-th resource is held, or an earlier waiter is due, and the member is in line
 *   there. `pttl` is what is left in ms (-1: no expiry), and `ms` says when to ask again if no hint comes. If its key
 *   is of another type, Redis' error is the fifth value.
 * - {2, ballot}: stale. A register has this one, which is not below ours.
 * - {3}: ahead. The ballot is too far above both the node's time and the registers.
 */
import { CLAMP_US } from "../rules/ballot.ts";
import { isTokenText, noToken } from "./number.lua.ts";

export const acquire: string = /* lua */ `
local function mayTake(i, member, place)
  local key = KEYS[i]
  local waiters = waitersOf(key)
  if call('EXISTS', key, waiters) == 0 then return true, false end
  local value = valueOf(key)
  if not value then
    local head = call('ZRANGE', waiters, 0, 0, 'WITHSCORES')
    if head[1] == member or place <= tonumber(head[2]) then return true, true end
    if member ~= '' then enrol(waiters, place, member, tonumber(grantTtl)) end
    handOver(i, member)
    value = valueOf(key)
    if not value then return true, true end
  end
  local reservedMember, reservedPlace = reservedFor(value)
  return reservedMember and (reservedMember == member or place <= reservedPlace), true
end

local function deny(first, count, index, member, place)
  local pttl = call('PTTL', KEYS[first + index])
  if member ~= '' then
    for i = 0, count - 1 do
      if i == index then enrol(waitersOf(KEYS[first + i]), place, member, pttl) else withdraw(first + i, member) end
    end
  end
  local wrongType = string.match(valueOf(KEYS[first + index]) or '', '^WRONGTYPE.*')
  return {0, index, pttl, askAgainMs(first + index, pttl), wrongType}
end

local function refusedBallot(count, ballot)
  local largest = '0000000000000000'
  for at = register, register + count - 1 do
    local stored = raised[ARGV[at]] or seen[at]
    if stored and stored > largest then largest = stored end
  end
  if ballot > limit and tonumber(ballot) > tonumber(largest) + ${CLAMP_US} then return {3} end
  if largest >= ballot and not ${isTokenText("largest")} then error({err = ${noToken("largest")}}) end
  if largest >= ballot then return {2, largest} end
end

local function acquire(first, count, token, ballot, placeText, ttl, member, note)
  local place, hasLine = tonumber(placeText), false
  for i = 0, count - 1 do
    local allowed, contended = mayTake(first + i, member, place)
    if not allowed then return deny(first, count, i, member, place) end
    hasLine = hasLine or contended
  end
  local refused = several and refusedBallot(count, ballot)
  if refused then return refused end
  local number = several and 1 or nextNumber()
  for i = first, first + count - 1 do
    call('SET', KEYS[i], token, 'PX', ttl)
    if note ~= '' then
      local term = several and ballot or string.format('%.0f', number)
      call('SET', noteOf(KEYS[i]), token .. ' ' .. term .. ' ' .. now .. ' ' .. note, 'PX', ttl)
    end
    if hasLine and member ~= '' then call('ZREM', waitersOf(KEYS[i]), member) end
    if several then raise(ARGV[register + i - first], ballot) end
  end
  return number
end
`;
