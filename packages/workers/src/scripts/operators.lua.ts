/**
 * The functions of the lane that operators call, and that the worker calls between jobs. `operate.lua.ts` combines
 * these functions in one script.
 *
 * Each export is the text of a Lua function, whose parameters are the caller's arguments as text. A list of any length
 * is not a parameter: `argumentsAfter(count)` returns the arguments after the first `count` arguments.
 */
import { CANCELLED } from "../rules/entity-key.ts";
import { GONE_SECONDS } from "./operator-replies.ts";
import { BULL, JOB } from "./rules/job-fields.ts";

/**
 * Stores the keys of jobs, given as pairs of an ID and a pin. A pin of a job whose keys cannot be used begins with BAD.
 *
 * Keys that are known stay, even if the function of another worker returns others. The job in the middle of the list is
 * marked: when it is taken, the keys of further jobs are computed.
 */
export const pin: string = /* lua */ `function()
  local computed = argumentsAfter(0)
  local count = #computed / 2
  for i = 1, count do
    local id, keys = computed[2 * i - 1], computed[2 * i]
    if call('EXISTS', P .. id) == 1 then
      if string.byte(keys, 1) ~= 30 then
        if call('HSETNX', P .. id, '${JOB.keys}', keys) == 1 and hasKeys(keys) then contended().disown(id, keys) end
      elseif call('HEXISTS', P .. id, '${JOB.keys}') == 0 then call('HSET', P .. id, '${JOB.refusal}', string.sub(keys, 2)) end
      if i == math.floor(count / 2) then call('HSET', P .. id, '${JOB.moreKeys}', 1) end
    end
  end
  return count
end`;

/**
 * Moves a job that waits for its lock and still has its keys to the front of the queue, even before its timer fires.
 * Replies 1 if there was such a job.
 */
export const wake: string = /* lua */ `function(id)
  local pin = call('HGET', P .. id, '${JOB.keys}')
  if not hasKeys(pin) or call('HEXISTS', P .. id, '${JOB.lockPlace}') == 0 then return 0 end
  for _, key in ipairs(contended().keysOf(pin)) do
    if not contended().slotOf(id, key) then return 0 end
  end
  contended().promoteToFront(id)
  return 1
end`;

/**
 * Pauses a key for a number of ms, or without end if `ms` is empty. A job that runs continues to its end. Replies 1, or
 * 0 if the key was paused already, followed by the time at which the pause that was asked for ends, or ''.
 */
export const pause: string = /* lua */ `function(key, reason, ms)
  local isNew, ends = contended().pause(key, tonumber(ms) or math.huge, reason)
  local holder = call('HGET', HOLDERS, key)
  if not holder or holder == NEXT or (holder ~= PAUSED and not contended().holds(holder, key)) then
    call('HSET', HOLDERS, key, PAUSED)
    contended().await(key)
  end
  return {isNew and 1 or 0, ends and string.format('%.0f', ends) or ''}
end`;

/**
 * Resumes a key. Replies 1, or 0 if the key was not paused. If the job whose failure stopped the key was retried by
 * hand, that job goes first.
 */
export const resume: string = /* lua */ `function(key)
  local wasPaused = contended().pausedFor(key)
  local failed = contended().haltedBy(key)
  if failed then
    local pin, finishedOn, place = unpack(call('HMGET', P .. failed, '${JOB.keys}', 'finishedOn', '${JOB.place}'))
    if contended().pinned(pin, key) and not finishedOn and not place then
      local keys = contended().keysOf(pin)
      local front = contended().frontPlace(keys)
      for i = 1, #keys do call('ZADD', line(keys[i]), front, failed) end
      call('HSET', P .. failed, '${JOB.place}', front, '${JOB.parkedAt}', NOW)
    end
  end
  call('HDEL', P .. 'lane:paused', key)
  call('ZREM', line(key), PAUSED)
  local holder = call('HGET', HOLDERS, key)
  if holder == PAUSED then call('HSET', HOLDERS, key, NEXT) end
  contended().heal(key)
  return wasPaused and 1 or 0
end`;

/**
 * Sets the policy of a key, which replaces the workers' options for this key. `given` is the JSON of the policy, or ''
 * to remove the present policy. Replies 1 if the key had a policy, else 0.
 *
 * Slots that the policy adds are filled. Jobs in slots that the policy removes continue to their end.
 */
