/**
 * How a job joins its line, and how it returns to a worker. A part of the lane library, see lane.lua.ts.
 */

import { REPLY } from "../command-replies.ts";
import { BULL, JOB } from "../rules/job-fields.ts";

export const parking: string = /* lua */ `
  -- Takes back an attempt that was not started.
  local function uncount(id)
    if call('HINCRBY', P .. id, '${BULL.attemptsStarted}', -1) < 1 then call('HDEL', P .. id, 'processedOn', '${BULL.processedBy}') end
  end

  -- Reports whether BullMQ's limiter has counted this activation. BullMQ 6 does not count a job that it has failed.
  local function isLimited(id, opts)
    if call('PTTL', P .. 'limiter') <= 0 then return false end
    if not COUNTS_FAILED and call('HEXISTS', P .. id, '${BULL.deferredFailure}') == 1 then return false end
    return call('HGET', P .. 'meta', 'max') or cmsgpack.unpack(opts).limiter
  end

  -- Takes back the writes of BullMQ for a start, in the same step.
  local function undoStart(id, opts)
    call('DEL', P .. id .. ':lock')
    uncount(id)
    if isLimited(id, opts) then call('DECR', P .. 'limiter') end
    local event = call('XREVRANGE', P .. 'events', '+', '-', 'COUNT', 1)[1]
    if event and event[2][2] == 'active' and event[2][4] == id then call('XDEL', P .. 'events', event[1]) end
  end

  -- Completes the move of a job that is already in its new place. If the job cannot leave the old place, \`back\`
  -- removes the job from the new place.
  local function leave(old, back)
    local reply = try(unpack(old))
    if not hasFailed(reply) then return end
    call(unpack(back))
    error(reply.err, 0)
  end

  local function leaveActive(id, opts, back)
    leave({'LREM', P .. 'active', 1, id}, back)
    pcall(undoStart, id, opts)
  end

  -- Parks a job. \`leaveOldPlace\` removes the job from its old place; the argument of \`leaveOldPlace\` removes the
  -- job from 'delayed' again. \`left\`: the number of ms after which the first job in line may run.
  local function park(id, pin, isFirst, left, leaveOldPlace, oldPlace, priority)
    local keys = keysOf(pin)
    if priority == nil then oldPlace, priority = unpack(call('HMGET', P .. id, '${JOB.place}', 'priority')) end
    local place = oldPlace or (isFirst and (placeOfChosen(id, keys) or frontPlace(keys)))
    if not place then
      local rankOfPriority = #keys == 1 and tonumber(priority) or 0
      place = string.format('%.0f', rankOfPriority * 4294967296 + call('INCR', P .. 'lane:seq') % 4294967296)
    end
    local rank = 0
    for i = 1, #keys do
      call('ZADD', line(keys[i]), place, id)
      parkedFor[keys[i]] = true
      if #keys > 1 or RATE or ROTATE then call('HSETNX', HOLDERS, keys[i], NEXT) end
      rank = math.max(rank, call('ZRANK', line(keys[i]), id))
    end
    local delay = patience(rank)
    -- In front of the first job there is at most the mark of the pause.
    local isTimed = left and left < math.huge and rank <= 1
    if isTimed then delay = math.min(left, FAR) + 1 end
    call('ZADD', P .. 'delayed', (NOW + delay) * 4096 + tonumber(place) % 4096, id)
    leaveOldPlace({'ZREM', P .. 'delayed', id})
    local by = PARKED_BY .. table.concat(keys, ', ')
    -- A job that is parked again keeps the time, because the job may have received its key since without being taken.
    local isNew = not oldPlace and not isFirst
    local field, since = isNew and '${JOB.parkedAt}' or '${JOB.place}', isNew and NOW or place
    call('HSET', P .. id, 'delay', delay, '${JOB.keys}', pin, '${JOB.place}', place, '${BULL.processedBy}', by, field, since)
    if isFirst then call('HSETNX', P .. id, '${JOB.parkedAt}', NOW) end
    call('XADD', P .. 'events', '*', 'event', 'delayed', 'jobId', id, 'delay', NOW + delay)
    if isTimed then judgeIn(left, id) end
    if isFirst then release(id, pin) elseif not oldPlace then
      dropOldest(id, pin, keys)
      interrupt(id, pin, keys)
    end
  end

  -- Moves the first job in line to the front of the queue, where the next fetch finds the job. Returns the job's ID.
  -- Returns nil if the key needs more work, or if the job must not run or was removed.
  local function putNext(key)
    if not freeSlot(key, false) or limitedFor(key) or isAwaited(key) then return end
    local heads = call('ZRANGE', line(key), 0, 1, 'WITHSCORES')
    local id, following = heads[1], heads[3]
    if not id or id == PAUSED then return end
    local pin, place, finishedOn, refusal, moreKeys, lockPlace = unpack(call('HMGET', P .. id,
      '${JOB.keys}', '${JOB.place}', 'finishedOn', '${JOB.refusal}', '${JOB.moreKeys}', '${JOB.lockPlace}'))
    local isOdd = finishedOn or refusal or moreKeys or lockPlace
    if pin ~= key or tonumber(place or 'x') ~= tonumber(heads[2]) or isOdd then return end
    call('RPUSH', P .. 'wait', id)
    local left = try('ZREM', P .. 'delayed', id)
    if left ~= 1 then
      -- The timer of the job may have fired: the job then waits already, further back.
      surely('LREM', P .. 'wait', -1, id)
      if hasFailed(left) then error(left.err, 0) end
      return
    end
    call('ZREM', line(key), id)
    -- The ID may belong to another job by now.
    if following and tonumber(call('HGET', P .. following, '${JOB.place}') or 'x') == tonumber(heads[4]) then
      call('ZADD', P .. 'delayed', 'XX', (NOW + patience(0)) * 4096, following)
    end
    call('HSET', P .. id, 'delay', 0)
    call('XADD', P .. 'events', '*', 'event', 'waiting', 'jobId', id, 'prev', 'delayed')
    return id
  end

  -- Pauses the keys of a job that BullMQ has moved to 'delayed', for a number of ms. The job goes first after the
  -- pause.
  local function backOff(id, ms)
    uncount(id)
    local pin = call('HGET', P .. id, '${JOB.keys}')
    if not hasKeys(pin) then return end
    local keys = keysOf(pin)
    for i = 1, #keys do
      if slotOf(id, keys[i]) then pause(keys[i], ms, 'backed off by job ' .. id) end
    end
    local place = frontPlace(keys)
    for i = 1, #keys do call('ZADD', line(keys[i]), place, id) end
    call('HSET', P .. id, '${JOB.place}', place, '${BULL.processedBy}', PARKED_BY .. table.concat(keys, ', '), '${JOB.parkedAt}', NOW)
    release(id, pin)
  end

  -- Returns a job that was not fetched to its place in line.
  local function takeBack(id, key)
    park(id, key, false, nil, function(back) leave({'LREM', P .. 'wait', -1, id}, back) end)
  end

  -- Reports whether the end of this key's job is likely to bring the key's next job. The worker then requests the lock
  -- of the next job ahead, unless scripts acquire the locks.
  local function isFollowed(pin)
    return TOKEN == '' and isSingle(pin) and isAlone() and call('EXISTS', line(pin)) == 1
  end

  -- Gives the key to the job that putNext moved to the front and BullMQ's own fetch has brought. \`turnText\`: where
  -- the turn of the key continues.
  local function claimNext(id, key, reply, turnText)
    call('HSET', HOLDERS, key, id)
    local fields, outcome, by, since, isOver = reply[1], nil, nil, nil, false
    for i = 1, #fields, 2 do
      if fields[i] == '${JOB.outcome}' then outcome = fields[i + 1]
      elseif fields[i] == '${JOB.parkedAt}' then since = fields[i + 1]
      elseif fields[i] == '${BULL.deferredFailure}' then isOver = true
      elseif fields[i] == '${BULL.processedBy}' and isParkedBy(fields[i + 1]) then by = i end
    end
    if by then
      table.remove(fields, by)
      table.remove(fields, by)
    end
    call('HDEL', P .. id, '${JOB.place}', '${JOB.parkedAt}', by and '${BULL.processedBy}' or '${JOB.place}')
    if not outcome and not isOver then countStart(id, key) end
    isClaimed = true
    if ROTATE then
      if turnText then noteTurn(id, key, tonumber(string.match(turnText, '^%S+'))) end
      quietly(parkAhead)
    end
    reply[${REPLY.pin}] = key
    reply[${REPLY.parked}] = parkedHere - parkedBefore
    reply[${REPLY.unknown}], reply[${REPLY.lockPlace}], reply[${REPLY.slots}] = false, false, false
    reply[${REPLY.isFollowed}] = isFollowed(key)
    reply[${REPLY.outcome}] = outcome or false
    reply[${REPLY.parkedAt}] = since or false
    return true
  end

  local function putBack(id, opts)
    local priority = tonumber(call('HGET', P .. id, 'priority')) or 0
    if priority == 0 then
      call('RPUSH', P .. 'wait', id)
      leaveActive(id, opts, {'RPOP', P .. 'wait'})
    else
      call('ZADD', P .. 'prioritized', priority * 4294967296, id)
      leaveActive(id, opts, {'ZREM', P .. 'prioritized', id})
    end
  end

  -- Moves a job that was taken and cannot be judged to 'delayed', without a place in line. The job is judged again
  -- later.
  local function setAside(id, opts)
    for _, active in ipairs(call('LRANGE', P .. 'active', 0, -1)) do
      if active == id then
        call('ZADD', P .. 'delayed', (NOW + NEAR) * 4096, id)
        return leaveActive(id, opts, {'ZREM', P .. 'delayed', id})
      end
    end
  end
`;
