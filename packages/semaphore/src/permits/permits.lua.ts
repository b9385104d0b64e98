/**
 * This script keeps the permits of one semaphore, or of one read-write lock, on one node. The node's own time decides
 * when a lease is over. It is the only node, or one of several that grant a read-write lock by majority.
 *
 * KEYS, all in one hash slot:
 * - 1 is the hash of the state. `used` are the permits that are held, and `fence` is the greatest fencing token.
 *   `first` is the first one since the node has this hash. One of several nodes has `written`, the greatest fencing
 *   token of a writer.
 * - 2 is the sorted set of holders, `<permits>:<token>` by the ms at which the lease ends.
 * - 3 is the sorted set of waiters, `<permits>:<channel>#<n>` by ticket.
 * - 4 is the hash of waiters and the ms until which each keeps its place without asking again.
 * - 5 is the node's hash with `run_id` and `since`; only with a quarantine.
 *
 * ARGV:
 * - 1 is the operation: acquire, extend, release or inspect.
 * - 2 is the number of permits that there are.
 * - 3 is the quarantine in ms, or 0.
 * - 4 is 1 where PUBLISH counts every subscriber, or 0.
 * - 5 is the holder, as in KEYS[2].
 * - 6 is the lease in ms.
 * - 7 is the waiter, as in KEYS[3], or '' for a caller that does not wait.
 * - 8 is the waiter's ticket, or ''.
 * - 9 is the fencing token of the lease that is extended. To one of several nodes it is also the one that is proposed.
 * - 10 is 1 for one of several nodes, or 0.
 *
 * Permits go to waiters in the order of their tickets, and nobody overtakes the first one, even if fewer permits would
 * do. So neither a writer nor a caller of many permits starves. The first waiter is told when its permits are free. It
 * then has TURN_MS to take them; meanwhile they are kept. A waiter whose channel nobody listens to has gone, and is
 * skipped. One that was skipped while it was frozen asks again with its ticket, and has its place back. A ticket is the
 * µs of the node's time at which the call began, as well as its process knows this time. So all nodes have the same
 * order, and a caller that waited behind others of its process has not lost its place.
 *
 * One of several nodes does not number the grants. It takes a proposed token that is above those of all writers before,
 * and for a writer also of all readers. A waiter that it grants stays in line until the waiter says that a quorum has
 * granted; else those behind would come between its tries.
 *
 * acquire replies:
 * - {1, fencing token}.
 * - {0, ms until to ask again, permits held, waiters, the node's µs}. The caller waits now, unless ARGV[7] is ''.
 * - {2, ms}: the node may have forgotten permits that are still held, so it grants none for so long.
 * - {3, fencing token, the node's µs}: the proposed one must be above this one, and near the node's time.
 *
 * extend replies 1, or 0 if the lease is not there. A node that lost all of its data, and has granted nothing since,
 * takes the holder's word for it: nobody can have come between. One of several sets the lease again wherever there is
 * room, but the holder must not count that: it replies 3. In quarantine it replies {2, ms}, and does not count either.
 *
 * release replies 1 if the lease was there.
 *
 * inspect writes nothing, and leaves out whoever is over. It replies {permits held, last fencing token, holders with
 * the ms at which each lease ends, waiters, the node's ms}.
 */
import { CLAMP_US, defineScript, quarantineIn } from "@x/redlock-core/protocol";

/** Permits are kept for a waiter whose turn it is for so long; a frozen waiter costs the others this much. */
export const TURN_MS = 1_000;

/** A waiter asks again at least so often, in case that a message was lost. */
export const ASK_AGAIN_MS = 2_000;

/** A waiter that has not asked for so long has lost its place, as if its process had died. */
const WAITER_LIFE_MS = 10_000;

/** The state outlives the longest lease, so that a lease of whose state nothing is left was forgotten by the node. */
const STATE_LIFE_MS = 2 * 86_400_000;

