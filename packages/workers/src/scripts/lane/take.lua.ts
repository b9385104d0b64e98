/**
 * How a job that may run becomes the holder of its keys. A part of the lane library, see lane.lua.ts.
 */
import { JOB } from "../rules/job-fields.ts";

export const take: string = /* lua */ `
  -- Called when the keys of a job are first known. A removed job may have had the same ID. The slots of the removed job
  -- pass to the next jobs in line. If the failure of the removed job stopped a key, the new job does not go first.
  local function disown(id, pin)
    for _, key in ipairs(keysOf(pin)) do
      local holder = firstSlot(key)
      local facts = holder == PAUSED and pauseOf(key)
      if facts and facts.jobId == id then
        facts.jobId = nil
        call('HSET', P .. 'lane:paused', key, cjson.encode(facts))
      end
      if (holder == id or isShared(key)) and leaveSlot(id, key) then heal(key) end
    end
  end

  -- Reports whether a job may run now, followed by three facts for a job that may not:
  -- 1. whether it goes first later: it has a key that is paused, limited or has too many jobs, or its failure stopped a
  -- key;
  -- 2. whether a key was passed on to the first job in line, because the holder is gone;
  -- 3. if it is first in line, the number of ms after which it may run at the earliest.
  -- \`known\`: the content of the first slot of the job's only key a moment ago. \`isNew\`: the job is not in a line.
  local function mayRun(id, keys, known, isNew)
    local free, isFirst, isMoved, left = true, false, false, nil
    for i = 1, #keys do
      local key = keys[i]
      local holder = holderOf(key, known)
      local closed
      if hasSlot(id, key, holder) then
        closed = pausedFor(key) or limitedFor(key, id)
        if closed or isOver(id, key) then free, isFirst = false, true end
      elseif isBusy(key, holder, isNew) or isAwaited(key) then
        free = false
        isFirst = isFirst or (holder == PAUSED and haltedBy(key) == id)
        closed = holder == PAUSED and pausedFor(key)
      else
        -- A key that no job has has no line.
        local head = (holder or not isNew) and firstInLine(key)
        if head and head ~= id then
          advance(key)
          free, isMoved = false, true
          closed = head == PAUSED and pausedFor(key)
        else
          closed = limitedFor(key, id)
          free = free and not closed
        end
      end
      if closed then left = math.max(left or 0, closed) end
    end
    return free, isFirst, isMoved, left
  end

  -- Takes back the start of a job whose processor was not called, for the keys that the job has. Other jobs may start
  -- instead.
  local function uncountStart(id)
    local pin = call('HGET', P .. id, '${JOB.keys}')
    if not hasKeys(pin) then return end
    for _, key in ipairs(keysOf(pin)) do
      if slotOf(id, key) and rateOf(key) then
        uncountStartOf(id, key)
        if isShared(key) then heal(key) end
      end
    end
  end

  -- A job that was given its keys is taken now: the next job in line may also get a slot.
  local function afterTake(id, keys)
    FETCHED = nil
    for i = 1, #keys do
      if isShared(keys[i]) then
        if call('HGET', CHOSEN, keys[i]) == id then call('HDEL', CHOSEN, keys[i]) end
        if call('EXISTS', line(keys[i])) == 1 then heal(keys[i], id) end
      end
    end
  end

  -- Stores the keys of a job that starts. A job that was parked has them already.
  local function pinTaken(id, pin, since)
    if since then call('HDEL', P .. id, '${JOB.parkedAt}') else call('HSET', P .. id, '${JOB.keys}', pin) end
  end

  -- Makes a job the holder of all its keys, and returns true. If a key is not available, returns false, the place and
  -- time from mayRun, and whether other keys have their turn first. \`since\`: when the job was parked.
  local function take(id, pin, wasParked, since)
    local known
    if ROTATE and isSingle(pin) and not wasParked then known = firstSlot(pin) end
    local isPassing = ROTATE and known ~= id and not isRunnable(id, pin) and not isSettled(id) and othersWait()
    if isSingle(pin) and not wasParked and not isPassing and known ~= id then
      if call('HSETNX', HOLDERS, pin, id) == 1 then
        POLICIES[pin] = false
        local left = limitedFor(pin, id)
        if left then
          call('HDEL', HOLDERS, pin)
          return false, false, left
        end
        pinTaken(id, pin, since)
        return true
      end
      known = firstSlot(pin)
    end
    if known == id and not limitedFor(pin, id) and not pausedFor(pin) and not isOver(id, pin) then
      pinTaken(id, pin, since)
    else
      local keys = keysOf(pin)
      local free, isFirst, _, left = mayRun(id, keys, known)
      if not free then return false, isFirst, left end
      if isPassing then return false, false, nil, true end
      claim(id, pin, keys, true)
    end
    afterTake(id, keysOf(pin))
    -- A job that was chosen has just been taken.
    isClaimed = true
    if ROTATE then turn() end
    return true
  end
`;
