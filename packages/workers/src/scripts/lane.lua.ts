/**
 * The lane says who may run next on an entity key. It is a library of Lua functions, which `compose.ts` puts before
 * BullMQ's own script texts. It runs inside BullMQ's atomic step, so a job is taken and its keys are claimed at once.
 *
 * It touches these keys, with P = `<prefix>:<queue>:`.
 *
 * - `P lane:holders` is a hash of keys. A key leads to the id of the job that has it, or to one of two marks:
 *   `!:paused`, or `!:next`. With `!:next` the key is free, but the first job in line still waits for another of its
 *   keys. The key with the control character 31 behind it leads to what operators have said of it (JSON, see
 *   setPolicy in operators.lua.ts). The key itself is there as long as that is, so no job takes it without a look.
 * - `P lane:slots=<key>`, where several jobs of a key may run, is a hash of its further slots. The number of each, from
 *   1, leads to the id of the job that has it. `lane:holders` has the key as long as this hash is there.
 * - `P lane:chosen` beside it is a hash of keys: each leads to the job that was given a slot and has not been taken.
 *   The next one in line is chosen when it has, so that they start in order.
 * - `P lane:line=<key>` is a zset of the ids of the jobs in line for the key, by order. `!:paused` is in it in front of
 *   all while the key is paused: at -inf, or at the time at which the pause ends less PAUSE_BASE. Each colon of the key
 *   is the control character 31, which no key has.
 * - `P lane:paused` is a hash of keys, with JSON {reason, since, until, jobId}, for operators only.
 * - `P lane:starts=<key>`, where a key has a rate, is a list of the times of its last starts, at most as many as the
 *   rate allows, the newest first. Where a key may have several slots, each is followed by the id of the job. It
 *   expires when none of them counts any more.
 * - `P lane:seq` counts arrivals in a line.
 * - `P <id>`, BullMQ's hash of a job, gets the fields below.
 * - Of BullMQ's others: `wait`, `prioritized`, `delayed`, `waiting-children`, `active`, `events`, `marker`, `limiter`
 *   and `<id>:lock`.
 *
 * A job's hash gets these fields.
 *
 * - `lk` has the job's keys, which are fixed when it is first taken; it is '' for none.
 * - `ls` is its place in line, and is there as long as it is parked.
 * - `lp` is when it was parked, by the clock of the worker that did it, and is there until it is taken to be run.
 * - `lb` says why its key function failed, or why it is not to run, or not again. Of a job that a newer one has
 *   superseded, it stays until that job has ended.
 * - `la` says that more keys are computed when it is taken.
 * - `lo` is its place in line for its locks.
 * - `lf` is when it first failed, counted as arrivals in a line are: with `whenBusy: "latest"`, it comes back for its
 *   retry as old as it was.
 * - `lr` is what the call of another job has made of it: it is not run, and ends so when it is its turn.
 * - BullMQ's `pb` (processedBy, which dashboards show) says that it is parked.
 *
 * A key belongs to a job until that job is finished, not for a time: a stalled job keeps its key and is run again
 * first. With several slots, the same is true of each, and one line fills them all. A parked job stands in `delayed`,
 * so BullMQ itself brings it back at its time and it is judged again. Whatever happens to a holder (removed, cleaned,
 * obliterated) or to these keys, no job waits for longer than that.
 *
 * What follows P in a name has one colon, and no BullMQ key does but `<id>:lock` and its like. BullMQ refuses ids with
 * one colon. It takes one with two (`lane:line:42`).
 *
 * A script that fails half-way keeps what it did before. So a job that changes its place is added to the new one first,
 * and taken back from there if it cannot leave the old one. A job that cannot be judged is set aside in `delayed`. Once
 * BullMQ has done its part, what goes wrong is told beside its reply. A key left half passed on is passed on when it is
 * next asked for.
 *
 * The following is defined before it, see compose.ts.
 *
 * - `call`, and `try`, which returns an error as a reply.
 * - BAD, hasKeys, isSingle and pinOfData (pin.lua.ts), lockOf and unlock (key-lock.lua.ts), RATE, SLOTS.
 * - LINE_MAX: how many jobs may stand in line for a key, or nil; DROPS_OLDEST and DROPPED: which one does not run
 *   otherwise, and as what.
 * - MAY_SHARE, MAY_LIMIT, MAY_DROP_OLDEST: whether operators may change the number of slots, of those in line, and
 *   which one does not run otherwise.
 * - INTERRUPTS: whether the job that has the key is to stop for a newer one.
 * - In `slowly`, what only a contended key needs: NEAR, FAR, bullPromote and bullMoveToActive.
 *
 * A script defines all its functions anew each time that it is run. Each costs some hundred nanoseconds, more with
 * every local of another function that it uses. So a job whose key is free pays for few.
 */

/**
 * Returns the Lua that says where the queue is, the time, and the token for the lock of the next job's key. The token
 * is '' if that lock is not to be taken here.
 */
export function at(prefix: string, now: string, token = "''"): string {
  return `P, NOW, HOLDERS, CHOSEN, TOKEN, FAULT, FETCHED, LIMITED, parkedBefore = ${prefix}, ${now}, ${prefix} .. 'lane:holders', ${prefix} .. 'lane:chosen', ${token}, nil, nil, nil, parkedHere`;
}