export const permitsScript: ReturnType<typeof defineScript> = defineScript(
  "semaphore",
  /* lua */ `
local call = redis.call
local state, holders, waiters, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local op, capacity, holder, waiter = ARGV[1], tonumber(ARGV[2]), ARGV[5], ARGV[7]
local several = ARGV[10] == '1'
local time = call('TIME')
local nowUs = tonumber(time[1]) * 1000000 + tonumber(time[2])
local nowMs = math.floor(nowUs / 1000)

local function asText(number) return string.format('%.0f', number) end
local function permitsOf(member) return tonumber(string.match(member, '^%d+')) end

local function firstOf(key)
  local found = call('ZRANGE', key, 0, 0, 'WITHSCORES')
  if found[1] then return found[1], tonumber(found[2]) end
end

local function sumOfHolders()
  local sum = 0
  for _, member in ipairs(call('ZRANGE', holders, 0, -1)) do sum = sum + permitsOf(member) end
  return sum
end

local before = call('HGET', state, 'used')
local used = before and tonumber(before) or sumOfHolders()

local function expire()
  while true do
    local member, endMs = firstOf(holders)
    if not member then
      used = 0
      return
    end
    if endMs >= nowMs then return end
    call('ZREM', holders, member)
    used = used - permitsOf(member)
  end
end

local function save()
  if asText(used) ~= before then call('HSET', state, 'used', asText(used)) end
  call('PEXPIRE', state, ${STATE_LIFE_MS})
  call('PEXPIRE', holders, ${STATE_LIFE_MS})
end

local function leaveLine(member)
  call('ZREM', waiters, member)
  call('HDEL', places, member)
end

local function placeEndsMs(member)
  return tonumber(call('HGET', places, member) or '0')
end

local function firstInLine()
  while true do
    local member, ticket = firstOf(waiters)
    if not member or placeEndsMs(member) >= nowMs then return member, ticket end
    leaveLine(member)
  end
end

local function callFirst()
  while true do
    local member = firstInLine()
    if not member or used + permitsOf(member) > capacity then return end
    local receivers = redis.pcall('PUBLISH', string.match(member, '^%d+:([^#]*)'), member)
    if (type(receivers) == 'number' and receivers > 0) or ARGV[4] == '0' then
      call('HSET', places, member, asText(math.min(placeEndsMs(member), nowMs + ${TURN_MS})))
      return
    end
    leaveLine(member)
  end
end

local function votesInMs()
  local quarantineMs, quarantineLeftMs = ARGV[3], 0
  if quarantineMs ~= '0' then
    local now, seen = asText(nowUs), call('HMGET', KEYS[5], 'run_id', 'since')
    ${quarantineIn("KEYS[5]")}
  end
  return quarantineLeftMs
end

local function lastOf(field) return tonumber(call('HGET', state, field) or '0') end

local function enrol()
  call('ZADD', waiters, ARGV[8], waiter)
  call('HSET', places, waiter, asText(nowMs + ${WAITER_LIFE_MS}))
  call('PEXPIRE', waiters, ${2 * WAITER_LIFE_MS})
  call('PEXPIRE', places, ${2 * WAITER_LIFE_MS})
end

local function isWriter() return several and permitsOf(holder) == capacity end

local function raise(token, last)
  call('HSET', state, 'fence', asText(math.max(last, token)))
  if isWriter() then call('HSET', state, 'written', asText(math.max(lastOf('written'), token))) end
end

local function mayFollow(token, last)
  local least = isWriter() and last or lastOf('written')
  return token > least and token <= math.max(nowUs, last) + ${CLAMP_US}, least
end

local function acquire()
  local leftMs = votesInMs()
  if leftMs > 0 then return {2, leftMs} end
  expire()
  local given = tonumber(ARGV[8])
  local first, firstTicket = firstInLine()
  local isNext = not first or first == waiter or (given and given < firstTicket)
  if isNext and used + permitsOf(holder) <= capacity then
    local last = lastOf('fence')
    local token = several and tonumber(ARGV[9]) or math.max(nowUs, last + 1)
    if several then
      local isFine, least = mayFollow(token, last)
      if not isFine then
        save()
        return {3, asText(least), asText(nowUs)}
      end
    end
    call('ZADD', holders, asText(nowMs + tonumber(ARGV[6])), holder)
    raise(token, last)
    call('HSETNX', state, 'first', asText(token))
    used = used + permitsOf(holder)
    if several then
      if waiter ~= '' then enrol() end
    else
      if waiter ~= '' then leaveLine(waiter) end
      callFirst()
    end
    save()
    return {1, asText(token)}
  end
  if waiter ~= '' then enrol() end
  local askAgainMs = ${ASK_AGAIN_MS}
  if isNext then
    local _, endMs = firstOf(holders)
    if endMs then askAgainMs = math.min(askAgainMs, endMs - nowMs + 1) end
  else
    callFirst()
    local member = firstInLine()
    if member then askAgainMs = math.min(askAgainMs, placeEndsMs(member) - nowMs + 1) end
  end
  save()
  return {0, askAgainMs, used, call('ZCARD', waiters), asText(nowUs)}
end

local function extend()
  local leftMs = several and votesInMs() or 0
  expire()
  local endMs = tonumber(call('ZSCORE', holders, holder) or '0')
  local isMissing = endMs == 0
  if isMissing then
    local isForgotten = several or call('HEXISTS', state, 'first') == 0
    if not isForgotten or used + permitsOf(holder) > capacity then
      callFirst()
      save()
      return 0
    end
    used = used + permitsOf(holder)
    raise(tonumber(ARGV[9]), lastOf('fence'))
  end
  call('ZADD', holders, asText(math.max(endMs, nowMs + tonumber(ARGV[6]))), holder)
  save()
  if leftMs > 0 then return {2, leftMs} end
  return several and isMissing and 3 or 1
end

local function release()
  expire()
  local wasHeld = call('ZREM', holders, holder)
  if wasHeld == 1 then used = used - permitsOf(holder) end
  if waiter ~= '' then leaveLine(waiter) end
  callFirst()
  save()
  return wasHeld
end

local function inspect()
  local members, held, live, waiting = call('ZRANGE', holders, 0, -1, 'WITHSCORES'), 0, {}, 0
  for at = 1, #members, 2 do
    if tonumber(members[at + 1]) >= nowMs then
      held = held + permitsOf(members[at])
      live[#live + 1] = members[at]
      live[#live + 1] = members[at + 1]
    end
  end
  for _, member in ipairs(call('ZRANGE', waiters, 0, -1)) do
    if placeEndsMs(member) >= nowMs then waiting = waiting + 1 end
  end
  return {held, call('HGET', state, 'fence') or '', live, waiting, asText(nowMs)}
end

if op == 'acquire' then return acquire() end
if op == 'extend' then return extend() end
if op == 'release' then return release() end
return inspect()
`,
);
