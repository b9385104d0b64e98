/**
 * These scripts are what operators, and the worker itself, ask of the lane between jobs. Each has the lane library
 * before it, but for those of starting.lua.ts. All have these parameters:
 * - KEYS[1] is P lane:holders, for the slot.
 * - KEYS[2] is P lane:none, which there never is. So a Cluster that moves the slot, key by key, refuses the whole
 *   script. It would find some of its keys and not others.
 * - ARGV[1] is P.
 * - ARGV[2] is the time in ms.
 */
import { at } from "./lane.lua.ts";

const AT = at("ARGV[1]", "ARGV[2]");

/**
 * Returns what limits a key, each '' if nothing does:
 * - Until when no job starts, because of its rate.
 * - How many may run at a time.
 * - Its rate, as "<starts that count>,<max>,<ms>".
 * - What operators have said of it.
 * - When the first in line was added.
 */
const limits = /* lua */ `
local function limitsOf(key)
  local lane = contended()
  local _, limitedUntil = lane.limitedFor(key)
  local rate = ''
  local max, ms = lane.rateOf(key)
  if max then
    -- The newest come first: those that count stand before those that do not.
    local counted, beyond, now = 0, call('LLEN', lane.startsOf(key)), lane.redisMs()
    while counted < beyond do
      local middle = math.floor((counted + beyond) / 2)
      local start = string.match(call('LINDEX', lane.startsOf(key), middle), '^%d+')
      if tonumber(start) + ms > now then counted = middle + 1 else beyond = middle end
    end
    rate = string.format('%.0f,%.0f,%.0f', counted, max, ms)
  end
  local heads = call('ZRANGE', line(key), 0, 1)
  local head = heads[1] == PAUSED and heads[2] or heads[1]
  local untilMs = limitedUntil and string.format('%.0f', limitedUntil) or ''
  local said = POLICIES[key] and call('HGET', HOLDERS, key .. '\\31') or ''
  local since = head and call('HGET', P .. head, 'timestamp') or ''
  -- How many keys have their turn before this one, if it waits for its turn.
  return untilMs, lane.slotCount(key), rate, said, since, ROTATE and call('ZRANK', P .. 'lane:ring', key) or ''
end
`;

/** Tells whether the worker of a job is gone: the job is among those that run, and BullMQ's lock of it has ended. */
const stalled = /* lua */ `
local function isStalled(id)
  return call('EXISTS', P .. id .. ':lock') == 0 and call('LPOS', P .. 'active', id) and true or false
end
`;

/**
 * Returns the seconds since a worker with keys was last heard of. Empty if none is registered. 0 if one of the jobs
 * that run has its lock.
 */
const heard = /* lua */ `
local function heardAgo()
  for _, id in ipairs(call('LRANGE', P .. 'active', 0, 99)) do
    if call('EXISTS', P .. id .. ':lock') == 1 then return 0 end
  end
  local newest
  for _, said in ipairs(call('HVALS', P .. 'lane:workers')) do
    local seen = tonumber(string.match(said, '^%d+'))
    if seen and (not newest or seen > newest) then newest = seen end
  end
  return newest and math.max(0, tonumber(call('TIME')[1]) - newest) or ''
end
`;

/**
 * Pins keys. ARGV has (id, keys | BAD .. why) pairs from the third on. Keys that are known stay, whatever the function
 * of another worker says. The job in the middle gets `la`: when it is taken, the next keys are computed.
 */
export const pin: string = /* lua */ `
${AT}
local pairsCount = (#ARGV - 2) / 2
for i = 1, pairsCount do
  local id, keys = ARGV[2 * i + 1], ARGV[2 * i + 2]
  if call('EXISTS', P .. id) == 1 then
    if string.byte(keys, 1) ~= 30 then
      if call('HSETNX', P .. id, 'lk', keys) == 1 and hasKeys(keys) then contended().disown(id, keys) end
    elseif call('HEXISTS', P .. id, 'lk') == 0 then call('HSET', P .. id, 'lb', string.sub(keys, 2)) end
    if i == math.floor(pairsCount / 2) then call('HSET', P .. id, 'la', 1) end
  end
end
return pairsCount
`;