export const setPolicy: string = /* lua */ `function(key, given)
  local holder, lane = firstSlot(key), contended()
  local before, hadPolicy = POLICIES[key], 0
  -- Not a part of the policy: the note of \`markOverlaps\` in slots.lua.ts.
  local overlaps = before and before.overlaps
  for name in pairs(before or {}) do hadPolicy = name == 'overlaps' and hadPolicy or 1 end
  if given == '' and hadPolicy == 0 then return 0 end
  if given ~= '' or call('EXISTS', furtherSlots(key)) == 1 then
    -- Only one of several slots at a time is given to a job that has not been taken yet. The first slot may be this
    -- one. No other job waits for a job that was taken and whose worker is gone.
    local isJob = holder and holder ~= PAUSED and holder ~= NEXT
    if not before and SLOTS == 1 and isJob and lane.holds(holder, key) and not isStalled(holder)
      and call('EXISTS', P .. holder .. ':lock') == 0 and not call('ZSCORE', P .. 'delayed', holder) then
      call('HSET', CHOSEN, key, holder)
    end
    call('HSETNX', HOLDERS, key, NEXT)
    -- While further slots are taken, every job that takes the key must look at these slots.
    POLICIES[key] = cjson.decode(given ~= '' and given or '{}')
    POLICIES[key].overlaps = overlaps or nil
    call('HSET', HOLDERS, key .. '\\31', cjson.encode(POLICIES[key]))
  else
    POLICIES[key] = false
    call('HDEL', HOLDERS, key .. '\\31')
    if SLOTS == 1 then call('HDEL', CHOSEN, key) end
  end
  local rate = POLICIES[key] and POLICIES[key].rate
  if rate then call('PEXPIRE', lane.startsOf(key), rate.duration) end
  lane.heal(key)
  return hadPolicy
end`;

/** Replies the policy of a key as JSON; '' if it has none. */
export const policy: string = /* lua */ `function(key)
  return call('HGET', HOLDERS, key .. '\\31') or ''
end`;

/** Lists a page of the keys that have a policy. Replies {next cursor, {key, JSON}, …}. */
export const policies: string = /* lua */ `function(cursor, count)
  local page = call('HSCAN', HOLDERS, cursor, 'MATCH', '*\\31', 'COUNT', count)
  local reply = {page[1]}
  for i = 1, #page[2], 2 do
    local key = string.sub(page[2][i], 1, -2)
    if key ~= '' then reply[#reply + 1] = {key, page[2][i + 1]} end
  end
  return reply
end`;

/**
 * Begins to watch the queue if `isToBeWatched` is '1', or ends it, see watch.lua.ts. The figures of the last time are
 * dropped when the queue is watched again. Replies 1 if this changed the rule, else 0.
 */
export const watch: string = /* lua */ `function(isToBeWatched)
  local was = call('HEXISTS', HOLDERS, WATCH) == 1
  if was == (isToBeWatched == '1') then return 0 end
  local now = string.format('%.0f', contended().redisMs())
  if was then
    call('HDEL', HOLDERS, WATCH)
    call('HSET', P .. 'lane:watched', 'until', now)
  else
    call('DEL', P .. 'lane:watched', P .. 'lane:early')
    call('HSET', P .. 'lane:watched', 'since', now)
    call('HSET', HOLDERS, WATCH, now)
  end
  return 1
end`;

/**
 * Replies what was counted while the queue was watched: {1 if the queue is watched now, since, until, ended, overlaps,
 * outOfOrder, {key, number of early starts, …}}. A fact that does not apply is false. At most `most` keys, the most
 * frequent first.
 */
export const watched: string = /* lua */ `function(most)
  return watchedFacts(most)
end`;

/**
 * Counts the keys of a page that more jobs have than the key allows. Replies {next cursor, count}. Forgets that jobs of
 * a key have overlapped if they no longer do.
 */
export const overlapping: string = /* lua */ `function(cursor, count)
  local lane = contended()
  local page, found = call('HSCAN', HOLDERS, cursor, 'MATCH', '*\\31', 'COUNT', count), 0
  for i = 1, #page[2], 2 do
    local key, holders = string.sub(page[2][i], 1, -2), 0
    if key ~= '' then
      quietly(lane.heal, key)
      for _, id in ipairs(lane.holdersOf(key)) do
        if id ~= '' and lane.holds(id, key) then holders = holders + 1 end
      end
      if holders > lane.slotCount(key) then found = found + 1 end
    end
  end
  return {page[1], found}
end`;

