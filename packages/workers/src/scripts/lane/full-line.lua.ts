/**
 * Full lines, and lines in which only the newest job counts: which jobs do not run, and the reason that they receive. A
 * part of the lane library, see lane.lua.ts.
 */
import { JOB } from "../rules/job-fields.ts";

export const fullLine: string = /* lua */ `
  -- Reports whether the line of the key has \`max\` jobs, in addition to \`more\`.
  local function isFull(key, max, more)
    if call('ZCARD', line(key)) - more < max then return false end
    -- The mark of a pause that is over leaves the line here, so the count comes after this.
    local mark = pausedFor(key) and 1 or 0
    return call('ZCARD', line(key)) - more - mark >= max
  end

  -- Returns the first of the keys whose line has no room for a further job.
  local function fullKey(keys)
    for i = 1, #keys do
      local max, isOldest = lineOf(keys[i])
      if max and not isOldest and isFull(keys[i], max, 0) then return keys[i] end
    end
  end

  -- For a job that is back for its retry: returns a newer job in line with exactly the same keys. \`age\`: when the
  -- retried job first failed.
  local function newerThan(pin, age)
    local key = keysOf(pin)[1]
    for index = 0, BATCH do
      local id = jobAt(key, index)
      if not id then return end
      local stored, firstFailure = unpack(id ~= PAUSED and call('HMGET', P .. id, '${JOB.keys}', '${JOB.firstFailure}') or {})
      if stored == pin and (not firstFailure or tonumber(firstFailure) > tonumber(age)) then return id end
    end
  end

  -- For a new job that must not run: returns the key, and the ID of the job because of which the new job does not run.
  -- Returns nil if the new job may wait in line.
  local function turnedAway(pin, age)
    local newer = LATEST and age and newerThan(pin, age)
    if newer then return keysOf(pin)[1], newer end
    local full = fullKey(keysOf(pin))
    local holder = full and call('HGET', HOLDERS, full)
    return full, holder and holder ~= PAUSED and holder ~= NEXT and holder or ''
  end

  -- Formats the refusal of a job that must not run: the reason, the key, and the ID of the job that goes before.
  local function dropped(key, by)
    return BAD .. (DROPPED or 'backlog') .. '\\31' .. key .. '\\31' .. by
  end

  -- Removes a job from its lines. The next job in line may then be allowed to run.
  local function leaveLines(id, pin)
    for _, key in ipairs(keysOf(pin)) do
      leaveLine(id, key)
      heal(key)
      await(key)
    end
    call('HDEL', P .. id, '${JOB.place}', '${JOB.parkedAt}')
  end

  -- Drops a job from its lines. The next fetch takes the job, and its worker ends the job with the reason.
  local function leaveFull(id, pin, why)
    call('HSET', P .. id, '${JOB.refusal}', why)
    leaveLines(id, pin)
    promoteToFront(id)
  end

  -- Called when a job has joined its lines: drops the oldest other jobs that exceed the limit of a line.
  local function dropOldest(id, pin, keys)
    for i = 1, #keys do
      local key = keys[i]
      local max, isOldest = lineOf(key)
      local index = isOldest and pausedFor(key) and 1 or 0
      for _ = 1, max and isOldest and BATCH or 0 do
        -- Removed jobs leave the line here.
        local oldest = isFull(key, max, 1) and jobAt(key, index)
        local own = oldest and isFull(key, max, 1) and call('HGET', P .. oldest, '${JOB.keys}')
        if not own then break end
        -- A job is only superseded by a newer job with the same keys.
        if oldest == id or (DROPPED == 'superseded' and own ~= pin) then index = index + 1
        else leaveFull(oldest, own, dropped(key, id)) end
      end
    end
  end

  -- Called when a job has joined its line: interrupts the job that has exactly the same keys and does not run again. If
  -- the interrupted job runs, its worker is notified. If the job waits, the next fetch takes the job.
  local function interrupt(id, pin, keys)
    if not INTERRUPTS then return end
    local function interruptHolder(holder)
      -- A job that was dropped for the new job may have passed the key on, even to the new job.
      if holder == id or holder == '' or not holds(holder, keys[1]) then return end
      local stored, isNoted = unpack(call('HMGET', P .. holder, '${JOB.keys}', '${JOB.refusal}'))
      if stored ~= pin then return end
      local why = dropped(keys[1], id)
      if not isNoted then call('HSET', P .. holder, '${JOB.refusal}', why) end
      if call('EXISTS', P .. holder .. ':lock') == 1 then
        if not isNoted then try('PUBLISH', P .. 'lane:notes', holder .. '\\31' .. BAD .. why) end
      elseif call('ZSCORE', P .. 'delayed', holder) then
        promoteToFront(holder)
      end
    end
    -- Several jobs have the key if the queue was watched a moment ago.
    for _, holder in ipairs(holdersOf(keys[1])) do interruptHolder(holder) end
  end
`;
