/**
 * Defines `acquire(first, count, token, ttl, ballot, order, member)`: votes on one attempt, all resources or none.
 *
 * Per resource KEYS[first], +1, +2: the lock, its stored fencing token, its waiters. `ttl` in ms; `member`: '' if it does not
 * wait here.
 *
 * Replies
 *   1                     granted: every lock key holds the token, every fence holds the ballot
 *   {0, index, pttl, ms} the index-th resource is held (pttl ms left, -1: no expiry) or an earlier waiter is due; enrolled there;
 *                         ms: when to ask again if no hint comes; with Redis' error as a fifth if its key is of another type
 *   {2, fence}            stale: the stored fencing token is not below the ballot
 *   {3}                   ahead: the ballot is too far above both the node's time and the stored token
 *
 * Numbers are stored as the decimal text that the client sent: printing a Lua number would lose digits. No expiry is ever
 * shortened: only a missing key or a reservation is replaced. Ballots are written first and compared with what they replace:
 * one call less than to read before, and what is not granted puts them back. Calls are what a script costs.
 */
export const acquire: string = /* lua */ `
local function mayTake(first, member, order)
  local key = KEYS[first]
  if call('EXISTS', key, KEYS[first + 2]) == 0 then return true, false end
  local value = valueOf(key)
  if not value then
    local head = call('ZRANGE', KEYS[first + 2], 0, 0, 'WITHSCORES')
    if head[1] == member or order <= tonumber(head[2]) then return true, true end
    if member ~= '' then enrol(first, order, member, 0) end
    handOver(first)
    value = valueOf(key)
    if not value then return true, true end
  end
  local reservedMember, reservedOrder = reservedFor(value)
  return reservedMember and (reservedMember == member or order <= reservedOrder), true
end

local function deny(first, count, index, member, order)
  local pttl = call('PTTL', KEYS[first + 3 * index])
  if member ~= '' then
    for i = 0, count - 1 do
      if i == index then enrol(first + 3 * i, order, member, pttl) else withdraw(first + 3 * i, member) end
    end
  end
  local wrongType = string.match(valueOf(KEYS[first + 3 * index]) or '', '^WRONGTYPE.*')
  return {0, index, pttl, askAgainMs(first + 3 * index, pttl), wrongType}
end

local function largestFence(first, count)
  local largest = 0
  for i = 0, count - 1 do largest = math.max(largest, tonumber(call('GET', KEYS[first + 3 * i + 1])) or 0) end
  return largest
end

local function storeBallot(first, count, ballot, ballotText)
  local before = {}
  for i = 0, count - 1 do
    before[i] = call('SET', KEYS[first + 3 * i + 1], ballotText, 'PX', fenceTtl, 'GET')
    if before[i] and tonumber(before[i]) >= ballot then
      for j = 0, i do
        local fence = KEYS[first + 3 * j + 1]
        if before[j] then call('SET', fence, before[j], 'PX', fenceTtl) else call('DEL', fence) end
      end
      return false
    end
  end
  return true
end

local function acquire(first, count, token, ttl, ballotText, orderText, member)
  local order, ballot, queued = tonumber(orderText), tonumber(ballotText), false
  for i = 0, count - 1 do
    local allowed, contended = mayTake(first + 3 * i, member, order)
    if not allowed then return deny(first, count, i, member, order) end
    queued = queued or contended
  end
  if ballot > nowUs + clampUs and ballot > largestFence(first, count) + clampUs then return {3} end
  if not storeBallot(first, count, ballot, ballotText) then
    return {2, string.format('%.0f', largestFence(first, count))}
  end
  for i = 0, count - 1 do
    call('SET', KEYS[first + 3 * i], token, 'PX', ttl)
    if queued and member ~= '' then call('ZREM', KEYS[first + 3 * i + 2], member) end
  end
  return 1
end
`;
