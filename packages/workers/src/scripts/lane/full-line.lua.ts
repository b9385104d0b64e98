/**
 * What happens where as many stand in line as may, or the newest counts only: which jobs do not run, and what they are
 * told. A part of the lane library, see lane.lua.ts.
 */
import { JOB } from "../rules/job-fields.ts";

export const fullLine: string = /* lua */ `
  -- Do as many jobs stand in line for the key as may (\`max\`), and \`more\` beside?
  local function isFull(key, max, more)
    if call('ZCARD', line(key)) - more < max then return false end
    -- A mark whose time is over leaves the line by this, so count only then.
    local mark = pausedFor(key) and 1 or 0
    return call('ZCARD', line(key)) - more - mark >= max
  end

  -- The key, if its line is full, for a job that would stand there next.
  local function fullKey(keys)
    for i = 1, #keys do
      local max, isOldest = lineOf(keys[i])
      if max and not isOldest and isFull(keys[i], max, 0) then return keys[i] end
    end
  end

  -- A job of the very same keys that stands in line and is newer than one that comes back for its retry, if there is
  -- one. age: when that one first failed.
  local function newerThan(pin, age)
    local key = keysOf(pin)[1]
    for index = 0, BATCH do
      local id = standing(key, index)
      if not id then return end
      local facts = id ~= PAUSED and call('HMGET', P .. id, '${JOB.keys}', '${JOB.firstFailure}') or {}
      if facts[1] == pin and (not facts[2] or tonumber(facts[2]) > tonumber(age)) then return id end
    end
  end

  -- For a job that would stand in line next, and does not run: its key, and because of whom.
  local function turnedAway(pin, age)
    local newer = LATEST and age and newerThan(pin, age)
    if newer then return keysOf(pin)[1], newer end
    local full = fullKey(keysOf(pin))
    local holder = full and call('HGET', HOLDERS, full)
    return full, holder and holder ~= PAUSED and holder ~= NEXT and holder or ''
  end

  -- What a job is told that does not run: why, its key, and because of whom.
  local function dropped(key, by)
    return BAD .. (DROPPED or 'backlog') .. '\\31' .. key .. '\\31' .. by
  end

  -- It stands in line no more, and whoever follows may be next.
  local function leaveLines(id, pin)
    for _, key in ipairs(keysOf(pin)) do
      leaveLine(id, key)
      heal(key)
      await(key)
    end
    call('HDEL', P .. id, '${JOB.place}', '${JOB.parkedAt}')
  end

  -- A job that stands in line does not run: it is taken next, to be told why.
  local function leaveFull(id, pin, why)
    call('HSET', P .. id, '${JOB.refusal}', why)
    leaveLines(id, pin)
    promoteToFront(id)
  end

  -- id stands in line: of the others, those that came first do not run, as many as stand there beyond what may.
  local function dropOldest(id, pin, keys)
    for i = 1, #keys do
      local key = keys[i]
      local max, isOldest = lineOf(key)
      local index = isOldest and pausedFor(key) and 1 or 0
      for _ = 1, max and isOldest and BATCH or 0 do
        -- Those that were removed leave the line by this.
        local oldest = isFull(key, max, 1) and standing(key, index)
        local own = oldest and isFull(key, max, 1) and call('HGET', P .. oldest, '${JOB.keys}')
        if not own then break end
        -- Nothing is lost that the newer one is not about.
        if oldest == id or (DROPPED == 'superseded' and own ~= pin) then index = index + 1
        else leaveFull(oldest, own, dropped(key, id)) end
      end
    end
  end

  -- id stands in line: the job that has the very same keys is to stop for it, and does not run again. One that runs is
  -- told. One that waits is taken next.
  local function interrupt(id, pin, keys)
    local holder = INTERRUPTS and call('HGET', HOLDERS, keys[1])
    -- Who has left its line for id may have passed the key on, to id itself.
    if not holder or holder == id or holder == PAUSED or holder == NEXT or not holds(holder, keys[1]) then return end
    local facts = call('HMGET', P .. holder, '${JOB.keys}', '${JOB.refusal}')
    if facts[1] ~= pin then return end
    local why, isNoted = dropped(keys[1], id), facts[2]
    if not isNoted then call('HSET', P .. holder, '${JOB.refusal}', why) end
    if call('EXISTS', P .. holder .. ':lock') == 1 then
      if not isNoted then try('PUBLISH', P .. 'lane:superseded', holder .. '\\31' .. BAD .. why) end
    elseif call('ZSCORE', P .. 'delayed', holder) then
      promoteToFront(holder)
    end
  end
`;
