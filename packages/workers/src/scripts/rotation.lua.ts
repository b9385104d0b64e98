/**
 * Whose turn it is, with the option `between: "rotate"`. It is a part of the lane library, see lane.lua.ts, and is not
 * there without the option.
 *
 * - `P lane:ring` is a zset of keys that have somebody in line and a free slot, in the order of their turns. A key that
 *   comes goes behind all others, to the next whole number. One with a weight stays there for as many starts, and
 *   counts them in the fraction.
 * - `P lane:chosen` has the job of the present turn, under a name that no key has. It stands in `wait` until it is
 *   taken, and then the next one is chosen. So BullMQ sees that there is something to do.
 * - A job's hash gets `lt` while its key's turn goes on after it: the place in the ring, and the key. Its end hands the
 *   key to the next job of it, as without rotation.
 *
 * A job whose key is free is taken at once only if no key has its turn before. Otherwise it stands in line.
 */
import { JOB } from "./rules/job-fields.ts";

/** Defined before the function that gives a key to the first in line. */
export const ring: string = /* lua */ `
  local RING, TURN = P .. 'lane:ring', '\\31'
  -- Starts of one turn that a place in the ring can count.
  local MOST_OF_TURN = 128
  local turn, seeAhead, othersGoFirst
  -- The job that this script last chose.
  local chosenHere

  -- Was a job chosen that still waits to be taken?
  local function isTurnOpen()
    local id = call('HGET', CHOSEN, TURN)
    if not id or call('EXISTS', P .. id .. ':lock') == 1 then return false end
    local pin = call('HGET', P .. id, '${JOB.keys}')
    local key = hasKeys(pin) and keysOf(pin)[1]
    return key and slotOf(id, key) and holds(id, key) and not call('ZSCORE', P .. 'delayed', id)
  end

  -- Would a job that comes now pass others?
  local function othersWait()
    return call('EXISTS', RING) == 1 or isTurnOpen()
  end

  local function isRunnable(id, pin)
    for _, key in ipairs(keysOf(pin)) do
      if not slotOf(id, key) then return false end
    end
    return true
  end

  -- The key has somebody in line, and a free slot. \`place\`: where its turn goes on.
  local function enter(key, place)
    local last = place or call('ZREVRANGE', RING, 0, 0, 'WITHSCORES')[2] or 0
    call('ZADD', RING, 'NX', place or string.format('%.0f', math.floor(tonumber(last)) + 1), key)
  end

  -- How many starts the turn of the key has.
  local function weightOf(key)
    local policy = policyOf(key)
    return policy and policy.weight or WEIGHTS[key] or 1
  end

  -- The job starts in the turn of the key that has this place: it is to be known where that goes on, if it does.
  local function noteTurn(id, key, place)
    local turnOf = math.floor(place)
    local started = (place - turnOf) * MOST_OF_TURN + 1
    if started < weightOf(key) then
      call('HSET', P .. id, '${JOB.turn}', string.format('%.17g %s', turnOf + started / MOST_OF_TURN, key))
    end
  end

  -- Where the turn of the key goes on after this job, once.
  local function placeAfter(id, key, turnText)
    turnText = turnText or call('HGET', P .. id, '${JOB.turn}')
    if not turnText then return end
    call('HDEL', P .. id, '${JOB.turn}')
    local place, whose = string.match(turnText, '^(%S+) (.*)$')
    return whose == key and place or nil
  end
`;