/**
 * Lists a page of the keys that are busy, paused or waited for. Replies {next cursor, {the facts of a key}, …}; see
 * `keyFacts` in operate.lua.ts.
 *
 * A key whose holder is gone passes to the next job: if none of its jobs is left, no other script would do so.
 */
export const list: string = /* lua */ `function(cursor, count)
  local page = call('HSCAN', HOLDERS, cursor, 'COUNT', count)
  local reply = {page[1]}
  for i = 1, #page[2], 2 do
    local key = page[2][i]
    if string.byte(key, -1) ~= 31 then
      contended().heal(key)
      if firstSlot(key) then
        local facts = keyFacts(key)
        -- A key may have a policy and nothing else.
        local isUsed = facts.holders ~= '' or facts.parked > 0 or facts.pause ~= ''
        if not POLICIES[key] or isUsed then reply[#reply + 1] = keyReply(facts) end
      end
    end
  end
  return reply
end`;

/**
 * Explains why a job waits. Replies {} if the job does not exist, else {facts of the workers, facts of the job}; see
 * `fleet` and `jobReply` in operate.lua.ts.
 */
export const explain: string = /* lua */ `function(id)
  local job = jobReply(id)
  return #job == 0 and {} or {fleet(), job}
end`;

/**
 * Reads a key and its jobs at one moment: the jobs that have the key, at most 25, and the first `limit` jobs in line.
 * Replies {seconds, microseconds, facts of the workers, facts of the key, {ID, facts of a job}, …}.
 */
export const reading: string = /* lua */ `function(key, limit)
  local time = call('TIME')
  local reply = {time[1], time[2], fleet(), keyReply(keyFacts(key))}
  local function add(ids, most)
    for _, id in ipairs(ids) do
      if most == 0 then return end
      local job = (id == PAUSED or id == '') and {} or jobReply(id)
      if #job > 0 then reply[#reply + 1], most = {id, job}, most - 1 end
    end
  end
  add(contended().holdersOf(key), 25)
  -- The line of a paused key begins with the pause.
  add(call('ZRANGE', line(key), 0, limit), tonumber(limit))
  return reply
end`;

/**
 * Reads the queue as a whole. Replies {seconds, microseconds, whether the queue is paused, number of jobs that a free
 * slot would take, number of active jobs, {IDs of active jobs whose workers are gone}, the workers' reports, what
 * `watched` replies, the first page of `list` with `count` keys, the `reading` of each further argument, with `limit`
 * jobs in line}. With a `count` of 0 the page is empty. Only the 100 oldest active jobs are looked at.
 */
export const overview: string = /* lua */ `function(count, limit)
  local time, stalled = call('TIME'), {}
  for _, id in ipairs(call('LRANGE', P .. 'active', -100, -1)) do
    if call('EXISTS', P .. id .. ':lock') == 0 then stalled[#stalled + 1] = id end
  end
  local isPaused = call('HEXISTS', P .. 'meta', 'paused')
  local keys = count == '0' and {'0'} or functions.list('0', count)
  local active = call('LLEN', P .. 'active')
  local reply = {time[1], time[2], isPaused, runnable(), active, stalled, reports(), watchedFacts(0), keys}
  for _, key in ipairs(argumentsAfter(2)) do reply[#reply + 1] = functions.reading(key, limit) end
  return reply
end`;

/**
 * Lists at most `limit` jobs in line for a key, in their order. Replies {holders | '', {when each of the first 1000 was
 * parked}, id, …}.
 */
export const inLine: string = /* lua */ `function(key, limit)
  local since = {}
  local reply = {table.concat(contended().holdersOf(key), '\\31'), since}
  local ids = call('ZRANGE', line(key), 0, limit)
  for i = 1, #ids do
    if ids[i] ~= PAUSED and #reply < tonumber(limit) + 2 then
      reply[#reply + 1] = ids[i]
      if #since < 1000 then since[#since + 1] = call('HGET', P .. ids[i], '${JOB.parkedAt}') end
    end
  end
  return reply
end`;

/**
 * Searches for jobs of a key that do not run, from place `from` to place `to` of one part of the queue. The part is
 * 'wait', 'prioritized' and so on, or 'line' for the key's line.
 *
 * Replies {number of jobs looked at, {ids}, {jobs whose keys JavaScript finds}}. In a part of the queue, jobs in a line
 * are left out.
 */
