/**
 * Judges a job that BullMQ has taken: the script replies the job with its keys, parks the job, or sets the job aside.
 * Jobs at the front of the queue are judged before BullMQ takes them.
 *
 * `turns` is the part of rotation that belongs here. A part of the lane library, see lane.lua.ts.
 */

import { CANCELLED } from "../../rules/entity-key.ts";
import { REPLY, TAGS } from "../command-replies.ts";
import { BULL, JOB } from "../rules/job-fields.ts";

export const judge = (turns: string): string => /* lua */ `
  -- A job whose keys JavaScript must compute. See \`parseUnknownJobs\` in command-replies.ts.
  local function unknownJob(id)
    return {id, unpack(call('HMGET', P .. id, 'name', 'data', 'timestamp', 'priority', 'parentKey'))}
  end

  -- Returns jobs that will be taken soon and whose keys JavaScript has not computed yet: at most \`limit\` jobs, until
  -- their data exceeds AHEAD_BYTES.
  local function unknownAhead(depth, limit)
    local ids = call('LRANGE', P .. 'wait', -depth, -1)
    local ahead, found, bytes = {}, {}, 0
    for i = #ids, 1, -1 do ahead[#ahead + 1] = ids[i] end
    if #ahead < depth then
      local prioritized = call('ZRANGE', P .. 'prioritized', 0, depth - #ahead - 1)
      for i = 1, #prioritized do ahead[#ahead + 1] = prioritized[i] end
    end
    for i = 1, #ahead do
      if #found >= limit or bytes >= AHEAD_BYTES then break end
      local known = try('HMGET', P .. ahead[i], '${JOB.keys}', '${JOB.refusal}')
      if not known.err and not known[1] and not known[2] then
        local job = unknownJob(ahead[i])
        local data = job[3]
        if data and not pinOfData(data) then
          found[#found + 1] = job
          bytes = bytes + #data
        end
      end
    end
    return found
  end

  -- Parks the jobs at the front of the queue that may not run, before BullMQ activates these jobs. Returns whether more
  -- such jobs may follow. \`ending\`: a pin whose key is about to be free.
  local function sift(ending)
    -- The holders of keys with one slot, so that each holder is checked once.
    local taken = {}
    for _ = parkedHere + 1, BATCH do
      local id, isPlain = call('LINDEX', P .. 'wait', -1), true
      if not id then id, isPlain = call('ZRANGE', P .. 'prioritized', 0, 0)[1], false end
      if not id or string.sub(id, 1, 2) == '0:' then return false end
      local place, priority, stored, data, refusal, firstFailure = unpack(call('HMGET', P .. id,
        '${JOB.place}', 'priority', '${JOB.keys}', 'data', '${JOB.refusal}', '${JOB.firstFailure}'))
      -- The job must not run, and the worker that takes the job receives the reason.
      if refusal then return false end
      local pin = stored or (data and pinOfData(data))
      if not hasKeys(pin) or pin == ending then return false end
      if not stored then disown(id, pin) end
      local free, isFirst, isMoved, left = false, false, false, nil
      if not taken[pin] or taken[pin] == id then
        local known
        if isSingle(pin) then known = firstSlot(pin) end
        free, isFirst, isMoved, left = mayRun(id, keysOf(pin), known, not place)
        if isFirst then taken = {}
        elseif isJob(known) and not (free or isMoved or left or isShared(pin)) then taken[pin] = known end
      end
      if free or (not place and not isFirst and turnedAway(pin, firstFailure)) then return false end
      -- By its ID, because passing a key on may have put another job in front.
      local old = isPlain and {'LREM', P .. 'wait', -1, id} or {'ZREM', P .. 'prioritized', id}
      park(id, pin, isFirst, left, function(back) leave(old, back) end, place, priority)
      parkedHere = parkedHere + 1
    end
    return true
  end

${turns}

  local function activeKeys()
    return {P..'wait', P..'active', P..'prioritized', P..'events', P..'stalled', P..'limiter', P..'delayed', P..'paused', P..'meta', P..'pc', P..'marker'}
  end

  -- Returns the slot numbers of a job in the order of its keys. False if all numbers are 0.
  local function slotsOf(id, pin)
    if not hasKeys(pin) then return false end
    local numbers = {}
    for i, key in ipairs(keysOf(pin)) do numbers[i] = isShared(key) and slotOf(id, key) or 0 end
    local text = table.concat(numbers, ',')
    return string.find(text, '[1-9]') and text or false
  end

  -- Returns the reply for a job that BullMQ has taken; nil if the job was parked.
  local function judge(reply, opts)
    local id, fields = reply[2], reply[1]
    local pin, data, fault, isMark, wasParked, place, isOver, outcome, age, since
    for i = 1, #fields, 2 do
      local field = fields[i]
      if field == '${JOB.keys}' then pin = fields[i + 1]
      elseif field == 'data' then data = fields[i + 1]
      elseif field == '${JOB.refusal}' then fault = fields[i + 1]
      elseif field == '${JOB.place}' then wasParked = true
      elseif field == '${JOB.parkedAt}' then since = fields[i + 1]
      elseif field == '${JOB.lockPlace}' then place = fields[i + 1]
      -- BullMQ fails this job without calling its processor.
      elseif field == '${BULL.deferredFailure}' then isOver = true
      elseif field == '${JOB.outcome}' then outcome = fields[i + 1]
      elseif field == '${JOB.firstFailure}' then age = fields[i + 1]
      elseif field == '${JOB.moreKeys}' then isMark = true end
    end
    if fault then
      -- If the worker dies now, a cancelled job must not run, nor a superseded job after the newer job.
      local remains = string.find(fault, BAD .. 'superseded', 1, true) or string.find(fault, BAD .. '${CANCELLED}', 1, true)
      if not remains then call('HDEL', P .. id, '${JOB.refusal}', '${JOB.parkedAt}') end
      -- The job had backed off.
      if wasParked and hasKeys(pin) then leaveLines(id, pin) end
      pin = BAD .. fault
    else
      local isKnown = pin
      pin = pin or pinOfData(data)
      if not pin then
        putBack(id, opts)
        return {'${TAGS.ask}', unknownAhead(256, 256)}
      end
      if not isKnown and hasKeys(pin) then disown(id, pin) end
    end
    local isOurs, isFirst, left, isPassing, full, by = true, false, nil, false, nil, nil
    if hasKeys(pin) then isOurs, isFirst, left, isPassing = take(id, pin, wasParked, since) end
    if not isOurs then
      if parkedHere >= BATCH then
        putBack(id, opts)
        return {'${TAGS.again}', parkedHere - parkedBefore}
      end
      if not wasParked and not isFirst then full, by = turnedAway(pin, age) end
    end
    if not isOurs and not full then
      park(id, pin, isFirst, left, function(back) leaveActive(id, opts, back) end)
      parkedHere = parkedHere + 1
      if isPassing then
        for _, key in ipairs(keysOf(pin)) do heal(key) end
      end
      return
    end
    if isMark or place then call('HDEL', P .. id, '${JOB.moreKeys}', '${JOB.lockPlace}') end
    reply[${REPLY.pin}] = full and BAD .. dropped(full, by) or pin
    reply[${REPLY.parked}] = parkedHere - parkedBefore
    reply[${REPLY.unknown}] = isMark and unknownAhead(512, 256) or false
    if full then return reply end
    if hasKeys(pin) and not isOver and not outcome then countStart(id, pin) end
    reply[${REPLY.lockPlace}] = place or false
    reply[${REPLY.isFollowed}] = hasKeys(pin) and isFollowed(pin)
    reply[${REPLY.slots}] = slotsOf(id, pin)
    reply[${REPLY.fencingToken}] = not place and lockOf(pin, TOKEN, reply[${REPLY.slots}])
    if outcome or since then reply[${REPLY.outcome}], reply[${REPLY.parkedAt}] = outcome or false, since end
    return reply
  end

  local function fetch(reply, opts)
    while true do
      reply = reply or bullMoveToActive(activeKeys(), {P, NOW, opts})
      if type(reply) == 'table' and type(reply[1]) == 'table' then
        local ok, judged = pcall(judge, reply, opts)
        if not ok then
          setAside(reply[2], opts)
          return {'${TAGS.again}', parkedHere - parkedBefore, whatFailed(judged)}
        end
        if judged and ROTATE and type(judged[1]) == 'table' then
          quietly(parkAhead)
          judged[${REPLY.parked}] = parkedHere - parkedBefore
        end
        if judged then return judged end
        -- A job that cannot be judged ahead is judged again when a fetch takes the job.
        local isMore = quietly(ROTATE and parkAhead or sift)
        local isNext = ROTATE and quietly(isTurnOpen)
        if (isMore or parkedHere >= BATCH) and not isNext then return {'${TAGS.again}', parkedHere - parkedBefore} end
      elseif not ROTATE or not quietly(turn) then
        return reply
      end
      reply = nil
    end
  end
`;