/**
 * Runs a job next that waits for its lock and still has its keys, whether its timer has fired or not. ARGV[3] is its
 * id. Replies 1 if it was such a job.
 */
export const wake: string = /* lua */ `
${AT}
local id = ARGV[3]
local pin = call('HGET', P .. id, 'lk')
if not hasKeys(pin) or call('HEXISTS', P .. id, 'lo') == 0 then return 0 end
for _, key in ipairs(contended().keysOf(pin)) do
  if not contended().slotOf(id, key) then return 0 end
end
contended().promoteToFront(id)
return 1
`;

/**
 * Pauses a key. ARGV[3] is the key, ARGV[4] the reason, ARGV[5] for how many ms, or '' without end. Replies 1, or 0 if
 * the key was paused already, and when the pause that was asked for ends, or ''. A job that runs goes on to its end.
 */
export const pause: string = /* lua */ `
${AT}
local key = ARGV[3]
local isNew, ends = contended().pause(key, tonumber(ARGV[5]) or math.huge, ARGV[4])
local holder = call('HGET', HOLDERS, key)
if not holder or holder == NEXT or (holder ~= PAUSED and not contended().holds(holder, key)) then
  call('HSET', HOLDERS, key, PAUSED)
  contended().await(key)
end
return {isNew and 1 or 0, ends and string.format('%.0f', ends) or ''}
`;

/**
 * Resumes a key, ARGV[3]. Replies 1, or 0 if the key was not paused. The job whose failure stopped the key goes first,
 * if it was retried by hand.
 */
export const resume: string = /* lua */ `
${AT}
local key = ARGV[3]
local wasPaused = contended().pausedFor(key)
local failed = contended().haltedBy(key)
if failed then
  local facts = call('HMGET', P .. failed, 'lk', 'finishedOn', 'ls')
  if contended().pinned(facts[1], key) and not facts[2] and not facts[3] then
    local keys = contended().keysOf(facts[1])
    local place = contended().frontPlace(keys)
    for i = 1, #keys do call('ZADD', line(keys[i]), place, failed) end
    call('HSET', P .. failed, 'ls', place, 'lp', NOW)
  end
end
call('HDEL', P .. 'lane:paused', key)
call('ZREM', line(key), PAUSED)
local holder = call('HGET', HOLDERS, key)
if holder == PAUSED then call('HSET', HOLDERS, key, NEXT) end
contended().heal(key)
return wasPaused and 1 or 0
`;

/**
 * Says what holds for a key instead of the workers' options. ARGV[3] is the key, ARGV[4] JSON of what is said, or '' if
 * that is to be forgotten. Replies 1 if something was said before, else 0.
 *
 * Slots that may be filled now are filled. More jobs may have the key than may from now on: they go on.
 */
export const setPolicy: string = /* lua */ `
${AT}
local key, given = ARGV[3], ARGV[4]
local holder, lane = firstSlot(key), contended()
local before = POLICIES[key]
local wasSaid = before and next(before) ~= nil and 1 or 0
if given == '' and wasSaid == 0 then return 0 end
if given ~= '' or call('EXISTS', furtherSlots(key)) == 1 then
  -- Of several slots, one at a time is given to a job that has yet to be taken. The first slot may be, already.
  local isJob = holder and holder ~= PAUSED and holder ~= NEXT
  if not before and SLOTS == 1 and isJob and lane.holds(holder, key)
    and call('EXISTS', P .. holder .. ':lock') == 0 and not call('ZSCORE', P .. 'delayed', holder) then
    call('HSET', CHOSEN, key, holder)
  end
  call('HSETNX', HOLDERS, key, NEXT)
  -- Where further slots are taken, the key is looked at until they are not.
  POLICIES[key] = cjson.decode(given ~= '' and given or '{}')
  call('HSET', HOLDERS, key .. '\\31', given ~= '' and given or '{}')
else
  POLICIES[key] = false
  call('HDEL', HOLDERS, key .. '\\31')
  if SLOTS == 1 then call('HDEL', CHOSEN, key) end
end
local rate = POLICIES[key] and POLICIES[key].rate
if rate then call('PEXPIRE', lane.startsOf(key), rate.duration) end
lane.heal(key)
return wasSaid
`;

