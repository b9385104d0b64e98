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
 * - `P lane:line=<key>` is a zset of the ids of the jobs in line for the key, by place. `!:paused` is in it in front of
 *   all while the key is paused. It stands at -inf, or at the time at which the pause ends less PAUSE_BASE. Each colon
 *   of the key is the control character 31, which no key has.
 * - `P lane:paused` is a hash of keys, with JSON {reason, since, until, jobId}, for operators only.
 * - `P lane:starts=<key>`, where a key has a rate, is a list of the times of its last starts, the newest first. There
 *   are at most as many as the rate allows. Where a key may have several slots, each is followed by the id of the job.
 *   It expires when none of them counts any more.
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
 * - `lf` is when it first failed, counted as arrivals in a line are. With `whenBusy: "latest"`, it comes back for its
 *   retry as old as it was.
 * - `lr` is what the call of another job has made of it: it is not run, and ends so when it is its turn.
 * - BullMQ's `pb` (processedBy, which dashboards show) says that it is parked.
 *
 * A key belongs to a job until that job is finished, not for a time. A stalled job keeps its key and is run again
 * first. With several slots, the same is true of each, and one line fills them all. A parked job stands in `delayed`,
 * so BullMQ itself brings it back at its time and it is judged again. Whatever happens to a holder (removed, cleaned,
 * obliterated) or to these keys, no job waits for longer than that.
 *
 * What follows P in a name has one colon, and no BullMQ key does but `<id>:lock` and its like. BullMQ refuses ids with
 * one colon. It takes one with two (`lane:line:42`).
 *
 * A script that fails half-way keeps what it did before. So a job that changes its place is added to the new one first.
 * It is taken back from there if it cannot leave the old one. A job that cannot be judged is set aside in `delayed`.
 * Once BullMQ has done its part, what goes wrong is told beside its reply. A key left half passed on is passed on when
 * it is next asked for.
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
 * What only a contended key needs stands in lane/, by subject. Each file uses those before it: limits, slots, line,
 * take, full-line, parking, judge.
 *
 * A script defines all its functions anew each time that it is run. Each costs some hundred nanoseconds, more with
 * every local of another function that it uses. So a job whose key is free pays for few.
 */
import { fullLine } from "./lane/full-line.lua.ts";
import { judge } from "./lane/judge.lua.ts";
import { limits } from "./lane/limits.lua.ts";
import { line } from "./lane/line.lua.ts";
import { parking } from "./lane/parking.lua.ts";
import { slots } from "./lane/slots.lua.ts";
import { take } from "./lane/take.lua.ts";

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
-- Has a job left its line to be run?
local isClaimed = false

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

-- What operators have said of the keys whose first slot this script has read. False: nothing, or a damaged policy, which
-- must not stop every job of the key.
local POLICIES = {}

-- Who stands in the key's first slot.
local function firstSlot(key)
  local both = call('HMGET', HOLDERS, key, key .. '\\31')
  POLICIES[key] = both[2] and quietly(cjson.decode, both[2])
  return both[1]
end

local function line(key) return P .. 'lane:line=' .. string.gsub(key, ':', '\\31') end

local function furtherSlots(key) return P .. 'lane:slots=' .. string.gsub(key, ':', '\\31') end

-- Does nobody wait, but for those in lines?
local function isAlone()
  return call('EXISTS', P .. 'wait', P .. 'prioritized') == 0
end

-- Everything that only a contended key needs. A function, so that the others do not pay for making it.
local slow
local function contended()
  if slow then return slow end
  parkedFor = {}
${slowly}
  local BATCH, AHEAD_BYTES, PARKED_BY = 50, 1000000, 'nobody yet: waits for key '

  -- Does this stand in 'pb' since the job was parked? BullMQ may have written the name of the worker since.
  local function isParkedBy(by) return string.find(by, PARKED_BY, 1, true) == 1 end

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

  -- In how many ms a job is judged again that has so many before it in line. Where thousands of keys have jobs in line,
  -- that is later, so that Redis does not judge them all the time.
  local keyCount
  local function patience(rank)
    keyCount = keyCount or call('HLEN', HOLDERS)
    return math.min(NEAR * (rank + 1 + math.floor(keyCount / 1000)), FAR)
  end

${limits}
${slots}
${line(rotation.ring)}
${take}
${fullLine}
${parking}
${judge(rotation.turns)}
  slow = {
    keysOf = keysOf, holds = holds, disown = disown, promoteToFront = promoteToFront, release = release,
    uncount = uncount, fetch = fetch, halt = halt, haltedBy = haltedBy, frontPlace = frontPlace, pinned = pinned,
    heal = heal, sift = seeAhead or sift, othersGoFirst = othersGoFirst, putNext = putNext, takeBack = takeBack, claimNext = claimNext, holderOf = holderOf,
    pause = pause, pausedFor = pausedFor, await = await, backOff = backOff, limitedFor = limitedFor,
    uncountStart = uncountStart, redisMs = redisMs, slotOf = slotOf, holdersOf = holdersOf, startsOf = startsOf,
    isShared = isShared, slotCount = slotCount, rateOf = rateOf, standing = standing, unknownJob = unknownJob
  }
  return slow
end

-- For what a request replies, at its end: BullMQ has told the idle workers, and none is woken for an empty queue.
local function calmly(reply)
  if isClaimed and quietly(isAlone) then quietly(call, 'ZREM', P .. 'marker', '0') end
  return reply
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
    reply[11] the numbers of its slots, one for each key, if one is not the first
    reply[12] what the call of another job has made of it, if one has, or false
    reply[13] when it was parked, if it was
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
-- job and put it back. On 100 keys that is a tenth of the jobs/s.
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
