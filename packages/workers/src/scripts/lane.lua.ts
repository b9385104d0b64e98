/**
 * The lane decides which job may run next on an entity key. `compose.ts` puts this library of Lua functions before
 * BullMQ's own script texts. The functions run inside BullMQ's atomic step, so a job is taken and its keys are claimed
 * in one step.
 *
 * Redis keys that the library uses. `P` is `<prefix>:<queue>:`.
 *
 * - `P lane:holders`: hash from each key in use to the job ID in the key's first slot, or to a mark. `!:paused` means
 *   that the key is paused. `!:next` means that the first slot is free, but not for every job. The reason is that jobs
 *   are in line, further slots are taken, or the key has a policy. The field of a key exists as long as the key has any
 *   of this data. A field that ends with the control character 31 contains the key's policy: JSON, set by operators
 *   (see setPolicy in operators.lua.ts). The field that is only this character exists while the queue is *watched* (see
 *   watch.lua.ts), and contains the time in ms since when.
 * - `P lane:slots=<key>`: hash from slot number to job ID, for the slots after the first. Only if several jobs of a key
 *   may run.
 * - `P lane:chosen`: hash from each key that may have several slots to the job that has received a slot and has not
 *   been taken yet. The next job in line is chosen only after that, so the jobs start in order.
 * - `P lane:line=<key>`: zset of the job IDs in line for the key, scored by place. While the key is paused, the first
 *   member is `!:paused`. Its score is the end of the pause minus PAUSE_BASE. The score of a pause without an end is
 *   -inf.
 * - `P lane:paused`: hash from each paused key to JSON {reason, since, until, jobId}, for operators. `jobId` is the job
 *   whose failure stopped the key.
 * - `P lane:starts=<key>`: list of the latest start times of a key with a rate, newest first. The list is cut to the
 *   number of starts that the rate allows, and expires when the latest start no longer counts. If the key may have
 *   several slots, each time is followed by the job ID.
 * - `P lane:seq`: counter of the arrivals in lines.
 * - `P lane:watched`, `P lane:early`: what was counted while the queue was watched, see watch.lua.ts.
 * - `P lane:rules`: the options of the workers that operators must follow, without expiry (see exchange in
 *   operators.lua.ts).
 * - `P lane:notes`: not a key but a channel, which announces running jobs that were cancelled, or that a newer job has
 *   interrupted.
 * - `P <id>`: BullMQ's hash of a job, with the lane's fields.
 * - BullMQ's `wait`, `paused`, `prioritized`, `delayed`, `waiting-children`, `active`, `events`, `marker`, `limiter`,
 *   `meta` and `<id>:lock`.
 *
 * In the names with `=<key>`, the control character 31 replaces each colon of the entity key. Entity keys contain no
 * control characters. The keys for rotation are described in rotation.lua.ts.
 *
 * The lane's fields in the hash of a job are described in rules/job-fields.ts.
 *
 * A key belongs to a job until the job has finished, without a time limit. A stalled job keeps its key and runs again
 * before others. With several slots the same holds for each slot, and a single line fills them all. A parked job is in
 * BullMQ's `delayed` set, so BullMQ brings it back at its time and the lane judges it again. No job waits longer than
 * for this time, even if the holder was removed, cleaned or obliterated, or the lane's Redis keys were lost.
 *
 * The lane's names contain exactly one colon after `P`. BullMQ's own keys do not, except for `<id>:lock` and similar
 * keys of a job. BullMQ rejects job IDs with one colon but accepts IDs with two, so a second colon (`lane:line:42`)
 * could collide with a job.
 *
 * Redis does not undo a script that fails halfway. A job that moves is therefore first added to its new place, and
 * removed from the new place if it cannot leave the old one. A job that cannot be judged is set aside in `delayed`.
 * Errors after BullMQ's part of a command are reported next to its reply. A key that was only half passed on is passed
 * on when a script next looks at it.
 *
 * Definitions that the library needs before it (see compose.ts):
 *
 * - `call`, and `try`, which returns an error as a reply.
 * - SKIP, HALT, LATEST, RATE, SLOTS, TURNS: the options that all commands need. ROTATE is TURNS, but false while the
 *   queue is watched. MAY_WATCH: whether the lane follows the rule that a queue is watched.
 * - BAD, hasKeys, isSingle and pinOfData (pin.lua.ts); lockOf and unlock (key-lock.lua.ts).
 *
 * Definitions in `slowly`, which only a contended key needs:
 *
 * - NEAR, FAR, RATE_MAX, RATE_MS, WEIGHTS.
 * - LINE_MAX: the number of jobs that may wait in line for a key, or nil. DROPS_OLDEST and DROPPED: which job is
 *   dropped from a full line, and the reason that it receives.
 * - MAY_SHARE, MAY_LIMIT, MAY_DROP_OLDEST: whether operators may change the number of slots, the length of the line,
 *   and the choice of the dropped job.
 * - INTERRUPTS: whether the job that has the key must stop for a newer one.
 * - MOVES_PAUSED: whether the waiting jobs of a paused queue are in BullMQ's `paused`. True for BullMQ 5.
 * - COUNTS_FAILED: whether BullMQ's limiter counts the start of a job that stalled too often. True for BullMQ 5.
 * - bullPromote and bullMoveToActive.
 *
 * The code for contended keys is in lane/, one file for each subject. Each file uses the previous ones: limits, slots,
 * watch, line, take, full-line, parking, judge.
 *
 * Redis creates all functions of a script anew in each run. A function costs some hundred nanoseconds, and more for
 * each local of another function that it uses. Commands for a job whose key is free therefore create only a few
 * functions.
 */