/** Replies what is said of a key, ARGV[3], as JSON; '' if nothing is. */
export const policy: string = /* lua */ `
${AT}
return call('HGET', HOLDERS, ARGV[3] .. '\\31') or ''
`;

/**
 * Lists the keys of which something is said. ARGV[3] is the cursor, ARGV[4] the count. Replies {cursor, {key, JSON},
 * …}.
 */
export const policies: string = /* lua */ `
${AT}
local page = call('HSCAN', HOLDERS, ARGV[3], 'MATCH', '*\\31', 'COUNT', ARGV[4])
local reply = {page[1]}
for i = 1, #page[2], 2 do reply[#reply + 1] = {string.sub(page[2][i], 1, -2), page[2][i + 1]} end
return reply
`;

/**
 * Lists keys. ARGV[3] is the cursor, ARGV[4] the count. Replies {cursor, {key, holders | '', parked, processedOn of
 * the first, paused, isStalled of the first, and its limits}, …}.
 *
 * Keys whose holder is gone are passed on: if none of their jobs is left, nobody else would do it.
 */
export const list: string = /* lua */ `
${AT}
${limits}
${stalled}
local page = call('HSCAN', HOLDERS, ARGV[3], 'COUNT', ARGV[4])
local reply = {page[1]}
for i = 1, #page[2], 2 do
  local key, holder = page[2][i], nil
  if string.byte(key, -1) ~= 31 then
    contended().heal(key)
    holder = firstSlot(key)
  end
  if holder then
    local parked = call('ZCARD', line(key))
    if contended().pausedFor(key) then parked = call('ZCARD', line(key)) - 1 end
    local holders = contended().holdersOf(key)
    local processedOn = holders[1] ~= '' and call('HGET', P .. holders[1], 'processedOn')
    local paused = call('HGET', P .. 'lane:paused', key) or ''
    -- Of some, there is only what operators have said.
    if not POLICIES[key] or holders[1] ~= '' or parked > 0 or paused ~= '' then
      reply[#reply + 1] = {key, table.concat(holders, '\\31'), parked, processedOn or '', paused, holders[1] ~= '' and isStalled(holders[1]) and 1 or 0, limitsOf(key)}
    end
  end
end
return reply
`;

/**
 * Explains a job. ARGV[3] is its id. Replies {} if there is no such job, else {lk | false, isParked, dueMs | '',
 * isFinished, waitsForLock, isQueuePaused, isStalled, seconds since a worker was heard of | '', …}.
 *
 * For each key, (key, holders | '', processedOn of the first, isHolderRemoved, rank | -1, parked, paused | '',
 * isStalled of the first, and its limits) follows.
 */