/** Returns the library. `slowly` is what only a contended key needs of what compose.ts defines. */
export const laneLibrary = (
  slowly: string,
  rotation: { readonly ring: string; readonly turns: string },
): string => /* lua */ `
local P, NOW, HOLDERS, CHOSEN, TOKEN, FAULT
-- The job that BullMQ has taken with the command, and that is to be judged.
local FETCHED
-- Keys of which a job that waits may not start, because as many have as may, and until when.
local LIMITED
local PAUSED, NEXT = '!:paused', '!:next'
-- Less than any place in line, and every time that is taken from it is exact.
local PAUSE_BASE = 9000000000000000
-- Jobs that this script has parked, and of these those before the present command.
local parkedHere, parkedBefore = 0, 0
-- The keys for which it has parked jobs, once it needs \`contended\`.
local parkedFor

local function whatFailed(why) return type(why) == 'table' and why.err or tostring(why) end

-- For what follows BullMQ's part of a command, which is done whatever goes wrong now.
local function attempt(step, ...)
  local ok, result = pcall(step, ...)
  if ok then return result end
  FAULT = FAULT or whatFailed(result)
end

-- For what may fail: then it is done in another way, or later.
local function quietly(step, ...)
  local ok, result, more = pcall(step, ...)
  return ok and result, more
end

-- What operators have said of the keys whose first slot this script has read; false: nothing.
local POLICIES = {}

-- Who stands in the key's first slot.
local function firstSlot(key)
  local both = call('HMGET', HOLDERS, key, key .. '\\31')
  POLICIES[key] = both[2] and cjson.decode(both[2])
  return both[1]
end

local function line(key) return P .. 'lane:line=' .. string.gsub(key, ':', '\\31') end

local function furtherSlots(key) return P .. 'lane:slots=' .. string.gsub(key, ':', '\\31') end

-- Everything that only a contended key needs. A function, so that the others do not pay for making it.
local slow
local function contended()
  if slow then return slow end
  parkedFor = {}
${slowly}
  local BATCH, AHEAD_BYTES, PARKED_BY = 50, 1000000, 'nobody yet: waits for key '

  -- Does this stand in 'pb' since the job was parked? BullMQ may have written the name of the worker since.
  local function isParkedBy(by) return string.find(by, PARKED_BY, 1, true) == 1 end

  -- No idle worker is woken for an empty queue.
  local function unmark()
    call('ZREM', P .. 'marker', '0')
    MARKED = nil
  end

  local function hasFailed(reply) return type(reply) == 'table' and reply.err end

  -- Without this command a job would stand in two places, so it is tried once more.
  local function surely(...)
    if hasFailed(try(...)) then call(...) end
  end

  local function keysOf(pin)
    if isSingle(pin) then return {pin} end
    local keys = {}
    for key in string.gmatch(pin, '[^\\31]+') do keys[#keys + 1] = key end
    return keys
  end

  local function pinned(pin, key)
    return pin == key or (pin and string.find('\\31' .. pin .. '\\31', '\\31' .. key .. '\\31', 1, true) ~= nil)
  end

  -- Will this job still give the key back? True of one that is active, stalled, chosen and waiting, or waiting for its
  -- retry; not of one in line, which has the id of an earlier holder, nor of one that a plain worker sent away without
  -- giving up its key.
  local function holds(id, key)
    local facts = call('HMGET', P .. id, 'lk', 'finishedOn', 'ls', 'lo')
    return pinned(facts[1], key) and not facts[2] and not facts[3]
      -- BullMQ's lock: it is active, so it stands nowhere else.
      and (call('EXISTS', P .. id .. ':lock') == 1 or not call('ZSCORE', P .. 'waiting-children', id)
        and (not SKIP or facts[4] or not call('ZSCORE', P .. 'delayed', id)))
  end

  -- The time of Redis, which all workers share: a pause and a limit hold whatever their own clocks say.
  local function redisMs()
    local time = call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
  end

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

  -- In how many ms a job is judged again that has so many before it in line. Where thousands of keys have jobs in line,
  -- that is later, so that Redis does not judge them all the time.
  local keyCount
  local function patience(rank)
    keyCount = keyCount or call('HLEN', HOLDERS)
    return math.min(NEAR * (rank + 1 + math.floor(keyCount / 1000)), FAR)
  end

  local function startsOf(key) return P .. 'lane:starts=' .. string.gsub(key, ':', '\\31') end

  -- Has the call of another job made something of it, so that it does not run?
  local function isSettled(id)
    return call('HEXISTS', P .. id, 'lr') == 1
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

  -- For how many ms no job of the key may start, because as many as may have started; nil if one may. \`id\`: the job
  -- that is to start, if it is known.
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
    return left
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

  -- Who has the key. A pause that is over has it no more. \`known\`: who stood in the first slot a moment ago.
  local function holderOf(key, known)
    local holder = known
    if known == nil then holder = firstSlot(key) end
    if holder ~= PAUSED then return holder end
    pausedFor(key)
    return firstSlot(key)
  end

  -- The number of the slot in which id has the key, or nil. The first is 0.
  local function slotOf(id, key)
    if firstSlot(key) == id then return 0 end
    local slots = isShared(key) and call('HGETALL', furtherSlots(key)) or {}
    for i = 1, #slots, 2 do
      if slots[i + 1] == id then return tonumber(slots[i]) end
    end
  end

  -- Forgets the further slots whose jobs are gone. Which ones are taken, and how many?
  local function takenSlots(key)
    local slots, taken, count = call('HGETALL', furtherSlots(key)), {}, 0
    for i = 1, #slots, 2 do
      if holds(slots[i + 1], key) then taken[tonumber(slots[i])], count = slots[i + 1], count + 1
      else call('HDEL', furtherSlots(key), slots[i]) end
    end
    return taken, count
  end

  -- Keys that as many jobs had as may when this script looked, and still have.
  local allTaken = {}

  -- The number of the slot that the next job has; nil if as many jobs have the key as may. Where operators have lowered
  -- that, more may have it.
  local function freeSlot(key, isFirstTaken)
    if not isFirstTaken and not policyOf(key) then return 0 end
    if not isShared(key) then return not isFirstTaken and 0 or nil end
    if allTaken[key] then return end
    local taken, count = takenSlots(key)
    if count + (isFirstTaken and 1 or 0) >= slotCount(key) then
      allTaken[key] = true
      return
    end
    if not isFirstTaken then return 0 end
    local number = 1
    while taken[number] do number = number + 1 end
    return number
  end

  -- Who has the key, in the order of the slots. The first is '' if nobody does. Jobs that are gone have no further one.
  local function holdersOf(key)
    local found, taken = {}, takenSlots(key)
    local holder = call('HGET', HOLDERS, key)
    if holder and holder ~= PAUSED and holder ~= NEXT then found[1] = holder end
    local numbers = {}
    for number in pairs(taken) do numbers[#numbers + 1] = number end
    table.sort(numbers)
    for i = 1, #numbers do found[#found + 1] = taken[numbers[i]] end
    if not found[1] then found[1] = '' end
    return found
  end

  local function isJob(holder) return holder and holder ~= PAUSED and holder ~= NEXT end

  -- Is the key's first slot a job's? One that is gone has it no more.
  local function isFirstTaken(key)
    local holder = firstSlot(key)
    return isJob(holder) and holds(holder, key)
  end

  -- Have others all slots of the key, or is it paused? \`holder\`: who stands in the first one.
  local function isBusy(key, holder)
    return holder == PAUSED or not freeSlot(key, isJob(holder) and holds(holder, key))
  end

  local function has(id, key, holder)
    return holder == id or (isShared(key) and slotOf(id, key) ~= nil)
  end

  local function seat(id, key)
    if isShared(key) then
      if slotOf(id, key) then return end
      if isFirstTaken(key) then return call('HSET', furtherSlots(key), freeSlot(key, true), id) end
    end
    call('HSET', HOLDERS, key, id)
  end

  -- If id has the key, its slot is free from now on: returns the key.
  local function unseat(id, key)
    local slot = slotOf(id, key)
    if not slot then return end
    allTaken[key] = nil
    if slot == 0 then call('HSET', HOLDERS, key, NEXT) else call('HDEL', furtherSlots(key), slot) end
    return key
  end

  -- Is there a job that was given a slot of the key and waits to be taken?
  local function isAwaited(key)
    local id = isShared(key) and call('HGET', CHOSEN, key)
    if not id then return false end
    local isTaken = id ~= FETCHED and call('EXISTS', P .. id .. ':lock') == 1
    if not isTaken and slotOf(id, key) and holds(id, key) then return true end
    call('HDEL', CHOSEN, key)
    return false
  end

  -- Have more jobs the key than may, because operators have lowered that? Another one that waits to be taken does not
  -- count: it comes after id.
  local function isOver(id, key)
    if not policyOf(key) or not isShared(key) then return false end
    local _, count = takenSlots(key)
    if isFirstTaken(key) then count = count + 1 end
    if count <= slotCount(key) then return false end
    local chosen = call('HGET', CHOSEN, key)
    if chosen and chosen ~= id and isAwaited(key) then count = count - 1 end
    return count > slotCount(key)
  end

  -- The key is not free for everybody, though a slot is.
  local function mark(key, why)
    if not isShared(key) or not isFirstTaken(key) then call('HSET', HOLDERS, key, why) end
  end

  -- Nobody stands in line for the key.
  local function forget(key)
    if isShared(key) and isFirstTaken(key) then return end
    local taken, policy = takenSlots(key), policyOf(key)
    local isTaken = next(taken) ~= nil
    -- It was removed when further slots were taken.
    if policy and not isTaken and next(policy) == nil then
      call('HDEL', HOLDERS, key .. '\\31')
      policy, POLICIES[key] = false, false
    end
    if policy or isTaken then call('HSET', HOLDERS, key, NEXT) else call('HDEL', HOLDERS, key) end
  end

  -- Who stands there in line. Those that were removed, finished elsewhere, or whose id now names another job are
  -- dropped.
  local function standing(key, index)
    while true do
      local head = call('ZRANGE', line(key), index, index, 'WITHSCORES')
      local id = head[1]
      if not id or id == PAUSED then return id end
      local facts = call('HMGET', P .. id, 'lk', 'ls', 'finishedOn')
      if pinned(facts[1], key) and tonumber(facts[2] or 'x') == tonumber(head[2]) and not facts[3] then return id end
      call('ZREM', line(key), id)
    end
  end

  -- The first in line, or PAUSED.
  local function first(key)
    local id = standing(key, 0)
    if id == PAUSED and not pausedFor(key) then return standing(key, 0) end
    return id
  end

  -- A parked job is judged again in so many ms, also by workers that wait for the next job that is due.
  local function judgeIn(left, id)
    if left == math.huge then return end
    call('ZADD', P .. 'delayed', 'XX', (NOW + left + 1) * 4096, id)
    local soonest = call('ZRANGE', P .. 'delayed', 0, 0, 'WITHSCORES')[2]
    if soonest then call('ZADD', P .. 'marker', math.floor(tonumber(soonest) / 4096), '1') end
  end

  -- Whoever is first in line for a paused key is judged again when the pause ends.
  local function await(key)
    local left = pausedFor(key)
    local id = left and standing(key, 1)
    if id then judgeIn(left, id) end
  end

  local function toFront(list, id, from)
    if call('LREM', list, from or 1, id) == 0 then return false end
    if hasFailed(try('RPUSH', list, id)) then call('LPUSH', list, id) end
    return true
  end

  -- Out of 'prioritized', to the front of 'wait'.
  local function unprioritize(id)
    call('RPUSH', P .. 'wait', id)
    surely('ZREM', P .. 'prioritized', id)
  end

  local function promoteToFront(id)
    local keys = {P..'delayed', P..'wait', P..'paused', P..'meta', P..'prioritized', P..'active', P..'pc', P..'events', P..'marker'}
    -- It waits in 'delayed', or its timer has fired. Either way it stands at the end now, the left one of a list.
    bullPromote(keys, {P, id})
    local score = call('ZSCORE', keys[5], id)
    if score and ROTATE then
      -- BullMQ takes those of 'wait' first, where some may be that nobody has looked at.
      unprioritize(id)
    elseif score then
      call('ZADD', keys[5], math.floor(tonumber(score) / 4294967296) * 4294967296, id)
    elseif not toFront(keys[2], id) then
      toFront(keys[3], id)
    end
  end

  local function leaveLine(id, key)
    if call('ZREM', line(key), id) == 0 then return end
    local following = first(key)
    if following then call('ZADD', P .. 'delayed', 'XX', (NOW + patience(0)) * 4096, following) end
  end

${rotation.ring}
  -- \`isTaken\`: its start tells how long it was parked, so that is forgotten.
  local function claim(id, pin, keys, isTaken)
    for i = 1, #keys do
      seat(id, keys[i])
      leaveLine(id, keys[i])
    end
    call('HSET', P .. id, 'lk', pin)
    local by = call('HGET', P .. id, 'pb')
    call('HDEL', P .. id, 'ls', by and isParkedBy(by) and 'pb' or 'ls', isTaken and 'lp' or 'ls')
  end

  -- The key has a free slot and is not paused: is id the one to run on it?
  local function isNextOn(id, key)
    local holder = holderOf(key)
    if not has(id, key, holder) and (isBusy(key, holder) or isAwaited(key)) then return false end
    local head = first(key)
    return not head or head == id
  end

  -- A slot of the key is free: give it to the first in line, or, with rotation, let the key wait for its turn (\`place\`:
  -- where its turn goes on). Returns the job that may run now, if any.
  local function advance(key, place, isTurn)
    if isAwaited(key) then return mark(key, NEXT) end
    local id = first(key)
    if not id then
      forget(key)
      return ROTATE and not isTurn and turn() or nil
    end
    if id == PAUSED then
      mark(key, PAUSED)
      await(key)
      return
    end
    local pin = call('HGET', P .. id, 'lk')
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
      enter(key, place)
      return turn()
    end
    claim(id, pin, keys)
    for i = 1, #keys do
      if isShared(keys[i]) then call('HSET', CHOSEN, keys[i], id) end
    end
    promoteToFront(id)
    return id
  end

  -- Passes the key on if its holder is gone, or a slot is free, though nobody asks for it.
  -- \`id\`: in whose turn, if it goes on.
  local function heal(key, id, told)
    local holder = holderOf(key)
    if not holder or isBusy(key, holder) then return end
    return advance(key, ROTATE and id and placeAfter(id, key, told) or nil)
  end

  local function release(id, pin, told)
    local chosen, freed = nil, {}
    for _, key in ipairs(keysOf(pin)) do
      local holder = SLOTS == 1 and firstSlot(key)
      if isShared(key) then freed[#freed + 1] = unseat(id, key)
      elseif holder == id then chosen = advance(key, ROTATE and placeAfter(id, key, told) or nil) or chosen end
    end
    -- When all of them are free: whoever is next may need more than one.
    for _, key in ipairs(freed) do chosen = heal(key, id, told) or chosen end
    return chosen
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

  -- May id run now? If not: does it go first when it may, because it has a key that is paused or limited, or that more
  -- have than may, or its own failure stopped it? A key whose holder is gone is passed on first, to whoever is in front; was one? And if it is first in
  -- line: in how many ms may it, at the earliest?
  -- \`known\`: who stood in the first slot of its one key a moment ago. \`isNew\`: it stands in no line.
  local function mayRun(id, keys, known, isNew)
    local free, isFirst, isMoved, left = true, false, false, nil
    for i = 1, #keys do
      local key = keys[i]
      local holder = holderOf(key, known)
      local closed
      if has(id, key, holder) then
        closed = pausedFor(key) or limitedFor(key, id)
        if closed or isOver(id, key) then free, isFirst = false, true end
      elseif isBusy(key, holder) or isAwaited(key) then
        free = false
        isFirst = isFirst or (holder == PAUSED and haltedBy(key) == id)
        closed = holder == PAUSED and pausedFor(key)
      else
        -- Of a key that nobody has, nobody stands in line.
        local head = (holder or not isNew) and first(key)
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

  -- The job goes back, and its processor was not called: its start does not count for the keys that it has. Others may
  -- start in its place.
  local function uncountStart(id)
    local pin = call('HGET', P .. id, 'lk')
    if not hasKeys(pin) then return end
    for _, key in ipairs(keysOf(pin)) do
      if slotOf(id, key) and rateOf(key) then
        uncountStartOf(id, key)
        if isShared(key) then heal(key) end
      end
    end
  end

  -- In front of all that stand in line for any of these keys, or will.
  local function frontPlace(keys)
    local least = 0
    for i = 1, #keys do
      local heads = call('ZRANGE', line(keys[i]), 0, 1, 'WITHSCORES')
      least = math.min(least, tonumber(heads[heads[1] == PAUSED and 4 or 2] or 0))
    end
    return string.format('%.0f', least - 1)
  end

  local function isAlone()
    return call('EXISTS', P .. 'wait', P .. 'prioritized') == 0
  end

  -- id was given its keys and is taken, or came first after a rest: the one behind it may have a slot, too.
  local function afterTake(id, keys)
    FETCHED = nil
    for i = 1, #keys do
      if isShared(keys[i]) then
        if call('HGET', CHOSEN, keys[i]) == id then call('HDEL', CHOSEN, keys[i]) end
        if call('EXISTS', line(keys[i])) == 1 then heal(keys[i], id) end
      end
    end
  end

  -- A job that was parked has its keys written down already.
  local function pinTaken(id, pin, since)
    if since then call('HDEL', P .. id, 'lp') else call('HSET', P .. id, 'lk', pin) end
  end

  -- Makes id the holder of all its keys, or of none; then replies what mayRun says of its place and time, and whether
  -- others have their turn before. \`since\`: when it was parked.
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
    if isAlone() then unmark() end
    if ROTATE then turn() end
    return true
  end

  -- No attempt was started.
  local function uncount(id)
    if call('HINCRBY', P .. id, 'ats', -1) < 1 then call('HDEL', P .. id, 'processedOn', 'pb') end
  end

  -- Did BullMQ's limiter just count this activation?
  local function isLimited(id, opts)
    if call('PTTL', P .. 'limiter') <= 0 or call('HEXISTS', P .. id, 'defa') == 1 then return false end
    return call('HGET', P .. 'meta', 'max') or cmsgpack.unpack(opts).limiter
  end

  -- Takes back, before anybody can have seen it, what BullMQ wrote for a start.
  local function undo(id, opts)
    call('DEL', P .. id .. ':lock')
    uncount(id)
    if isLimited(id, opts) then call('DECR', P .. 'limiter') end
    local event = call('XREVRANGE', P .. 'events', '+', '-', 'COUNT', 1)[1]
    if event and event[2][2] == 'active' and event[2][4] == id then call('XDEL', P .. 'events', event[1]) end
  end

  -- The second half of a move: the job stands in its new place already, from which \`back\` takes it if it cannot leave
  -- the old one.
  local function leave(old, back)
    local reply = try(unpack(old))
    if not hasFailed(reply) then return end
    call(unpack(back))
    error(reply.err, 0)
  end

  local function leaveActive(id, opts, back)
    leave({'LREM', P .. 'active', 1, id}, back)
    pcall(undo, id, opts)
  end

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
      local facts = id ~= PAUSED and call('HMGET', P .. id, 'lk', 'lf') or {}
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
    call('HDEL', P .. id, 'ls', 'lp')
  end

  -- A job that stands in line does not run: it is taken next, to be told why.
  local function leaveFull(id, pin, why)
    call('HSET', P .. id, 'lb', why)
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
        local own = oldest and isFull(key, max, 1) and call('HGET', P .. oldest, 'lk')
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
    if not holder or holder == PAUSED or holder == NEXT or not holds(holder, keys[1]) then return end
    local facts = call('HMGET', P .. holder, 'lk', 'lb')
    if facts[1] ~= pin then return end
    local why, isNoted = dropped(keys[1], id), facts[2]
    if not isNoted then call('HSET', P .. holder, 'lb', why) end
    if call('EXISTS', P .. holder .. ':lock') == 1 then
      if not isNoted then try('PUBLISH', P .. 'lane:superseded', holder .. '\\31' .. BAD .. why) end
    elseif call('ZSCORE', P .. 'delayed', holder) then
      promoteToFront(holder)
    end
  end

  -- \`go\` takes the job out of where it stands; its argument takes it back from 'delayed'. \`left\`: in how many ms the
  -- first in line may run.
  local function park(id, pin, isFirst, left, go, facts)
    local keys = keysOf(pin)
    facts = facts or call('HMGET', P .. id, 'ls', 'priority')
    local place = facts[1] or (isFirst and frontPlace(keys))
    if not place then
      local priority = #keys == 1 and tonumber(facts[2]) or 0
      place = string.format('%.0f', priority * 4294967296 + call('INCR', P .. 'lane:seq') % 4294967296)
    end
    local rank = 0
    for i = 1, #keys do
      call('ZADD', line(keys[i]), place, id)
      parkedFor[keys[i]] = true
      if #keys > 1 or RATE or ROTATE then call('HSETNX', HOLDERS, keys[i], NEXT) end
      rank = math.max(rank, call('ZRANK', line(keys[i]), id))
    end
    local delay = patience(rank)
    -- In front of the first stands at most the mark of the pause.
    local isTimed = left and left < math.huge and rank <= 1
    if isTimed then delay = left + 1 end
    call('ZADD', P .. 'delayed', (NOW + delay) * 4096 + tonumber(place) % 4096, id)
    go({'ZREM', P .. 'delayed', id})
    local by = PARKED_BY .. table.concat(keys, ', ')
    -- Of a job that is parked again it stays: it may have been given its key since, and not be taken yet.
    local isNew = not facts[1] and not isFirst
    local field, since = isNew and 'lp' or 'ls', isNew and NOW or place
    call('HSET', P .. id, 'delay', delay, 'lk', pin, 'ls', place, 'pb', by, field, since)
    if isFirst then call('HSETNX', P .. id, 'lp', NOW) end
    call('XADD', P .. 'events', '*', 'event', 'delayed', 'jobId', id, 'delay', NOW + delay)
    if isTimed then judgeIn(left, id) end
    if isFirst then release(id, pin) elseif not facts[1] then
      dropOldest(id, pin, keys)
      interrupt(id, pin, keys)
    end
  end

  -- Puts the first in line where the next fetch finds it: its id; nil if there is more to do, or it is not to run.
  local function putNext(key)
    if not freeSlot(key, false) or limitedFor(key) or isAwaited(key) then return end
    local heads = call('ZRANGE', line(key), 0, 1, 'WITHSCORES')
    local id, following = heads[1], heads[3]
    if not id or id == PAUSED then return end
    local facts = call('HMGET', P .. id, 'lk', 'ls', 'finishedOn', 'lb', 'la', 'lo')
    local isOdd = facts[3] or facts[4] or facts[5] or facts[6]
    if facts[1] ~= key or tonumber(facts[2] or 'x') ~= tonumber(heads[2]) or isOdd then return end
    call('RPUSH', P .. 'wait', id)
    local left = try('ZREM', P .. 'delayed', id)
    if left ~= 1 then
      -- Its timer may have fired: then it waits already, further back.
      surely('LREM', P .. 'wait', -1, id)
      if hasFailed(left) then error(left.err, 0) end
      return
    end
    call('ZREM', line(key), id)
    -- That id may be another job's by now.
    if following and tonumber(call('HGET', P .. following, 'ls') or 'x') == tonumber(heads[4]) then
      call('ZADD', P .. 'delayed', 'XX', (NOW + patience(0)) * 4096, following)
    end
    call('HSET', P .. id, 'delay', 0)
    call('XADD', P .. 'events', '*', 'event', 'waiting', 'jobId', id, 'prev', 'delayed')
    return id
  end

  -- A job that BullMQ has moved to 'delayed' leaves the keys that it has alone for so many ms, and goes first then.
  local function backOff(id, ms)
    uncount(id)
    local pin = call('HGET', P .. id, 'lk')
    if not hasKeys(pin) then return end
    local keys = keysOf(pin)
    for i = 1, #keys do
      if slotOf(id, keys[i]) then pause(keys[i], ms, 'backed off by job ' .. id) end
    end
    local place = frontPlace(keys)
    for i = 1, #keys do call('ZADD', line(keys[i]), place, id) end
    call('HSET', P .. id, 'ls', place, 'pb', PARKED_BY .. table.concat(keys, ', '), 'lp', NOW)
    release(id, pin)
  end

  -- It was not fetched: back to its place in line.
  local function takeBack(id, key)
    park(id, key, false, nil, function(back) leave({'LREM', P .. 'wait', -1, id}, back) end)
  end

  -- Is the end of this key's job likely to bring the next one, whose lock is then to be asked for ahead?
  local function isFollowed(pin)
    return TOKEN == '' and isSingle(pin) and isAlone() and call('EXISTS', line(pin)) == 1
  end

  -- BullMQ's own fetch has brought the job that putNext put there: it has the key now.
  -- \`told\`: where the turn of the key goes on.
  local function claimNext(id, key, reply, told)
    call('HSET', HOLDERS, key, id)
    local fields, outcome, by, since = reply[1], nil, nil, nil
    for i = 1, #fields, 2 do
      if fields[i] == 'lr' then outcome = fields[i + 1]
      elseif fields[i] == 'lp' then since = fields[i + 1]
      elseif fields[i] == 'pb' and isParkedBy(fields[i + 1]) then by = i end
    end
    if by then
      table.remove(fields, by)
      table.remove(fields, by)
    end
    call('HDEL', P .. id, 'ls', 'lp', by and 'pb' or 'ls')
    if not outcome then countStart(id, key) end
    if isAlone() then unmark() end
    if ROTATE then
      if told then noteTurn(id, key, tonumber(string.match(told, '^%S+'))) end
      quietly(seeAhead)
    end
    reply[5], reply[6], reply[8], reply[9], reply[10] = key, parkedHere - parkedBefore, false, false, isFollowed(key)
    reply[11], reply[12], reply[13], reply[14] = false, false, outcome or false, since or false
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

  -- A job that was taken and cannot be judged waits in 'delayed', without a place in line, and is judged again.
  local function setAside(id, opts)
    for _, active in ipairs(call('LRANGE', P .. 'active', 0, -1)) do
      if active == id then
        call('ZADD', P .. 'delayed', (NOW + NEAR) * 4096, id)
        return leaveActive(id, opts, {'ZREM', P .. 'delayed', id})
      end
    end
  end

  -- Jobs that will be taken soon and whose keys JavaScript has not computed yet: the first, and as many more as
  -- AHEAD_BYTES of data are.
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
      local known = try('HMGET', P .. ahead[i], 'lk', 'lb')
      if not known.err and not known[1] and not known[2] then
        local facts = call('HMGET', P .. ahead[i], 'name', 'data', 'timestamp', 'priority', 'parentKey')
        if facts[2] and not pinOfData(facts[2]) then
          found[#found + 1] = {ahead[i], facts[1], facts[2], facts[3], facts[4], facts[5]}
          bytes = bytes + #facts[2]
        end
      end
    end
    return found
  end

  -- Parks the jobs at the front of the queue that may not run, before BullMQ activates them. May there be more?
  -- \`ending\`: a pin whose key is about to be free.
  local function sift(ending)
    -- Keys that have one slot, with the job that has it: it is looked at once.
    local taken = {}
    for _ = parkedHere + 1, BATCH do
      local id, isPlain = call('LINDEX', P .. 'wait', -1), true
      if not id then id, isPlain = call('ZRANGE', P .. 'prioritized', 0, 0)[1], false end
      if not id or string.sub(id, 1, 2) == '0:' then return false end
      local facts = call('HMGET', P .. id, 'ls', 'priority', 'lk', 'data', 'lb', 'lf')
      -- It does not run, which whoever takes it is told.
      if facts[5] then return false end
      local pin = facts[3] or (facts[4] and pinOfData(facts[4]))
      if not hasKeys(pin) or pin == ending then return false end
      local free, isFirst, isMoved, left = false, false, false, nil
      if not taken[pin] or taken[pin] == id then
        local known
        if isSingle(pin) then known = firstSlot(pin) end
        free, isFirst, isMoved, left = mayRun(id, keysOf(pin), known, not facts[1])
        if isFirst then taken = {}
        elseif isJob(known) and not (free or isMoved or left or isShared(pin)) then taken[pin] = known end
      end
      if free or (not facts[1] and not isFirst and turnedAway(pin, facts[6])) then return false end
      -- Passing a key on may have put another job in front.
      local old
      if not isPlain then
        old = (not isMoved or call('ZSCORE', P .. 'prioritized', id)) and {'ZREM', P .. 'prioritized', id}
      elseif not isMoved or call('LINDEX', P .. 'wait', -1) == id then
        old = {'RPOP', P .. 'wait'}
      end
      if old then
        park(id, pin, isFirst, left, function(back) leave(old, back) end, facts)
        parkedHere = parkedHere + 1
      end
    end
    return true
  end

${rotation.turns}
  local function activeKeys()
    return {P..'wait', P..'active', P..'prioritized', P..'events', P..'stalled', P..'limiter', P..'delayed', P..'paused', P..'meta', P..'pc', P..'marker'}
  end

  -- The numbers of the slots in which id has its keys, in order; false if all are 0.
  local function slotsOf(id, pin)
    if not hasKeys(pin) then return false end
    local numbers = {}
    for i, key in ipairs(keysOf(pin)) do numbers[i] = isShared(key) and slotOf(id, key) or 0 end
    local text = table.concat(numbers, ',')
    return string.find(text, '[1-9]') and text or false
  end

  -- What is replied for a job that BullMQ has taken; nil if it was parked.
  local function judge(reply, opts)
    local id, fields = reply[2], reply[1]
    local pin, data, fault, isMark, wasParked, order, isOver, outcome, age, since
    for i = 1, #fields, 2 do
      local field = fields[i]
      if field == 'lk' then pin = fields[i + 1]
      elseif field == 'data' then data = fields[i + 1]
      elseif field == 'lb' then fault = fields[i + 1]
      elseif field == 'ls' then wasParked = true
      elseif field == 'lp' then since = fields[i + 1]
      elseif field == 'lo' then order = fields[i + 1]
      -- BullMQ has this one failed, and calls no processor.
      elseif field == 'defa' then isOver = true
      elseif field == 'lr' then outcome = fields[i + 1]
      elseif field == 'lf' then age = fields[i + 1]
      elseif field == 'la' then isMark = true end
    end
    if fault then
      -- If its worker dies now, it must not run after the job that has superseded it.
      if not string.find(fault, BAD .. 'superseded', 1, true) then call('HDEL', P .. id, 'lb', 'lp') end
      -- It had backed off.
      if wasParked and hasKeys(pin) then leaveLines(id, pin) end
      pin = BAD .. fault
    else
      pin = pin or pinOfData(data)
      if not pin then
        putBack(id, opts)
        return {'LANE_ASK', unknownAhead(256, 256)}
      end
    end
    local isOurs, isFirst, left, isPassing = true, false, nil, false
    if hasKeys(pin) then isOurs, isFirst, left, isPassing = take(id, pin, wasParked, since) end
    if not isOurs then
      if parkedHere >= BATCH then
        putBack(id, opts)
        return {'LANE_AGAIN', parkedHere - parkedBefore}
      end
      local full, by
      if not wasParked and not isFirst then full, by = turnedAway(pin, age) end
      if full then
        if isMark or order then call('HDEL', P .. id, 'la', 'lo') end
        reply[5] = BAD .. dropped(full, by)
        reply[6] = parkedHere - parkedBefore
        reply[8] = isMark and unknownAhead(512, 256) or false
        return reply
      end
      park(id, pin, isFirst, left, function(back) leaveActive(id, opts, back) end)
      parkedHere = parkedHere + 1
      if isPassing then
        for _, key in ipairs(keysOf(pin)) do heal(key) end
      end
      return
    end
    if hasKeys(pin) and not isOver and not outcome then countStart(id, pin) end
    if isMark or order then call('HDEL', P .. id, 'la', 'lo') end
    reply[5] = pin
    reply[6] = parkedHere - parkedBefore
    reply[8] = isMark and unknownAhead(512, 256) or false
    reply[9] = order or false
    reply[10] = hasKeys(pin) and isFollowed(pin)
    reply[11], reply[12] = false, slotsOf(id, pin)
    reply[7] = not order and lockOf(pin, TOKEN, reply[12])
    if outcome or since then reply[13], reply[14] = outcome or false, since end
    return reply
  end

  local function fetch(reply, opts)
    while true do
      reply = reply or bullMoveToActive(activeKeys(), {P, NOW, opts})
      if type(reply) == 'table' and type(reply[1]) == 'table' then
        local ok, judged = pcall(judge, reply, opts)
        if not ok then
          setAside(reply[2], opts)
          return {'LANE_AGAIN', parkedHere - parkedBefore, whatFailed(judged)}
        end
        if judged and ROTATE and type(judged[1]) == 'table' then
          quietly(seeAhead)
          judged[6] = parkedHere - parkedBefore
        end
        if judged then return judged end
        -- What cannot be judged there is judged again when it is taken.
        local isMore = quietly(seeAhead or sift)
        local isNext = ROTATE and quietly(isTurnOpen)
        if (isMore or parkedHere >= BATCH) and not isNext then return {'LANE_AGAIN', parkedHere - parkedBefore} end
      elseif not ROTATE or not quietly(turn) then
        return reply
      end
      reply = nil
    end
  end

  slow = {
    keysOf = keysOf, holds = holds, promoteToFront = promoteToFront, release = release,
    uncount = uncount, fetch = fetch, halt = halt, haltedBy = haltedBy, frontPlace = frontPlace, pinned = pinned,
    heal = heal, sift = seeAhead or sift, othersWait = othersWait, putNext = putNext, takeBack = takeBack, claimNext = claimNext, holderOf = holderOf,
    pause = pause, pausedFor = pausedFor, await = await, backOff = backOff, limitedFor = limitedFor,
    uncountStart = uncountStart, redisMs = redisMs, slotOf = slotOf, holdersOf = holdersOf, startsOf = startsOf,
    isShared = isShared, slotCount = slotCount, rateOf = rateOf
  }
  return slow
end

-- Is id the holder of its one key, and does another job wait for that, or have a slot of it?
local function look(id, pin)
  local isHolder = hasKeys(pin) and isSingle(pin) and firstSlot(pin) == id
  if not isHolder then return false, false end
  -- A key of which operators have said something is not forgotten.
  if POLICIES[pin] then return true, true end
  if SLOTS > 1 then return true, call('EXISTS', line(pin), furtherSlots(pin)) > 0 end
  return true, call('EXISTS', line(pin)) == 1
end

-- The job does not need its keys any more: they go to the first in line. Returns a job that may run now, if any.
local function release(id, pin, told)
  pin = pin or call('HGET', P .. id, 'lk')
  if not hasKeys(pin) then return end
  if isSingle(pin) and SLOTS == 1 then
    local holder = firstSlot(pin)
    if not POLICIES[pin] then
      if holder ~= id then return end
      if call('EXISTS', line(pin)) == 0 then
        call('HDEL', HOLDERS, pin)
        return
      end
    end
  end
  return contended().release(id, pin, told)
end

--[[
  What a command replies that asked BullMQ for a job. reply: BullMQ's. opts: BullMQ's, packed. Returns BullMQ's own reply, and for a job
    reply[5]  its keys: its pin
    reply[6]  jobs parked on the way
    reply[7]  the fencing token of its key's lock, if that was taken, or false
    reply[8]  jobs whose keys are to be computed ahead, or false
    reply[9]  its place in line for its locks, if it waited for them before, or false
    reply[10] true if its end is likely to bring the next job of its one key: others are in line for it, and nothing else waits
    reply[11] what is to follow it, see commands.lua.ts
    reply[12] the numbers of its slots, one for each key, if one is not the first
    reply[13] what the call of another job has made of it, if one has, or false
    reply[14] when it was parked, if it was
  or {'LANE_AGAIN', parked, fault}: more than a batch was parked, or (fault) a job could not be judged and was set aside: call again;
  {'LANE_ASK', jobs}: compute these jobs' keys, then call again.
]]
local function fetch(reply, opts)
  if ROTATE then return contended().fetch(reply, opts) end
  if type(reply) ~= 'table' or type(reply[1]) ~= 'table' then return reply end
  local id, fields = reply[2], reply[1]
  local pin, data
  for i = 1, #fields, 2 do
    local field = fields[i]
    if field == 'lk' then pin = fields[i + 1]
    elseif field == 'data' then data = fields[i + 1]
    elseif field == 'lb' or field == 'ls' or field == 'la' or field == 'lo' or field == 'lr' then return contended().fetch(reply, opts) end
  end
  pin = pin or pinOfData(data)
  if RATE and pin ~= '' then return contended().fetch(reply, opts) end
  if hasKeys(pin) and isSingle(pin) and try('HSETNX', HOLDERS, pin, id) == 1 and type(try('HSET', P .. id, 'lk', pin)) == 'number' then
  elseif pin ~= '' then
    return contended().fetch(reply, opts)
  end
  reply[5] = pin
  reply[6] = parkedHere - parkedBefore
  reply[7] = lockOf(pin, TOKEN)
  return reply
end

-- Where this script has met a busy key already, the next fetch will rather meet one, too: it costs more to take such a
-- job and put it back.
local function siftAhead(ending)
  if ROTATE then return end
  if slow then slow.sift(ending) end
end

-- What follows a command that finished with a job: take the next job if BullMQ was asked to.
local function follow(reply, chosen, fetchNext, opts)
  if fetchNext ~= '1' then return reply end
  if type(reply) == 'table' and type(reply[1]) == 'table' then return fetch(reply, opts) end
  if chosen then return contended().fetch(nil, opts) end
  -- It may have been the turn of a job that is gone.
  return ROTATE and contended().fetch(reply, opts) or reply
end

-- Replies {'LANE_TOLD', BullMQ's reply, 1 if the lock of the job's key was to be released and was not, what went wrong,
-- {key, until when it is limited, …}} if there is any of this.
local function tell(reply, isKept)
  if not (isKept or FAULT or LIMITED) then return reply end
  local limited = LIMITED and {}
  for key, ends in pairs(LIMITED or {}) do
    limited[#limited + 1] = key
    limited[#limited + 1] = string.format('%.0f', ends)
  end
  return {'LANE_TOLD', reply, isKept and 1 or 0, FAULT or false, limited or false}
end
`;