export const search: string = /* lua */ `function(key, part, from, to)
  if part == 'line' then
    local ids, found = call('ZRANGE', line(key), from, to), {}
    for _, id in ipairs(ids) do
      if id ~= PAUSED and call('EXISTS', P .. id) == 1 then found[#found + 1] = id end
    end
    return {#ids, found, {}}
  end
  local ids = call((part == 'wait' or part == 'paused') and 'LRANGE' or 'ZRANGE', P .. part, from, to)
  local found, unknown = {}, {}
  for _, id in ipairs(ids) do
    local pin, place, refusal, data = unpack(call('HMGET', P .. id, '${JOB.keys}', '${JOB.place}', '${JOB.refusal}', 'data'))
    pin = pin or (data and pinOfData(data))
    if place then
    elseif pin then
      if contended().pinned(pin, key) then found[#found + 1] = id end
    elseif data and not refusal then
      unknown[#unknown + 1] = contended().unknownJob(id)
    end
  end
  return {#ids, found, unknown}
end`;

/** Takes removed jobs of a key, given as a list of IDs, out of the key's line. The key continues without them. */
export const removed: string = /* lua */ `function(key)
  for _, id in ipairs(argumentsAfter(1)) do
    if call('EXISTS', P .. id) == 0 then call('ZREM', line(key), id) end
  end
  contended().heal(key)
  contended().await(key)
  return 1
end`;

/**
 * Begins a sweep over the keys that no worker asks for. Replies the cursor at which the last sweep ended. Replies false
 * if there is no key, or if a sweep was made in the last `everyMs` ms, unless `inAnyCase` is '1'.
 */
export const beginSweep: string = /* lua */ `function(everyMs, inAnyCase)
  if call('EXISTS', HOLDERS) == 0 then return false end
  local now = contended().redisMs()
  local last, cursor = string.match(call('GET', P .. 'lane:sweep') or '', '^(%d+) ?(%d*)$')
  last = tonumber(last)
  if inAnyCase ~= '1' and last and last <= now and now - last < tonumber(everyMs) then return false end
  cursor = cursor and cursor ~= '' and cursor or '0'
  call('SET', P .. 'lane:sweep', string.format('%.0f ', now) .. cursor, 'PX', 10 * everyMs)
  return cursor
end`;

/**
 * Sweeps over a page of keys: a key whose holder is gone passes to its next job, or is forgotten. `everyMs` is as for
 * `beginSweep`. Replies the next cursor.
 *
 * `isLast` is '1' for the last page of a sweep: the next sweep continues after it. A worker that dies before its last
 * page leaves all of its pages to the next worker.
 */
export const sweep: string = /* lua */ `function(cursor, count, everyMs, isLast)
  local page = call('HSCAN', HOLDERS, cursor, 'COUNT', count)
  for i = 1, #page[2], 2 do
    local key = page[2][i]
    -- A key that cannot be passed on must not stop the sweep.
    if string.byte(key, -1) ~= 31 then quietly(contended().heal, key) end
  end
  if isLast == '1' or page[1] == '0' then
    call('SET', P .. 'lane:sweep', string.format('%.0f ', contended().redisMs()) .. page[1], 'PX', 10 * everyMs)
  end
  return page[1]
end`;

/**
 * Replies at most `most` jobs in line for the only key of a running job, for the processor call of this job. Each entry
 * is {id, place, fields}. `token` is the token of BullMQ's lock of the running job.
 *
 * The list ends before the first job that the call may not handle. This is a job with several keys, one that waits for
 * its lock, or one that does not run.
 */
export const gather: string = /* lua */ `function(id, token, most)
  most = tonumber(most)
  local reply, pin = {}, call('HGET', P .. id, '${JOB.keys}')
  local isOurs = hasKeys(pin) and isSingle(pin) and call('HGET', HOLDERS, pin) == id and call('GET', P .. id .. ':lock') == token
  if not isOurs or most < 1 then return reply end
  -- No slot is free, so no worker has looked at the jobs in the queue. Fifty jobs are parked at a time, until enough
  -- jobs are in line.
  for _ = 1, most, 50 do
    parkedHere = 0
    if not quietly(contended().sift) or call('ZCARD', line(pin)) >= most then break end
  end
  for index = 0, most do
    local other = contended().jobAt(pin, index)
    if not other then break end
    if other ~= PAUSED then
      local fields, facts = call('HGETALL', P .. other), {}
      for j = 1, #fields, 2 do facts[fields[j]] = fields[j + 1] end
      if facts.${JOB.keys} ~= pin or facts.${JOB.refusal} or facts.${JOB.lockPlace} or facts.${JOB.outcome} or facts.${BULL.deferredFailure} or #reply == most then break end
      reply[#reply + 1] = {other, facts.${JOB.place}, fields}
    end
  end
  return reply
end`;