export const explain: string = /* lua */ `
${AT}
${limits}
${stalled}
${heard}
local id = ARGV[3]
local facts = call('HMGET', P .. id, 'lk', 'ls', 'finishedOn', 'data', 'name', 'lo')
if not facts[4] and not facts[5] then return {} end
local pin = facts[1] or (facts[4] and pinOfData(facts[4])) or false
local due = call('ZSCORE', P .. 'delayed', id)
local reply = {pin, facts[2] and 1 or 0, due and string.format('%.0f', math.floor(tonumber(due) / 4096)) or '', facts[3] and 1 or 0, facts[6] and 1 or 0, call('HEXISTS', P .. 'meta', 'paused'), isStalled(id) and 1 or 0, heardAgo()}
if hasKeys(pin) then
  for _, key in ipairs(contended().keysOf(pin)) do
    local paused = contended().pausedFor(key)
    local holders = contended().holdersOf(key)
    local holder = holders[1]
    local isReal = holder ~= ''
    local rank = call('ZRANK', line(key), id)
    reply[#reply + 1] = {
      key, table.concat(holders, '\\31'), isReal and call('HGET', P .. holder, 'processedOn') or '', isReal and not contended().holds(holder, key) and 1 or 0,
      rank and (paused and rank - 1 or rank) or -1, call('ZCARD', line(key)) - (paused and 1 or 0),
      call('HGET', P .. 'lane:paused', key) or '', isReal and isStalled(holder) and 1 or 0, limitsOf(key)
    }
  end
end
return reply
`;

/**
 * Lists the jobs in line, first come first. ARGV[3] is the key, ARGV[4] the limit. Replies {holders | '', when each of
 * the first 1000 was parked, id, …}.
 */
export const inLine: string = /* lua */ `
${AT}
local since = {}
local reply = {table.concat(contended().holdersOf(ARGV[3]), '\\31'), since}
local ids = call('ZRANGE', line(ARGV[3]), 0, ARGV[4])
for i = 1, #ids do
  if ids[i] ~= PAUSED and #reply < tonumber(ARGV[4]) + 2 then
    reply[#reply + 1] = ids[i]
    if #since < 1000 then since[#since + 1] = call('HGET', P .. ids[i], 'lp') end
  end
end
return reply
`;

/**
 * Looks for jobs of a key, ARGV[3], that do not run. It looks in a part of the queue (ARGV[4]: 'wait', 'prioritized',
 * …), or in the key's line ('line'). ARGV[5] and ARGV[6] are the first and the last place to look at.
 *
 * Replies {how many stand there, ids, jobs whose keys JavaScript finds}. Of the queue's parts, those in line are left
 * out.
 */
export const search: string = /* lua */ `
${AT}
local key, part, from, to = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
if part == 'line' then
  local ids = call('ZRANGE', line(key), from, to)
  local found = {}
  for _, id in ipairs(ids) do
    if id ~= PAUSED and call('EXISTS', P .. id) == 1 then found[#found + 1] = id end
  end
  return {#ids, found, {}}
end
local ids = call((part == 'wait' or part == 'paused') and 'LRANGE' or 'ZRANGE', P .. part, from, to)
local found, unknown = {}, {}
for _, id in ipairs(ids) do
  local facts = call('HMGET', P .. id, 'lk', 'ls', 'lb', 'data', 'name', 'timestamp', 'priority', 'parentKey')
  local pin = facts[1] or (facts[4] and pinOfData(facts[4]))
  if facts[2] then
  elseif pin then
    if contended().pinned(pin, key) then found[#found + 1] = id end
  elseif facts[4] and not facts[3] then
    unknown[#unknown + 1] = {id, facts[5], facts[4], facts[6], facts[7], facts[8]}
  end
end
return {#ids, found, unknown}
`;

/** Says that jobs of a key, ARGV[3], were removed: those in ARGV[4]…. The key goes on without them. */
export const removed: string = /* lua */ `
${AT}
local key = ARGV[3]
for i = 4, #ARGV do
  if call('EXISTS', P .. ARGV[i]) == 0 then call('ZREM', line(key), ARGV[i]) end
end
contended().heal(key)
contended().await(key)
return 1
`;

/**
 * Looks at a page of keys: those whose holder is gone are passed on, or forgotten. ARGV[3] is the cursor, ARGV[4] the
 * count, ARGV[5] as ARGV[3] of `beginSweep` in starting.lua.ts. Replies the next cursor.
 *
 * ARGV[6] is '1' for the last page of a look: the next look goes on behind it. A worker that dies before that leaves
 * all pages of its look to the next.
 */
