/**
 * Why no job of a key starts for a while. An operator or a failed job has paused it, or as many have started as may.
 * What operators have said of one key stands before the options. A part of the lane library, see lane.lua.ts.
 */
import { JOB } from "../rules/job-fields.ts";

export const limits: string = /* lua */ `
  -- For how long the key stays paused, in ms; nil if it is not. A pause whose time is over ends here: its mark goes
  -- last, so that one that is half ended is ended again.
  local function pausedFor(key)
    local score = tonumber(call('ZSCORE', line(key), PAUSED) or nil)
    if not score or score == -math.huge then return score and math.huge end
    local left = score + PAUSE_BASE - redisMs()
    if left > 0 then return left end
    if call('HGET', HOLDERS, key) == PAUSED then call('HSET', HOLDERS, key, NEXT) end
    call('HDEL', P .. 'lane:paused', key)
    call('ZREM', line(key), PAUSED)
  end

  -- Why the key is paused; nil if it is not, or if nobody can read it.
  local function pauseOf(key)
    local ok, facts = pcall(cjson.decode, call('HGET', P .. 'lane:paused', key) or '')
    return ok and type(facts) == 'table' and facts or nil
  end

  -- The job whose failure stopped the key.
  local function haltedBy(key)
    local facts = pauseOf(key)
    return facts and facts.jobId
  end

  -- Pauses the key for so many ms, or without end (math.huge). Of two pauses the longer one stays, and what was said
  -- of it. Returns whether the key was not paused before, and when the pause ends.
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

  -- Its failure stops those of its keys that it has. Where an operator has paused one, what he said stays.
  local function halt(id, pin)
    for _, key in ipairs(keysOf(pin)) do
      if call('HGET', HOLDERS, key) == id then
        call('ZADD', line(key), '-inf', PAUSED)
        local facts = pauseOf(key)
        if not facts or facts['until'] then facts = {reason = 'failed', since = tonumber(NOW)} end
        facts.jobId = id
        call('HSET', P .. 'lane:paused', key, cjson.encode(facts))
      end
    end
  end

  local function startsOf(key) return P .. 'lane:starts=' .. string.gsub(key, ':', '\\31') end

  -- Has the call of another job made something of it, so that it does not run?
  local function isSettled(id)
    return call('HEXISTS', P .. id, '${JOB.outcome}') == 1
  end

  local function policyOf(key)
    if POLICIES[key] == nil then firstSlot(key) end
    return POLICIES[key]
  end

  -- How many jobs of the key may run at a time.
  local function slotCount(key)
    local policy = policyOf(key)
    return policy and MAY_SHARE and policy.concurrency or SLOTS
  end

  -- May a job have a further slot of the key? One may as well when there are no more of them than the first.
  local function isShared(key)
    return SLOTS > 1 or (MAY_SHARE and policyOf(key) ~= false)
  end

  -- How many jobs of the key may start, in how many ms; nil if any number may.
  local function rateOf(key)
    local policy = policyOf(key)
    if policy and policy.rate then return policy.rate.max, policy.rate.duration end
    if RATE then return RATE_MAX, RATE_MS end
  end

  -- How many jobs may stand in line for the key, or nil, and whether the first one does not run otherwise.
  local function lineOf(key)
    local policy = MAY_LIMIT and policyOf(key)
    if policy and policy.maxWaiting then
      return policy.maxWaiting.max, MAY_DROP_OLDEST and policy.maxWaiting.drop == 'oldest'
    end
    return LINE_MAX, DROPS_OLDEST
  end

  -- For how many ms no job of the key may start, because as many as may have started, and when that ends; nil if one
  -- may. \`id\`: the job that is to start, if it is known.
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

  -- A start without an id is that of the last job that began when the key had one slot.
  local function uncountStartOf(id, key)
    for _, last in ipairs({0, -1}) do
      for _, start in ipairs(call('LRANGE', startsOf(key), 0, last)) do
        local whose = string.match(start, ' (.*)$')
        if whose == id or not whose then return call('LREM', startsOf(key), 1, start) end
      end
    end
  end
`;