/**
 * Stores the outcomes that a processor call has set for jobs in line, given as a list of ID, place and outcome. `id` is
 * the call's own job, and `token` the token of BullMQ's lock of this job.
 *
 * Replies the IDs of the jobs that have left their places. Replies false if the call does not count, because its own
 * job no longer belongs to the worker.
 */
export const settle: string = /* lua */ `function(id, token)
  local pin = call('HGET', P .. id, '${JOB.keys}')
  local isOurs = hasKeys(pin) and call('HGET', HOLDERS, pin) == id and call('GET', P .. id .. ':lock') == token
  if not isOurs then return false end
  local gone, settled = {}, argumentsAfter(2)
  for i = 1, #settled, 3 do
    local other, expected, outcome = settled[i], settled[i + 1], settled[i + 2]
    local keys, place, refusal = unpack(call('HMGET', P .. other, '${JOB.keys}', '${JOB.place}', '${JOB.refusal}'))
    if keys == pin and place == expected and not refusal then call('HSET', P .. other, '${JOB.outcome}', outcome)
    else gone[#gone + 1] = other end
  end
  return gone
end`;

/**
 * Replies for each ID of a list why the job must not run, or not again, as a pin. Replies '' for a job that may run.
 */
export const notes: string = /* lua */ `function()
  local reply = {}
  for i, id in ipairs(argumentsAfter(0)) do
    local refusal = call('HGET', P .. id, '${JOB.refusal}')
    reply[i] = refusal and BAD .. refusal or ''
  end
  return reply
end`;

/**
 * Cancels a job. `note` is JSON, see `Cancellation`, and `message` the reason of the job's failure. `doesFail` is '1'
 * if a job that does not run is to fail now. Otherwise the caller removes the job.
 *
 * Replies {what was found, pin}. The first element is 'running', 'parked', 'waiting', or 'unknown' for a job that does
 * not exist or has ended. From now on the job can only fail: a running job when its processor has settled, and the next
 * job of a job scheduler at its time, because the worker that takes this job adds the following one.
 *
 * Runs in a script with `finish`, see `composeScripts`.
 */
export const cancel: string = /* lua */ `function(id, note, message, doesFail)
  local fields, place, pin, scheduler, startedOn = unpack(call('HMGET', P .. id, 'opts', '${JOB.place}', '${JOB.keys}', 'rjk', 'processedOn'))
  local state = fields and stateOf(id) or 'unknown'
  if state == 'unknown' or state == 'completed' or state == 'failed' then return {'unknown', ''} end
  local why, found = BAD .. '${CANCELLED}\\31' .. note, place and 'parked' or 'waiting'
  call('HSET', P .. id, '${JOB.refusal}', why)
  if state == 'active' then
    try('PUBLISH', P .. 'lane:notes', id .. '\\31' .. BAD .. why)
    found = 'running'
  elseif scheduler and not startedOn then
    if place then contended().leaveFull(id, pin, why) end
  elseif doesFail == '1' then
    local opts, token, lock = cjson.decode(fields), '${CANCELLED}', P .. id .. ':lock'
    local keep = opts.removeOnFail
    if type(keep) ~= 'table' then keep = {count = tonumber(keep) or (keep == true and 0 or -1)} end
    -- BullMQ's script only ends an active job that the caller has locked. The job has made no attempt.
    call('LPUSH', P .. 'active', id)
    local lists = state == 'waiting' and {'wait', 'paused'} or {state}
    for _, list in ipairs(lists) do
      local old = #lists == 1 and {'ZREM', P .. list, id} or {'LREM', P .. list, 1, id}
      contended().leave(old, {'LREM', P .. 'active', 1, id})
    end
    call('SET', lock, token, 'PX', 30000)
    call('HINCRBY', P .. id, 'atm', -1)
    if place then contended().leaveLines(id, pin) end
    local keys = {
      P .. 'wait', P .. 'active', P .. 'prioritized', P .. 'events', P .. 'stalled', P .. 'limiter', P .. 'delayed',
      P .. 'paused', P .. 'meta', P .. 'pc', P .. 'failed', P .. id, P .. 'metrics:failed', P .. 'marker'
    }
    local packed = {token = token, attempts = opts.attempts or 0, keepJobs = keep, maxMetricsSize = ''}
    finish(keys, {id, NOW, 'failedReason', message, 'failed', startedOn and '0' or 'unstarted', P, packed, '', '', ' '})
  end
  return {found, hasKeys(pin) and pin or ''}
end`;

