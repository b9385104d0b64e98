/**
 * The jobs in line for a key, and how a slot passes to the first job.
 *
 * `ring` is the part of rotation that belongs here. A part of the lane library, see lane.lua.ts.
 */
import { BULL, JOB } from "../rules/job-fields.ts";

export const line = (ring: string): string => /* lua */ `
  -- Returns the job at this index of the line, or PAUSED. Drops IDs of jobs that were removed or finished by a plain
  -- worker, and IDs that now belong to another job.
  local function jobAt(key, index)
    while true do
      local head = call('ZRANGE', line(key), index, index, 'WITHSCORES')
      local id = head[1]
      if not id or id == PAUSED then return id end
      local pin, place, finishedOn = unpack(call('HMGET', P .. id, '${JOB.keys}', '${JOB.place}', 'finishedOn'))
      if pinned(pin, key) and tonumber(place or 'x') == tonumber(head[2]) and not finishedOn then return id end
      call('ZREM', line(key), id)
    end
  end

  -- Returns the first job in line, or PAUSED.
  local function firstInLine(key)
    local id = jobAt(key, 0)
    if id == PAUSED and not pausedFor(key) then return jobAt(key, 0) end
    return id
  end

  -- Lets a parked job be judged again in \`left\` ms, at most an hour. Workers that wait for the next due job are
  -- notified.
  local function judgeIn(left, id)
    if left == math.huge then return end
    call('ZADD', P .. 'delayed', 'XX', (NOW + math.min(left, FAR) + 1) * 4096, id)
    local soonest = call('ZRANGE', P .. 'delayed', 0, 0, 'WITHSCORES')[2]
    if soonest then call('ZADD', P .. 'marker', math.floor(tonumber(soonest) / 4096), '1') end
  end

  -- Lets the first job in line for a paused key be judged again when the pause ends.
  local function await(key)
    local left = pausedFor(key)
    local id = left and jobAt(key, 1)
    if id then judgeIn(left, id) end
  end

  local function toFront(list, id, from)
    if call('LREM', list, from or 1, id) == 0 then return false end
    if hasFailed(try('RPUSH', list, id)) then call('LPUSH', list, id) end
    return true
  end

  -- Moves a job from 'prioritized' to the front of the queue. BullMQ 5 would replace 'wait' when the queue is resumed.
  local function unprioritize(id)
    local isPaused = MOVES_PAUSED and call('HEXISTS', P .. 'meta', 'paused') == 1
    call('RPUSH', P .. (isPaused and 'paused' or 'wait'), id)
    surely('ZREM', P .. 'prioritized', id)
  end

  local function promoteToFront(id)
    local keys = {P..'delayed', P..'wait', P..'paused', P..'meta', P..'prioritized', P..'active', P..'pc', P..'events', P..'marker'}
    -- The job was in 'delayed', or its timer has fired. In both cases the job is now the last one in the queue, at the
    -- left end of a list.
    bullPromote(keys, {P, id})
    local score = call('ZSCORE', keys[5], id)
    if score and ROTATE then
      -- BullMQ takes the jobs in 'wait' first, and some of these jobs may not have been judged.
      unprioritize(id)
    elseif score then
      call('ZADD', keys[5], math.floor(tonumber(score) / 4294967296) * 4294967296, id)
    elseif not toFront(keys[2], id) then
      toFront(keys[3], id)
    end
  end

  local function leaveLine(id, key)
    if call('ZREM', line(key), id) == 0 then return end
    local following = firstInLine(key)
    if following then call('ZADD', P .. 'delayed', 'XX', (NOW + patience(0)) * 4096, following) end
  end

${ring}

  -- Gives a job all its keys. \`isTaken\`: the job starts now, so the time at which it was parked is removed.
  local function claim(id, pin, keys, isTaken)
    for i = 1, #keys do
      takeSlot(id, keys[i])
      leaveLine(id, keys[i])
    end
    call('HSET', P .. id, '${JOB.keys}', pin)
    local by = call('HGET', P .. id, '${BULL.processedBy}')
    call('HDEL', P .. id, '${JOB.place}', by and isParkedBy(by) and '${BULL.processedBy}' or '${JOB.place}', isTaken and '${JOB.parkedAt}' or '${JOB.place}')
  end

  -- Reports whether the job is the next one on the key: a slot is free, the key is not paused, and the job is first in
  -- line.
  local function isNextOn(id, key)
    local holder = holderOf(key)
    if not hasSlot(id, key, holder) and (isBusy(key, holder) or isAwaited(key)) then return false end
    local head = firstInLine(key)
    return not head or head == id
  end

  -- Gives a free slot of the key to the first job in line. With rotation, the key waits for its turn instead; \`place\`
  -- is the place in the ring where the key's turn continues. Returns the job that may run now, if any.
  local function advance(key, place, isTurn)
    if isAwaited(key) then return mark(key, NEXT) end
    local id = firstInLine(key)
    if not id then
      forget(key)
      return ROTATE and not isTurn and turn() or nil
    end
    if id == PAUSED then
      mark(key, PAUSED)
      await(key)
      return
    end
    local pin = call('HGET', P .. id, '${JOB.keys}')
    local keys = keysOf(pin)
    for i = 1, #keys do
      if keys[i] ~= key and not isNextOn(id, keys[i]) then mark(key, NEXT) return end
    end
    local left
    for i = 1, #keys do left = math.max(left or 0, limitedFor(keys[i], id) or 0) end
    if left > 0 then
      mark(key, NEXT)
      judgeIn(left, id)
      return
    end
    if ROTATE and not isTurn and not isSettled(id) then
      mark(key, NEXT)
      joinRing(key, place)
      return turn()
    end
    claim(id, pin, keys)
    for i = 1, #keys do
      if isWatched() then markOverlaps(keys[i]) end
      if isShared(keys[i]) then call('HSET', CHOSEN, keys[i], id) end
    end
    promoteToFront(id)
    return id
  end

  -- Passes the key on if its holder is gone or a slot is free. \`id\`: the job after which the turn of the key
  -- continues.
  local function heal(key, id, turnText)
    local holder = holderOf(key)
    unmarkOverlaps(key)
    if not holder or isBusy(key, holder) then return end
    return advance(key, ROTATE and id and placeAfter(id, key, turnText) or nil)
  end

  local function release(id, pin, turnText)
    local chosen, freed = nil, {}
    for _, key in ipairs(keysOf(pin)) do
      local holder = SLOTS == 1 and firstSlot(key)
      if isShared(key) then freed[#freed + 1] = leaveSlot(id, key)
      elseif holder == id then chosen = advance(key, ROTATE and placeAfter(id, key, turnText) or nil) or chosen end
    end
    -- After all keys are free, because the next job may need several of these keys.
    for _, key in ipairs(freed) do chosen = heal(key, id, turnText) or chosen end
    return chosen
  end

  -- Returns a place in front of all jobs in line for any of these keys, including later ones.
  local function frontPlace(keys)
    local least = 0
    for i = 1, #keys do
      local heads = call('ZRANGE', line(keys[i]), 0, 1, 'WITHSCORES')
      least = math.min(least, tonumber(heads[heads[1] == PAUSED and 4 or 2] or 0))
    end
    return string.format('%.0f', least - 1)
  end

  -- Returns the place of a job that was given a slot and was not taken: 0. Jobs that were handed out before go in front
  -- of this job if they come back. Returns false if another job has the place 0, because the other job was chosen again
  -- after this job.
  local function placeOfChosen(id, keys)
    for i = 1, #keys do
      if isShared(keys[i]) and call('HGET', CHOSEN, keys[i]) == id then
        return call('ZCOUNT', line(keys[i]), 0, 0) == 0 and '0'
      end
    end
  end
`;
