/**
 * This script stores the permits of one semaphore or read-write lock on one node. The node's own time decides when a
 * lease ends. The node grants alone, or as one of several nodes that grant a read-write lock by majority.
 *
 * KEYS, all in one hash slot:
 * - 1: hash of the state. `used` is the number of held permits, `fence` the greatest fencing token, and `first` the
 *   first fencing token since the hash exists. With several nodes, `written` is the greatest fencing token of a writer.
 *   `capacity` is ARGV[2] of the last caller, which the live page shows.
 * - 2: sorted set of holders, `<permits>:<token>` by the ms at which the lease ends.
 * - 3: sorted set of waiters, `<permits>:<channel>#<n>` by ticket.
 * - 4: hash of waiters, with the ms until which a waiter keeps its place without a new request.
 * - 5: the node's hash with `run_id` and `since`, only with a quarantine.
 *
 * ARGV:
 * - 1: operation: acquire, extend, release or inspect.
 * - 2: capacity, the total number of permits.
 * - 3: quarantine in ms, or 0.
 * - 4: 1 if PUBLISH counts every subscriber, or 0.
 * - 5: holder, as in KEYS[2].
 * - 6: lease in ms.
 * - 7: waiter, as in KEYS[3], or '' for a caller that does not wait.
 * - 8: ticket of the waiter, or ''.
 * - 9: for extend, the fencing token of the lease. For acquire on several nodes, the proposed fencing token.
 * - 10: 1 for several nodes, or 0.
 *
 * The node grants permits to waiters in the order of tickets. Nobody overtakes the first waiter, even with a request
 * for fewer permits, so neither a writer nor a caller of many permits starves. When enough permits are free, the node
 * calls the first waiter and keeps the permits for TURN_MS. A waiter without a subscriber on its channel is gone, and
 * loses its place. A waiter that lost its place while its process was frozen sends its ticket again and gets the place
 * back.
 *
 * A ticket is the time at which the call began, in µs of the node's clock as estimated by the process. So all nodes
 * have the same order, and a caller that waited behind other callers of its process has not lost its place.
 *
 * With several nodes, the node does not number the grants, but accepts proposed tokens. A reader's token must be above
 * the tokens of all earlier writers, and a writer's token above all earlier tokens. A granted waiter stays in line
 * until the waiter reports the grant of a quorum; otherwise a later waiter could be granted between two attempts.
 *
 * acquire replies:
 * - {1, fencing token}: granted.
 * - {0, ms until the next request, permits held, waiters, the node's µs}: refused. Unless ARGV[7] is '', the caller is
 *   in line now.
 * - {2, ms}: the node is in quarantine for `ms`, because it may have forgotten permits that are still held.
 * - {3, fencing token, the node's µs}: the next proposed token must be above this token and near the node's time.
 *
 * extend replies:
 * - 1: extended. If the node has lost all data and granted nothing since, it also restores a missing lease. Nobody
 *   can have acquired the permits in the meantime.
 * - 0: the lease is missing.
 * - 3: one of several nodes has restored a missing lease. The holder must not count this node.
 * - {2, ms}: one of several nodes is in quarantine. The holder must not count this node.
 *
 * release replies 1 if the node had the lease, or 0.
 *
 * inspect writes nothing, and omits expired holders and waiters. Replies {permits held, last fencing token, holders
 * with the ms at which each lease ends, waiters, the node's ms}.
 */
import { CLAMP_US, defineScript, quarantineIn } from "@x/redlock-core/protocol";

/** How long the node keeps permits for a called waiter. A frozen waiter delays the next waiter by this time. */
export const TURN_MS = 1_000;

/** A waiter sends a request at least this often, because the message of its turn may be lost. */
export const ASK_AGAIN_MS = 2_000;

/** A waiter that has sent no request for this long loses its place, as if its process had died. */
const WAITER_LIFE_MS = 10_000;

/** The state outlives the longest lease. So a lease without a state proves that the node has lost data. */
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

local before, shown = unpack(call('HMGET', state, 'used', 'capacity'))
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
  if ARGV[2] ~= shown then call('HSET', state, 'capacity', ARGV[2]) end
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