export const sweep: string = /* lua */ `
${AT}
local page = call('HSCAN', HOLDERS, ARGV[3], 'COUNT', ARGV[4])
for i = 1, #page[2], 2 do
  local key = page[2][i]
  -- One that cannot be passed on does not keep the others from it.
  if string.byte(key, -1) ~= 31 then quietly(contended().heal, key) end
end
if ARGV[6] == '1' or page[1] == '0' then
  call('SET', P .. 'lane:sweep', string.format('%.0f ', contended().redisMs()) .. page[1], 'PX', 10 * ARGV[5])
end
return page[1]
`;

/**
 * Replies the jobs that stand in line for the one key of a job that runs, as {id, place, fields}, for its call. ARGV[3]
 * is its id, ARGV[4] the token of BullMQ's lock of it, ARGV[5] the most. It ends before one that the call may not
 * have: it has several keys, waits for its lock, or does not run.
 */
export const gather: string = /* lua */ `
${AT}
local id, most, reply = ARGV[3], tonumber(ARGV[5]), {}
local pin = call('HGET', P .. id, 'lk')
local isOurs = hasKeys(pin) and isSingle(pin) and call('HGET', HOLDERS, pin) == id and call('GET', P .. id .. ':lock') == ARGV[4]
if not isOurs or most < 1 then return reply end
-- Those that nobody has looked at, because no slot is free: fifty at a time, until the call has all that it may have.
for _ = 1, most, 50 do
  parkedHere = 0
  if not quietly(contended().sift) or call('ZCARD', line(pin)) >= most then break end
end
for index = 0, most do
  local other = contended().standing(pin, index)
  if not other then break end
  if other ~= PAUSED then
    local fields, facts = call('HGETALL', P .. other), {}
    for j = 1, #fields, 2 do facts[fields[j]] = fields[j + 1] end
    if facts.lk ~= pin or facts.lb or facts.lo or facts.lr or facts.defa or #reply == most then break end
    reply[#reply + 1] = {other, facts.ls, fields}
  end
end
return reply
`;

/**
 * Gives jobs that stand in line what the call of another one has made of them. ARGV[3] is the id of that one, ARGV[4]
 * the token of BullMQ's lock of it. For each job its id, its place and the outcome follow.
 *
 * Replies the ids of those that are not there any more, or false if the call does not count: its job is somebody
 * else's.
 */
export const settle: string = /* lua */ `
${AT}
local id = ARGV[3]
local pin = call('HGET', P .. id, 'lk')
local isOurs = hasKeys(pin) and call('HGET', HOLDERS, pin) == id and call('GET', P .. id .. ':lock') == ARGV[4]
if not isOurs then return false end
local gone = {}
for i = 5, #ARGV, 3 do
  local facts = call('HMGET', P .. ARGV[i], 'lk', 'ls', 'lb')
  if facts[1] == pin and facts[2] == ARGV[i + 1] and not facts[3] then call('HSET', P .. ARGV[i], 'lr', ARGV[i + 2])
  else gone[#gone + 1] = ARGV[i] end
end
return gone
`;

/** Replies for each of the ids in ARGV[3]… the pin of a job that is not to run, or not again; '' if it is. */
export const superseded: string = /* lua */ `
${AT}
local reply = {}
for i = 3, #ARGV do
  local why = call('HGET', P .. ARGV[i], 'lb')
  reply[i - 2] = why and BAD .. why or ''
end
return reply
`;

/**
 * Replies the number of jobs that a free slot would take, which is none while the queue is paused, and of those that
 * run.
 */
export const lengths: string = /* lua */ `
${AT}
local isPaused = call('HEXISTS', P .. 'meta', 'paused') == 1
local waiting = isPaused and 0 or call('LLEN', P .. 'wait') + call('ZCARD', P .. 'prioritized')
-- Of each key that waits for its turn, one job at least.
if ROTATE and not isPaused then waiting = waiting + call('ZCARD', P .. 'lane:ring') end
return {waiting, call('LLEN', P .. 'active')}
`;