/** Replies the number of jobs that a free slot would take (0 while the queue is paused), and the number that run. */
export const lengths: string = /* lua */ `function()
  return {runnable(), call('LLEN', P .. 'active')}
end`;

/**
 * Looks at jobs that could start: at most `count` jobs from place `from` of one part of the queue, until their data
 * exceeds 1 MB. Changes nothing. The parts are 'wait' and 'prioritized', in the order in which jobs are taken, 'due',
 * the jobs whose delay has ended, and 'ring', the keys that wait for their turn.
 *
 * Replies {number of entries looked at, number of jobs that only need a worker's slot, {key, free slots, jobs in line
 * that could take them, …}, {pin, number of jobs, …}}. The pins are in the order of their first jobs.
 */
export const runnable: string = /* lua */ `function(part, from, count)
  local lane, reply = contended(), {0, 0, {}, {}}
  if call('HEXISTS', P .. 'meta', 'paused') == 1 then return reply end
  from, count = tonumber(from), tonumber(count)
  local seen = {}
  -- Adds a key to the reply. The jobs in line of a key with several slots may start as well: one at a time is chosen.
  local function look(key)
    if seen[key] then return end
    seen[key] = true
    local free, inLine, taken = 0, 0, 0
    if not lane.pausedFor(key) and not lane.limitedFor(key) then
      for _, id in ipairs(lane.holdersOf(key)) do
        if id ~= '' and lane.holds(id, key) then taken = taken + 1 end
      end
      free = math.max(0, lane.capacity(key) - taken)
      local counted, max = string.match(rateOf(key), '^(%d+),(%d+)')
      if counted then free = math.min(free, max - counted) end
      local waiting = call('ZCARD', line(key))
      if waiting > 0 and not lane.isShared(key) then free = 0 elseif free > 0 then inLine = waiting end
    end
    local keys = reply[3]
    keys[#keys + 1], keys[#keys + 2], keys[#keys + 3] = key, free, inLine
  end
  if part == 'ring' then
    if not ROTATE then return reply end
    local ring = P .. 'lane:ring'
    for _, key in ipairs(call('ZRANGE', ring, from, from + count - 1)) do
      reply[1] = reply[1] + 1
      if not lane.pausedFor(key) and not lane.limitedFor(key) then
        firstSlot(key)
        if lane.isShared(key) then look(key) else reply[2] = reply[2] + 1 end
      end
    end
    return reply
  end
  local ids
  if part == 'wait' then
    local page = call('LRANGE', P .. 'wait', -from - count, -from - 1)
    ids = {}
    for i = #page, 1, -1 do ids[#ids + 1] = page[i] end
  elseif part == 'prioritized' then ids = call('ZRANGE', P .. 'prioritized', from, from + count - 1)
  else ids = call('ZRANGEBYSCORE', P .. 'delayed', '-inf', '(' .. string.format('%.0f', (tonumber(NOW) + 1) * 4096), 'LIMIT', from, count) end
  local bytes, jobsOf, pins = 0, {}, {}
  for _, id in ipairs(ids) do
    if bytes > 1000000 then break end
    reply[1] = reply[1] + 1
    local pin, place, refusal, outcome, data = unpack(call('HMGET', P .. id, '${JOB.keys}', '${JOB.place}', '${JOB.refusal}', '${JOB.outcome}', 'data'))
    bytes = bytes + (data and #data or 0)
    -- BullMQ's marker is not a job, and a parked job that is due waits for its key.
    if string.sub(id, 1, 2) == '0:' or (place and part == 'due') then
    else
      local isStored = pin
      pin = pin or (data and pinOfData(data))
      if refusal or outcome or not hasKeys(pin) then reply[2] = reply[2] + 1
      else
        local keys = not jobsOf[pin] and lane.keysOf(pin) or {}
        -- A job that was chosen has its keys.
        local hasAll, isClosed = isStored and lane.slotOf(id, lane.keysOf(pin)[1]), false
        if hasAll then
          keys = lane.keysOf(pin)
          for i = 1, #keys do
            isClosed = isClosed or not lane.slotOf(id, keys[i]) or lane.pausedFor(keys[i]) or lane.limitedFor(keys[i])
            if lane.isShared(keys[i]) then look(keys[i]) end
          end
          if not isClosed then reply[2] = reply[2] + 1 end
        else
          for i = 1, #keys do look(keys[i]) end
          if not jobsOf[pin] then jobsOf[pin], pins[#pins + 1] = 0, pin end
          jobsOf[pin] = jobsOf[pin] + 1
        end
      end
    end
  end
  for i, pin in ipairs(pins) do reply[4][2 * i - 1], reply[4][2 * i] = pin, jobsOf[pin] end
  return reply
end`;

