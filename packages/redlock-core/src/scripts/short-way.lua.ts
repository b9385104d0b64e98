/**
 * The request that is sent most often, done without anything else: one operation, a lock of one resource that nobody else has
 * or waits for, on a node without quarantine. It does what acquire.lua.ts and release.lua.ts do in that case, and leaves
 * everything else as it was, for them to do: what defines them costs a lone request a third of its time (51 µs of a node's CPU for
 * a pair against 38).
 */
export const shortWay: string = /* lua */ `
local function acquireFree(token, ttl, ballotText, fenceTtl, clampUs)
  if call('EXISTS', KEYS[1], KEYS[3]) ~= 0 then return end
  local time, ballot = call('TIME'), tonumber(ballotText)
  if ballot > time[1] * 1000000 + time[2] + clampUs then return end
  local before = call('SET', KEYS[2], ballotText, 'PX', fenceTtl, 'GET')
  if before and tonumber(before) >= ballot then
    call('SET', KEYS[2], before, 'PX', fenceTtl)
    return
  end
  call('SET', KEYS[1], token, 'PX', ttl)
  return {time[1], time[2], 0, 1}
end

local function releaseUnwanted(token)
  if redis.pcall('GET', KEYS[1]) ~= token or call('EXISTS', KEYS[3]) == 1 then return end
  local time = call('TIME')
  call('DEL', KEYS[1])
  return {time[1], time[2], 0, 1}
end

if #ARGV == 2 then
  local fenceTtl, clampUs = match(ARGV[1], '^0 (%d+) (%d+) ')
  if fenceTtl then
    local token, ttl, ballotText = match(ARGV[2], '^A1 (%x+) (%d+) (%d+) ')
    local reply
    if token then reply = acquireFree(token, ttl, ballotText, fenceTtl, clampUs)
    else
      token = match(ARGV[2], '^R1 (.*)$')
      reply = token and releaseUnwanted(token)
    end
    if reply then return reply end
  end
end
`;
