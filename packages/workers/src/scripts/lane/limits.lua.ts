/**
 * Pauses and rates of keys: why no job of a key starts for a while. An operator or a failed job has paused the key, or
 * its rate is used up. The policy of a key replaces the options. A part of the lane library, see lane.lua.ts.
 */
import { JOB } from "../rules/job-fields.ts";

export const limits: string = /* lua */ `
  -- Returns the number of ms for which the key stays paused; nil if the key is not paused. A pause whose time is over
  -- ends here. The mark of the pause is removed last, so that a half-ended pause is ended again.
  local function pausedFor(key)
    local score = tonumber(call('ZSCORE', line(key), PAUSED) or nil)
    if not score or score == -math.huge then return score and math.huge end
    local left = score + PAUSE_BASE - redisMs()
    if left > 0 then return left end
    if call('HGET', HOLDERS, key) == PAUSED then call('HSET', HOLDERS, key, NEXT) end
    call('HDEL', P .. 'lane:paused', key)
    call('ZREM', line(key), PAUSED)
  end

  -- Returns the stored pause of the key. Nil if the key is not paused, or if the text cannot be read.
  local function pauseOf(key)
    local ok, facts = pcall(cjson.decode, call('HGET', P .. 'lane:paused', key) or '')
    return ok and type(facts) == 'table' and facts or nil
  end

  -- Returns the job whose failure stopped the key.
  local function haltedBy(key)
    local facts = pauseOf(key)
    return facts and facts.jobId
  end

  -- Pauses the key for a number of ms, or without end (math.huge). Of two pauses, the longer one stays with its reason.
  -- Returns whether the key was not paused before, and when the pause ends.
  local function pause(key, ms, reason)
    local left = pausedFor(key)
    local ends = ms < math.huge and redisMs() + ms or nil
    if not left or ms > left then
      call('ZADD', line(key), ends and string.format('%.0f', ends - PAUSE_BASE) or '-inf', PAUSED)
      local facts = {reason = reason, since = tonumber(NOW), ['until'] = ends}
      call('HSET', P .. 'lane:paused', key, cjson.encode(facts))
    end
    return not left, ends
  end

  local slotOf, countEarly

  -- Stops the keys that a failed job has. If an operator has paused a key, the reason of the operator stays.
  local function halt(id, pin)
    for _, key in ipairs(keysOf(pin)) do
      if slotOf(id, key) then
        call('ZADD', line(key), '-inf', PAUSED)
        local facts = pauseOf(key)
        if not facts or facts['until'] then facts = {reason = 'failed', since = tonumber(NOW)} end
        facts.jobId = id
        call('HSET', P .. 'lane:paused', key, cjson.encode(facts))
      end
    end
  end

  local function startsOf(key) return P .. 'lane:starts=' .. string.gsub(key, ':', '\\31') end

  -- Reports whether another job's processor call has set the outcome of the job, so that it does not run.
  local function isSettled(id)
    return call('HEXISTS', P .. id, '${JOB.outcome}') == 1
  end

  local function policyOf(key)
    if POLICIES[key] == nil then firstSlot(key) end
    return POLICIES[key]
  end

  -- Returns the number of jobs of the key that may run at a time.
  local function slotCount(key)
    local policy = policyOf(key)
    return policy and MAY_SHARE and policy.concurrency or SLOTS
  end

  -- Reports whether jobs may have further slots of the key. With a policy, even a key with one slot counts, because its
  -- number of slots may have been higher. A key whose jobs overlap, because the queue is or was watched, also counts.
  local function isShared(key)
    if SLOTS > 1 then return true end
    local policy = policyOf(key)
    return (policy and (MAY_SHARE or policy.overlaps)) or isWatched()
  end

  -- Returns the number of jobs of the key that may run before the next job has to wait.
  local function capacity(key)
    return isWatched() and MOST_WATCHED or slotCount(key)
  end

  -- Returns the number of jobs of the key that may start, and the window in ms. Nil if any number may start.
  local function rateOf(key)
    local policy = policyOf(key)
    if policy and policy.rate then return policy.rate.max, policy.rate.duration end
    if RATE then return RATE_MAX, RATE_MS end
  end

  -- Returns the largest number of jobs in line for the key, or nil, and whether the oldest job is dropped from a full
  -- line.
  local function lineOf(key)
    local policy = MAY_LIMIT and policyOf(key)
    if policy and policy.maxWaiting then
      return policy.maxWaiting.max, MAY_DROP_OLDEST and policy.maxWaiting.drop == 'oldest'
    end
    return LINE_MAX, DROPS_OLDEST
  end

  -- Returns the number of ms for which the rate of the key lets no job start, and when that time ends. Nil if a job may
  -- start. \`id\`: the job that is to start, if it is known.
  local function limitedFor(key, id)
    local max, ms = rateOf(key)
    if not max or (id and isSettled(id)) then return end
    local oldest = call('LINDEX', startsOf(key), max - 1)
    local ends = oldest and tonumber(string.match(oldest, '^%d+')) + ms
    local left = ends and ends - redisMs()
    if not left or left <= 0 then return end
    if id then
      LIMITED = LIMITED or {}
      LIMITED[key] = ends
    end
    return left, ends
  end

  local function countStart(id, pin)
    if isWatched() then quietly(countEarly, id, keysOf(pin)) end
    for _, key in ipairs(keysOf(pin)) do
      local max, ms = rateOf(key)
      if max then
        local start = string.format('%.0f', redisMs())
        call('LPUSH', startsOf(key), isShared(key) and start .. ' ' .. id or start)
        call('PEXPIRE', startsOf(key), ms)
        call('LTRIM', startsOf(key), 0, max - 1)
      end
    end
  end

  -- A start without an ID belongs to the last job that started while the key had one slot.
  local function uncountStartOf(id, key)
    for _, last in ipairs({0, -1}) do
      for _, start in ipairs(call('LRANGE', startsOf(key), 0, last)) do
        local whose = string.match(start, ' (.*)$')
        if whose == id or not whose then return call('LREM', startsOf(key), 1, start) end
      end
    end
  end
`;
