/**
 * Turns of keys, with the option `between: "rotate"`. A part of the lane library, see lane.lua.ts. Without the option,
 * this part is left out.
 *
 * - `P lane:ring`: zset of the keys that have a job in line and a free slot, in the order of their turns. A new key
 *   joins behind all others, at the next whole number. A key with a weight keeps its place for the number of starts in
 *   its weight, and counts the starts in the fraction.
 * - `P lane:chosen`: also contains the job of the present turn, under a name that no key has. The job is in `wait`
 *   until it is taken, so BullMQ sees that there is work. Then the next job is chosen.
 * - The field JOB.turn of a job: the place in the ring and the key. Exists while the turn of the key continues after
 *   the job. The end of the job passes the key to the next job of the key, as without rotation.
 *
 * A job whose key is free is taken immediately only if no other key has its turn first. If another key has, the job
 * joins the line.
 */
import { JOB } from "./rules/job-fields.ts";

/** Defined before the function that gives a key to the first in line. */
export const ring: string = /* lua */ `
  local RING, TURN = P .. 'lane:ring', '\\31'
  -- The number of starts that a place in the ring can count.
  local MOST_OF_TURN = 128
  local turn, parkAhead, othersGoFirst
  -- The job that this script last chose.
  local chosenHere

  -- Reports whether the job of the present turn still waits to be taken.
  local function isTurnOpen()
    local id = call('HGET', CHOSEN, TURN)
    if not id or call('EXISTS', P .. id .. ':lock') == 1 then return false end
    local pin = call('HGET', P .. id, '${JOB.keys}')
    local key = hasKeys(pin) and keysOf(pin)[1]
    return key and slotOf(id, key) and holds(id, key) and not call('ZSCORE', P .. 'delayed', id)
  end

  -- Reports whether a new job would pass jobs that wait for a turn.
  local function othersWait()
    return call('EXISTS', RING) == 1 or isTurnOpen()
  end

  local function isRunnable(id, pin)
    for _, key in ipairs(keysOf(pin)) do
      if not slotOf(id, key) then return false end
    end
    return true
  end

  -- Adds a key with a job in line and a free slot to the ring. \`place\`: where the turn of the key continues.
  local function joinRing(key, place)
    local last = place or call('ZREVRANGE', RING, 0, 0, 'WITHSCORES')[2] or 0
    call('ZADD', RING, 'NX', place or string.format('%.0f', math.floor(tonumber(last)) + 1), key)
  end

  -- Returns the number of starts in a turn of the key.
  local function weightOf(key)
    local policy = policyOf(key)
    return policy and policy.weight or WEIGHTS[key] or 1
  end

  -- Stores with a job that starts where the turn of its key continues, if the turn has starts left.
  local function noteTurn(id, key, place)
    local turnOf = math.floor(place)
    local started = (place - turnOf) * MOST_OF_TURN + 1
    if started < weightOf(key) then
      call('HSET', P .. id, '${JOB.turn}', string.format('%.17g %s', turnOf + started / MOST_OF_TURN, key))
    end
  end

  -- Returns where the turn of the key continues after this job, once.
  local function placeAfter(id, key, turnText)
    turnText = turnText or call('HGET', P .. id, '${JOB.turn}')
    if not turnText then return end
    call('HDEL', P .. id, '${JOB.turn}')
    local place, whose = string.match(turnText, '^(%S+) (.*)$')
    return whose == key and place or nil
  end
`;

