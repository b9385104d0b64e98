/**
 * The operations that are sent most often, done without anything else: locks of one resource that nobody else has or waits for. It does
 * what acquire.lua.ts and release.lua.ts do in that case. From the first operation on that needs more, it leaves everything as it was,
 * for them to do: what defines them costs a lone request a third of its time, and their loops over several resources cost a batch a fourth.
 *
 * Numbers are compared as text, which spares parsing them. Defines `n` and `first`, the operation and its first key to go on with, and
 * the `replies` so far.
 */
export const shortWay: string = /* lua */ `
-- With room for one reply: to grow costs a lone request a twentieth of its time.
local replies, n, first = {time[1], time[2], quarantineLeftMs, nil}, 2, quarantineMs == '0' and 1 or 2
local try, now = redis.pcall, nil

local function isAbove(a, b)
  if #a ~= #b then return #a > #b end
  return a > b
end

while n <= #ARGV do
  local key, fence, waiters = KEYS[first], KEYS[first + 1], KEYS[first + 2]
  local token, ttl, ballot = match(ARGV[n], '^A1 (%x+) (%d+) (%d+) ')
  if token then
    if call('EXISTS', key, waiters) ~= 0 then break end
    now = now or time[1] .. string.sub('00000' .. time[2], -6)
    if isAbove(ballot, now) and tonumber(ballot) > tonumber(now) + tonumber(clampUs) then break end
    local before = try('SET', fence, ballot, 'PX', fenceTtl, 'GET')
    if type(before) == 'table' then break end
    if before and not isAbove(ballot, before) then
      call('SET', fence, before, 'PX', fenceTtl)
      break
    end
    local set = try('SET', key, token, 'PX', ttl)
    replies[n + 2] = set.err and {-1, set.err} or 1
  else
    token = match(ARGV[n], '^R1 (.*)$')
    if not token or try('GET', key) ~= token or call('EXISTS', waiters) == 1 then break end
    local deleted = try('DEL', key)
    if deleted ~= 1 then break end
    replies[n + 2] = 1
  end
  n, first = n + 1, first + 3
end
if n > #ARGV then return replies end
`;