/** Sets a mark. Another connection that finds the mark reaches the same database. Replies the Redis key of the mark. */
export const mark: string = /* lua */ `function(name)
  local key = P .. 'lane:mark=' .. name
  call('SET', key, 1, 'PX', 10000)
  return key
end`;

/** Stores the report of a worker, as `exchange` does. Costs the same for any number of workers and jobs. */
export const report: string = /* lua */ `function(worker, text, lifeMs)
  local isNew = call('HSET', P .. 'lane:workers', worker, call('TIME')[1] .. ' ' .. text) == 1
  if isNew then call('PEXPIRE', P .. 'lane:workers', lifeMs) end
  return 1
end`;

/**
 * Stores the report of a worker, which stays for `lifeMs` ms, and reads the reports of all workers. The hash P
 * lane:workers contains each report with the second in which it was stored. If `setup` is '', the worker is removed, or
 * only reads.
 *
 * Replies {reports, {IDs of stray jobs}, whether the queue is watched}; see `reports` in operate.lua.ts. A stray job
 * runs in a worker that is not
 * registered, and does not have its keys. At most 100 jobs of unregistered workers are checked, among the first 1000
 * active jobs.
 *
 * `rules` are the rules of the worker, as JSON. A worker stores its rules when it joins, and when the worker that
 * stored the present rules is gone. Operators follow the stored rules, which remain after the last worker.
 *
 * BullMQ's workers lock their jobs with `<id of the worker>:<number>`. A caller that fetches jobs by hand may use any
 * token.
 */
export const exchange: string = /* lua */ `function(worker, setup, lifeMs, rules)
  local workers, life = P .. 'lane:workers', tonumber(lifeMs)
  local seconds = tonumber(call('TIME')[1])
  local isNew = false
  if setup == '' then call('HDEL', workers, worker) else
    isNew = call('HSET', workers, worker, seconds .. ' ' .. setup) == 1
    call('PEXPIRE', workers, life)
  end
  local isMember, isHeard = {}, {}
  local members = call('HGETALL', workers)
  for i = 1, #members, 2 do
    local seen = tonumber(string.match(members[i + 1], '^%d+'))
    isHeard[members[i]] = seconds - seen <= ${GONE_SECONDS}
    if (seconds - seen) * 1000 > life then call('HDEL', workers, members[i]) else isMember[members[i]] = true end
  end
  if setup ~= '' then
    local owner = string.match(call('GET', P .. 'lane:rules') or '', '^(%S*) ')
    if isNew or not owner or not isHeard[owner] then call('SET', P .. 'lane:rules', worker .. ' ' .. rules) end
  end
  local function hasSlot(id, key)
    if call('HGET', HOLDERS, key) == id then return true end
    for _, other in ipairs(call('HVALS', furtherSlots(key))) do
      if other == id then return true end
    end
  end
  local function isStray(id)
    local pin, data = unpack(call('HMGET', P .. id, '${JOB.keys}', 'data'))
    if not pin then
      pin = data and pinOfData(data)
      if data and not pin then return true end
    end
    for _, key in ipairs(hasKeys(pin) and contended().keysOf(pin) or {}) do
      if not hasSlot(id, key) then return true end
    end
    return false
  end
  local strays, foreign = {}, 0
  for _, id in ipairs(call('LRANGE', P .. 'active', 0, 999)) do
    local owner = workerOf(id)
    if #owner == 36 and not isMember[owner] and foreign < 100 then
      foreign = foreign + 1
      if isStray(id) then strays[#strays + 1] = id end
    end
  end
  return {reports(), strays, call('HEXISTS', HOLDERS, WATCH)}
end`;