import { CANCELLED } from "../rules/entity-key.ts";
import { REPLY, TAGS } from "./command-replies.ts";
import { fullLine } from "./lane/full-line.lua.ts";
import { judge } from "./lane/judge.lua.ts";
import { limits } from "./lane/limits.lua.ts";
import { line } from "./lane/line.lua.ts";
import { parking } from "./lane/parking.lua.ts";
import { slots } from "./lane/slots.lua.ts";
import { take } from "./lane/take.lua.ts";
import { watch } from "./lane/watch.lua.ts";
import { JOB } from "./rules/job-fields.ts";

/**
 * Returns the Lua that sets the prefix of the queue, the time, and the token for the lock of the next job's key. The
 * token is '' if the script must not acquire that lock.
 */
export function at(prefix: string, now: string, token = "''"): string {
  return `P, NOW, HOLDERS, CHOSEN, TOKEN, FAULT, FETCHED, LIMITED, parkedBefore = ${prefix}, ${now}, ${prefix} .. 'lane:holders', ${prefix} .. 'lane:chosen', ${token}, nil, nil, nil, parkedHere
if TURNS then ROTATE = not isWatched() end`;
}

/** Returns the library. `slowly` has the definitions of compose.ts that only a contended key needs. */
export const laneLibrary = (
  slowly: string,
  rotation: { readonly ring: string; readonly turns: string },
): string => /* lua */ `
local P, NOW, HOLDERS, CHOSEN, TOKEN, FAULT
-- The job that BullMQ has taken with this command, and that has to be judged.
local FETCHED
-- Limited keys of waiting jobs, each with the end of its limit.
local LIMITED
local PAUSED, NEXT = '!:paused', '!:next'
-- The field of HOLDERS with the rule that the queue is watched, and the content of the field: false if the queue is not
-- watched, nil while the script has not read the field.
local WATCH, watchedSince = '\\31', nil
-- Greater than any time, so that a time minus this number is less than any place in line. The difference is exact.
local PAUSE_BASE = 9000000000000000
-- The number of jobs that this script has parked, and the number before the present command.
local parkedHere, parkedBefore = 0, 0
-- The keys for which this script has parked jobs. Nil until \`contended\` is called.
local parkedFor
-- Whether a job has left its line to run.
local isClaimed = false

local function whatFailed(why) return type(why) == 'table' and why.err or tostring(why) end

-- Runs a step after BullMQ's part of a command, which is done. An error is reported next to the reply.
local function attempt(step, ...)
  local ok, result = pcall(step, ...)
  if ok then return result end
  FAULT = FAULT or whatFailed(result)
end

-- Runs a step that may fail: it is then done in another way, or later.
local function quietly(step, ...)
  local ok, result, more = pcall(step, ...)
  return ok and result, more
end

-- The policies of the keys whose first slot this script has read. False if a key has none, or a damaged one, which must
-- not stop every job of the key.
local POLICIES = {}

-- Returns what is in the first slot of the key: a job, a mark, or false.
local function firstSlot(key)
  local found = call('HMGET', HOLDERS, key, key .. '\\31', WATCH)
  POLICIES[key] = found[2] and quietly(cjson.decode, found[2])
  watchedSince = found[3]
  return found[1]
end

-- Reports whether the queue is watched: no job waits because its key is busy. Never raises an error, because a command
-- may already have handed out a job. Without an answer the queue is exclusive.
local function isWatched()
  if watchedSince == nil then
    local found = try('HGET', HOLDERS, WATCH)
    if type(found) == 'table' then return false end
    watchedSince = found
  end
  return MAY_WATCH and watchedSince ~= false
end

local function line(key) return P .. 'lane:line=' .. string.gsub(key, ':', '\\31') end

local function furtherSlots(key) return P .. 'lane:slots=' .. string.gsub(key, ':', '\\31') end

-- Returns the refusal of a cancelled job. Nil for any other job.
local function cancellation(id)
  local refusal = call('HGET', P .. id, '${JOB.refusal}')
  return refusal and string.find(refusal, BAD .. '${CANCELLED}', 1, true) == 1 and refusal
end

-- Returns the reply of a command that would let a cancelled job complete, wait or run again. Nothing was done.
local function refuse(refusal)
  return {'${TAGS.wrapped}', {'${TAGS.cancelled}', BAD .. refusal}, 1, false, false}
end

-- Reports whether no job waits, except in lines.
local function isAlone()
  return call('EXISTS', P .. 'wait', P .. 'prioritized') == 0
end

-- Returns the functions that only a contended key needs. The first call creates these functions.
local slow
local function contended()
  if slow then return slow end
  parkedFor = {}
${slowly}
  local BATCH, AHEAD_BYTES, PARKED_BY = 50, 1000000, 'nobody yet: waits for key '

  -- Reports whether this text was written when the job was parked. BullMQ may have replaced it by the name of a worker.
  local function isParkedBy(by) return string.find(by, PARKED_BY, 1, true) == 1 end

  local function hasFailed(reply) return type(reply) == 'table' and reply.err end

  -- Tries a command twice, because a job would be in two places without it.
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

  -- Reports whether this job will still release the key. True for a job that is active, stalled, chosen and waiting, or
  -- waiting for its retry. False for a job that a plain worker moved away without releasing its key. False for a job in
  -- line with the ID of an earlier holder, which disown prevents already: this is a second line of defence.
  local function holds(id, key)
    local pin, finishedOn, place, lockPlace =
      unpack(call('HMGET', P .. id, '${JOB.keys}', 'finishedOn', '${JOB.place}', '${JOB.lockPlace}'))
    return pinned(pin, key) and not finishedOn and not place
      -- BullMQ's lock: the job is active, so it is nowhere else.
      and (call('EXISTS', P .. id .. ':lock') == 1 or not call('ZSCORE', P .. 'waiting-children', id)
        and (not SKIP or lockPlace or not call('ZSCORE', P .. 'delayed', id)))
  end

  -- Returns the time of Redis, which all workers share. Pauses and limits do not depend on the clocks of the workers.
  local function redisMs()
    local time = call('TIME')
    return time[1] * 1000 + math.floor(time[2] / 1000)
  end

  -- Returns the number of ms after which a job at this rank in line is judged again. If thousands of keys have jobs in
  -- line, the number is greater, so that Redis is not busy judging them.
  local keyCount
  local function patience(rank)
    keyCount = keyCount or call('HLEN', HOLDERS)
    return math.min(NEAR * (rank + 1 + math.floor(keyCount / 1000)), FAR)
  end

${limits}
${slots}
${watch}
${line(rotation.ring)}
${take}
${fullLine}
${parking}
${judge(rotation.turns)}
  slow = {
    keysOf = keysOf, holds = holds, disown = disown, promoteToFront = promoteToFront, release = release,
    uncount = uncount, fetch = fetch, halt = halt, haltedBy = haltedBy, frontPlace = frontPlace, pinned = pinned,
    heal = heal, sift = ROTATE and parkAhead or sift, othersGoFirst = othersGoFirst, putNext = putNext, takeBack = takeBack, claimNext = claimNext, holderOf = holderOf,
    pause = pause, pausedFor = pausedFor, await = await, backOff = backOff, limitedFor = limitedFor,
    uncountStart = uncountStart, redisMs = redisMs, slotOf = slotOf, holdersOf = holdersOf, startsOf = startsOf,
    leave = leave, leaveLines = leaveLines, leaveFull = leaveFull, isShared = isShared, slotCount = slotCount, capacity = capacity, rateOf = rateOf, jobAt = jobAt, unknownJob = unknownJob
  }
  return slow
end

-- Removes BullMQ's marker at the end of a request, so that no further worker is woken for an empty queue.
local function calmly(reply)
  if isClaimed and quietly(isAlone) then quietly(call, 'ZREM', P .. 'marker', '0') end
  return reply
end

-- Reports whether the job is the holder of its one key, and whether another job waits for the key or has a slot of it.
local function holderState(id, pin)
  local isHolder = hasKeys(pin) and isSingle(pin) and firstSlot(pin) == id
  if not isHolder then return false, false end
  -- A key with a policy is not forgotten.
  if POLICIES[pin] then return true, true end
  if SLOTS > 1 then return true, call('EXISTS', line(pin), furtherSlots(pin)) > 0 end
  return true, call('EXISTS', line(pin)) == 1
end

-- Passes the keys of a job that no longer needs them to the first jobs in line. Returns a job that may run now, if any.
local function release(id, pin, turnText)
  pin = pin or call('HGET', P .. id, '${JOB.keys}')
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
  return contended().release(id, pin, turnText)
end

-- Completes the reply of a command that asked BullMQ for a job: BullMQ's \`reply\`, and its packed \`opts\`. Adds the
-- job's facts to it (REPLY). Instead of a job, it replies {TAGS.again, parked, fault} if the fetch is to be repeated,
-- because more than a batch was parked or, with a fault, a job could not be judged. Or it replies {TAGS.ask, jobs} if
-- the keys of these jobs have to be computed first. See command-replies.ts.
local function fetch(reply, opts)
  if ROTATE then return contended().fetch(reply, opts) end
  if type(reply) ~= 'table' or type(reply[1]) ~= 'table' then return reply end
  local id, fields = reply[2], reply[1]
  local pin, data
  for i = 1, #fields, 2 do
    local field = fields[i]
    if field == '${JOB.keys}' then pin = fields[i + 1]
    elseif field == 'data' then data = fields[i + 1]
    elseif field == '${JOB.refusal}' or field == '${JOB.place}' or field == '${JOB.moreKeys}' or field == '${JOB.lockPlace}' or field == '${JOB.outcome}' then return contended().fetch(reply, opts) end
  end
  pin = pin or pinOfData(data)
  if RATE and pin ~= '' then return contended().fetch(reply, opts) end
  if hasKeys(pin) and isSingle(pin) and try('HSETNX', HOLDERS, pin, id) == 1 and type(try('HSET', P .. id, '${JOB.keys}', pin)) == 'number' then
  elseif pin ~= '' then
    return contended().fetch(reply, opts)
  end
  reply[${REPLY.pin}] = pin
  reply[${REPLY.parked}] = parkedHere - parkedBefore
  reply[${REPLY.fencingToken}] = lockOf(pin, TOKEN)
  return reply
end

-- Parks jobs ahead of the next fetch if this script has met a busy key already, because the fetch is likely to meet
-- another. Taking such a job and putting it back costs more. On 100 keys this gains a tenth of the jobs/s.
local function siftAhead(ending)
  if ROTATE then return end
  if slow then slow.sift(ending) end
end

-- Takes the next job after a command that ended or moved a job, if BullMQ was asked for one.
local function follow(reply, chosen, fetchNext, opts)
  if fetchNext ~= '1' then return reply end
  if type(reply) == 'table' and type(reply[1]) == 'table' then return fetch(reply, opts) end
  if chosen then return contended().fetch(nil, opts) end
  -- The job whose turn it was may be gone.
  return ROTATE and contended().fetch(reply, opts) or reply
end

-- Wraps the reply of a command if there is more to report: whether the lock that was to be released was kept, what went
-- wrong after BullMQ's part, and the keys that are limited, each with the end of its limit. See WRAPPED in
-- command-replies.ts.
local function wrapReply(reply, isKept)
  if not (isKept or FAULT or LIMITED) then return reply end
  local limited = LIMITED and {}
  for key, ends in pairs(LIMITED or {}) do
    limited[#limited + 1] = key
    limited[#limited + 1] = string.format('%.0f', ends)
  end
  return {'${TAGS.wrapped}', reply, isKept and 1 or 0, FAULT or false, limited or false}
end
`;