/** The turns are defined behind all that a turn needs. */
export const turns: string = /* lua */ `
  -- At most so many jobs that cannot be parked are passed when the lane looks ahead.
  local MOST_PASSED = 5

  -- The keys of a job that may stand in line, what park is told of it, and who stands in the first slot of its one key.
  -- Nil for one without keys, with unknown keys, that has its keys already, or that is to be told something. Of one
  -- whose line is full, only its keys; also of one with a key in \`passedOf\`.
  local function parkable(id, passedOf)
    local facts = call('HMGET', P .. id, '${JOB.place}', 'priority', '${JOB.keys}', 'data', '${JOB.refusal}', '${JOB.outcome}', '${JOB.firstFailure}')
    if facts[5] or facts[6] then return end
    local pin = facts[3] or (facts[4] and pinOfData(facts[4]))
    if not hasKeys(pin) then return end
    if not facts[3] then disown(id, pin) end
    local keys, known = keysOf(pin), nil
    if isSingle(pin) then known = firstSlot(pin) end
    for i = 1, #keys do
      if known == id or ((known == nil or isShared(keys[i])) and slotOf(id, keys[i])) then return end
    end
    if facts[1] then return pin, keys, facts, known end
    -- It comes back for its retry as old as it was, and gives way when it is taken.
    if LATEST and facts[7] and newerThan(pin, facts[7]) then return end
    for i = 1, passedOf and #keys or 0 do
      if passedOf[keys[i]] then return nil, keys end
    end
    if fullKey(keys) then return nil, keys end
    return pin, keys, facts, known
  end

  -- Would the next job of a key, at the end of the one before, pass others? Also those at the front of the queue who
  -- stand in no line: they have no key, have their keys, or are to be told something.
  function othersGoFirst()
    if othersWait() then return true end
    if isAlone() then return false end
    local id = call('LINDEX', P .. 'wait', -1) or call('ZRANGE', P .. 'prioritized', 0, 0)[1]
    local pin, keys = parkable(id)
    return not pin and not keys
  end

  -- Of jobs without a key, or whose keys are not known, one goes before the job that was just chosen. If such a one is
  -- taken by this command, that is it.
  local function letOneGoFirst(id)
    local standing = call('LRANGE', P .. 'wait', -2, -1)
    if standing[#standing] ~= id then return end
    local other, isUrgent = standing[1], false
    if other == id then other, isUrgent = call('ZRANGE', P .. 'prioritized', 0, 0)[1], true end
    if not other or parkable(other) or (FETCHED and not parkable(FETCHED)) then return end
    if isUrgent then unprioritize(other) else toFront(P .. 'wait', other, -1) end
  end

  -- Chooses the job whose turn it is, if none is chosen: its id.
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
    -- Whoever asks next goes on.
    call('HDEL', CHOSEN, TURN)
    call('ZADD', P .. 'marker', 0, '0')
    isClaimed = false
  end

  -- Lets jobs at the front of the queue stand in line, whether their keys are free or not: so their keys get a turn. May
  -- there be more?
  local function see()
    -- The keys of jobs that were passed because a line was full. There may be room by now, as jobs leave their lines
    -- while the lane looks. Whoever comes behind with such a key is passed, too, or would stand in line before them.
    local passed, passedOf = 0, {}
    local function look(id, list)
      local pin, keys, facts, known
      if id ~= chosenHere then pin, keys, facts, known = parkable(id, passedOf) end
      if not pin then
        if keys then passedOf[keys[1]] = true end
        -- Whoever comes behind a job with several keys may have another one of them, and waits for it.
        passed = passed + (keys and #keys > 1 and MOST_PASSED or 1)
        return
      end
      local free, isFirst, isMoved, left = mayRun(id, keys, known, not facts[1])
      if isMoved and isRunnable(id, pin) then return end
      local old = list == 'wait' and {'LREM', P .. 'wait', -1, id} or {'ZREM', P .. 'prioritized', id}
      park(id, pin, isFirst, left, function(back) leave(old, back) end, facts)
      parkedHere = parkedHere + 1
      for i = 1, free and #keys or 0 do
        -- Nobody had it: then park has marked it.
        if known ~= false then mark(keys[i], NEXT) end
        enter(keys[i])
      end
    end
    local ids = call('LRANGE', P .. 'wait', -BATCH - MOST_PASSED, -1)
    for i = #ids, 1, -1 do
      if parkedHere >= BATCH then return true end
      if passed >= MOST_PASSED then return false end
      if string.sub(ids[i], 1, 2) ~= '0:' then look(ids[i], 'wait') end
    end
    if #ids == BATCH + MOST_PASSED then return true end
    ids = call('ZRANGE', P .. 'prioritized', 0, BATCH - 1)
    for i = 1, #ids do
      if parkedHere >= BATCH then return true end
      if passed >= MOST_PASSED then return false end
      look(ids[i], 'prioritized')
    end
    return #ids == BATCH
  end

  -- Whether somebody has the turn is asked once, when all of them stand in line.
  function seeAhead()
    local before = parkedHere
    local isMore = quietly(see)
    if parkedHere > before then turn() end
    return isMore
  end
`;

/** Stands in place of both without the option. */
export const noRing =
  "local enter, turn, othersWait, placeAfter, isRunnable, seeAhead, isTurnOpen, noteTurn, othersGoFirst";
