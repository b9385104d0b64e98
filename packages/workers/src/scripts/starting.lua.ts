/**
 * What a worker asks of the lane when it starts. The parameters are those of operators.lua.ts.
 *
 * These scripts do without the lane library. To read that takes Redis 3 ms, in which it does nothing else, and the
 * first fetch stands behind them.
 */

const HERE = "local P, HOLDERS = ARGV[1], KEYS[1]";

/**
 * Leaves a mark, by which another connection can tell whether it reaches the same database. ARGV[3] is its name.
 * Replies its key.
 */
export const mark: string = /* lua */ `
${HERE}
local key = P .. 'lane:mark=' .. ARGV[3]
call('SET', key, 1, 'PX', 10000)
return key
`;

/**
 * Registers a worker, or takes it off, and reads how all of them are set up. The members are in the hash
 * P lane:workers, with the second in which they were last heard of. It has these parameters:
 * - ARGV[3] is the id of a worker.
 * - ARGV[4] is how it is set up, or '' if it is no member, or leaves.
 * - ARGV[5] is for how long it is a member, in ms.
 *
 * Replies {{set-up of each member}, {ids of jobs}}. These jobs run without having their keys, in a worker that is no
 * member. They are at most 100, of the first 1000 that run.
 *
 * BullMQ's workers lock their jobs with `<id of the worker>:<number>`. Whoever fetches jobs by hand locks them as they
 * like.
 */
export const exchange: string = /* lua */ `
${HERE}
local workers, life = P .. 'lane:workers', tonumber(ARGV[5])
local seconds = tonumber(call('TIME')[1])
if ARGV[4] == '' then call('HDEL', workers, ARGV[3]) else
  call('HSET', workers, ARGV[3], seconds .. ' ' .. ARGV[4])
  call('PEXPIRE', workers, life)
end
local setups, isMember = {}, {}
local members = call('HGETALL', workers)
for i = 1, #members, 2 do
  local seen, setup = string.match(members[i + 1], '^(%d+) (.*)$')
  if (seconds - tonumber(seen)) * 1000 > life then call('HDEL', workers, members[i]) else
    setups[#setups + 1] = setup
    isMember[members[i]] = true
  end
end
local function hasSlot(id, key)
  if call('HGET', HOLDERS, key) == id then return true end
  for _, other in ipairs(call('HVALS', P .. 'lane:slots=' .. string.gsub(key, ':', '\\31'))) do
    if other == id then return true end
  end
end
local function isStray(id)
  local pin = call('HGET', P .. id, 'lk')
  if not pin then
    local data = call('HGET', P .. id, 'data')
    pin = data and pinOfData(data)
    if data and not pin then return true end
  end
  if not hasKeys(pin) then return false end
  for key in string.gmatch(pin, '[^\\31]+') do
    if not hasSlot(id, key) then return true end
  end
  return false
end
local strays, foreign = {}, 0
for _, id in ipairs(call('LRANGE', P .. 'active', 0, 999)) do
  local worker = string.match(call('GET', P .. id .. ':lock') or '', '^([%x-]+):%d+$')
  if worker and #worker == 36 and not isMember[worker] and foreign < 100 then
    foreign = foreign + 1
    if isStray(id) then strays[#strays + 1] = id end
  end
end
return {setups, strays}
`;

/**
 * Begins a look at the keys that nobody asks for. ARGV[3] is for how many ms nobody may have looked, ARGV[4] '1' if it
 * begins in any case. Replies where the last look has ended, a cursor; false if somebody has looked, or there is no
 * key.
 */
export const beginSweep: string = /* lua */ `
${HERE}
if call('EXISTS', HOLDERS) == 0 then return false end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last, cursor = string.match(call('GET', P .. 'lane:sweep') or '', '^(%d+) ?(%d*)$')
last = tonumber(last)
if ARGV[4] ~= '1' and last and last <= now and now - last < tonumber(ARGV[3]) then return false end
cursor = cursor and cursor ~= '' and cursor or '0'
call('SET', P .. 'lane:sweep', string.format('%.0f ', now) .. cursor, 'PX', 10 * ARGV[3])
return cursor
`;