/** Defined after all functions that a turn needs. */
export const turns: string = /* lua */ `
  -- Largest number of jobs that are passed because they cannot be parked, when the lane looks ahead.
  local MOST_PASSED = 5

  -- Returns the pin and the keys of a job that may wait in line, its place and priority for park, and the content
  -- of the first slot of its only key. Returns nil for a job without keys or with unknown keys, for a job that already has its keys, and
  -- for a job that must not run. For a job whose line is full, or with a key in \`passedOf\`, returns nil and the keys.
  local function parkable(id, passedOf)
    local place, priority, stored, data, refusal, outcome, firstFailure = unpack(call('HMGET', P .. id,
      '${JOB.place}', 'priority', '${JOB.keys}', 'data', '${JOB.refusal}', '${JOB.outcome}', '${JOB.firstFailure}'))
    if refusal or outcome then return end
    local pin = stored or (data and pinOfData(data))
    if not hasKeys(pin) then return end
    if not stored then disown(id, pin) end
    local keys, known = keysOf(pin), nil
    if isSingle(pin) then known = firstSlot(pin) end
    for i = 1, #keys do
      if known == id or ((known == nil or isShared(keys[i])) and slotOf(id, keys[i])) then return end
    end
    if place then return pin, keys, place, priority, known end
    -- A retry that is older than a job in line gives way when it is taken.
    if LATEST and firstFailure and newerThan(pin, firstFailure) then return end
    for i = 1, passedOf and #keys or 0 do
      if passedOf[keys[i]] then return nil, keys end
    end
    if fullKey(keys) then return nil, keys end
    return pin, keys, place, priority, known
  end

  -- Reports whether the next job of a key, at the end of the current job, would pass other jobs. A job at the front of
  -- the queue that is not in a line counts: the job has no key, has its keys, or must not run.
  function othersGoFirst()
    if othersWait() then return true end
    if isAlone() then return false end
    local id = call('LINDEX', P .. 'wait', -1) or call('ZRANGE', P .. 'prioritized', 0, 0)[1]
    local pin, keys = parkable(id)
    return not pin and not keys
  end

  -- Lets one job without a key, or with unknown keys, go before the job that was just chosen. A job of this kind that
  -- the command has taken is the one.
  local function letOneGoFirst(id)
    local front = call('LRANGE', P .. 'wait', -2, -1)
    if front[#front] ~= id then return end
    local other, isUrgent = front[1], false
    if other == id then other, isUrgent = call('ZRANGE', P .. 'prioritized', 0, 0)[1], true end
    if not other or parkable(other) or (FETCHED and not parkable(FETCHED)) then return end
    if isUrgent then unprioritize(other) else toFront(P .. 'wait', other, -1) end
  end

  -- Chooses the job whose turn has come, unless a job is already chosen. Returns the job's ID.
  function turn()
    if isTurnOpen() then return end
    for _ = 1, BATCH do
      local head = call('ZPOPMIN', RING)
      local key = head[1]
      if not key then
        call('HDEL', CHOSEN, TURN)
        return
      end
      local id = not isBusy(key, holderOf(key)) and advance(key, nil, true)
      if id then
        call('HSET', CHOSEN, TURN, id)
        chosenHere = id
        noteTurn(id, key, tonumber(head[2]))
        letOneGoFirst(id)
        return id
      end
    end
    -- The next command continues.
    call('HDEL', CHOSEN, TURN)
    call('ZADD', P .. 'marker', 0, '0')
    isClaimed = false
  end

  -- Parks jobs at the front of the queue even if their keys are free, so that the keys get a turn. Returns whether more
  -- such jobs may follow.
  local function parkFront()
    -- The keys of jobs that were passed because a line was full. The line may have room again, because jobs leave lines
    -- in the meantime. A later job with such a key is also passed, because the later job must not join the line first.
    local passed, passedOf = 0, {}
    local function tryToPark(id, list)
      local pin, keys, place, priority, known
      if id ~= chosenHere then pin, keys, place, priority, known = parkable(id, passedOf) end
      if not pin then
        if keys then passedOf[keys[1]] = true end
        -- After a job with several keys, a later job may have another of these keys and must wait for the first job.
        passed = passed + (keys and #keys > 1 and MOST_PASSED or 1)
        return
      end
      local free, isFirst, isMoved, left = mayRun(id, keys, known, not place)
      if isMoved and isRunnable(id, pin) then return end
      local old = list == 'wait' and {'LREM', P .. 'wait', -1, id} or {'ZREM', P .. 'prioritized', id}
      park(id, pin, isFirst, left, function(back) leave(old, back) end, place, priority)
      parkedHere = parkedHere + 1
      for i = 1, free and #keys or 0 do
        -- If no job had the key, park has marked it.
        if known ~= false then mark(keys[i], NEXT) end
        joinRing(keys[i])
      end
    end
    local ids = call('LRANGE', P .. 'wait', -BATCH - MOST_PASSED, -1)
    for i = #ids, 1, -1 do
      if parkedHere >= BATCH then return true end
      if passed >= MOST_PASSED then return false end
      if string.sub(ids[i], 1, 2) ~= '0:' then tryToPark(ids[i], 'wait') end
    end
    if #ids == BATCH + MOST_PASSED then return true end
    ids = call('ZRANGE', P .. 'prioritized', 0, BATCH - 1)
    for i = 1, #ids do
      if parkedHere >= BATCH then return true end
      if passed >= MOST_PASSED then return false end
      tryToPark(ids[i], 'prioritized')
    end
    return #ids == BATCH
  end

  -- The turn is chosen once, after all these jobs have joined their lines.
  function parkAhead()
    local before = parkedHere
    local isMore = quietly(parkFront)
    if parkedHere > before then turn() end
    return isMore
  end
`;

/** The names of both parts, for a lane without the option. */
export const noRing =
  "local joinRing, turn, othersWait, placeAfter, isRunnable, parkAhead, isTurnOpen, noteTurn, othersGoFirst";
