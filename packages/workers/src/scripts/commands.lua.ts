/**
 * The lane's side of the five BullMQ commands that fetch, end or move a job. KEYS and ARGV are passed by the installed
 * BullMQ. A command that may take the next job has one more argument at the end: the token for the lock of that job's
 * key. The token is '' if the script must not acquire the lock. The comment of a command describes the text before the
 * token.
 *
 * A job that was cancelled can only fail, so a command that would let the job complete, wait or run again is refused.
 * Only BullMQ's retry of a failed job is not refused: the job then fails when it is taken next.
 *
 * Each command calls BullMQ's unchanged script text as `bull…`, and replies BullMQ's reply. `fetch` and `wrapReply` in
 * lane.lua.ts describe the additions.
 *
 * BullMQ packs its options. The lane passes them as JSON, or as a table (`unpackable`).
 */

import { REPLY, TAGS } from "./command-replies.ts";
import { at } from "./lane.lua.ts";
import { JOB } from "./rules/job-fields.ts";

/**
 * Defined first. Lets BullMQ's texts unpack tables and JSON objects. No packed object begins with the first byte of
 * JSON.
 */
export const unpackable: string = /* lua */ `
-- cjson decodes null to a value that is not nil.
local function withoutNull(object)
  for name, value in pairs(object) do
    if value == cjson.null then object[name] = nil elseif type(value) == 'table' then withoutNull(value) end
  end
  return object
end

local packer = cmsgpack
local cmsgpack = {pack = packer.pack, unpack = function(packed)
  if type(packed) == 'table' then return packed end
  return string.byte(packed, 1) == 123 and withoutNull(cjson.decode(packed)) or packer.unpack(packed)
end}

-- The key of the marker that this script has set, with which BullMQ wakes idle workers.
local MARKED
`;

/** The texts before and after the space in the last argument. */
const SPLIT = "string.match(ARGV[#ARGV], '^(%S*) (.*)$')";

/** With `whenBusy: "latest"`, a job that releases its key until its retry keeps its age for the retry. */
const keepAge = (id: string): string =>
  `if LATEST then attempt(call, 'HSETNX', P .. ${id}, '${JOB.firstFailure}', attempt(call, 'INCR', P .. 'lane:seq')) end`;

/** With `whenBusy: "latest"`, a job that has ended and is retried by hand is as new as any other. */
const forget = (id: string): string =>
  `\nattempt(call, 'HDEL', P .. ${id}, '${JOB.refusal}', '${JOB.firstFailure}', '${JOB.parkedAt}')`;

/** ARGV[#ARGV]: "<token>". */
export const moveToActive: string = /* lua */ `
${at("ARGV[1]", "ARGV[2]", "ARGV[#ARGV]")}
return calmly(wrapReply(fetch(bullMoveToActive(KEYS, ARGV), ARGV[3])))
`;

/**
 * The end of one job, as `eachEnd` calls it. ARGV[10] is "=<the job's keys>", or '' if the script must read the keys
 * (see `TakenJob.keysArgument`). ARGV[6] is 'unstarted' for a cancelled job that has not started, which stops no key.
 *
 * ARGV[#ARGV]: "<token of the lock of the job's key, if it is to be released> <token>". A negative reply means that the
 * job is no longer the caller's: then its key is not the caller's to pass on either.
 */
export const moveToFinished = ({ supersedes }: { readonly supersedes: boolean }): string => /* lua */ `
local ownToken, token = ${SPLIT}
${at("ARGV[7]", "ARGV[2]", "token")}
local refusal = ARGV[5] == 'completed' and quietly(cancellation, ARGV[1])
if refusal then return refuse(refusal) end
local isAsked = ARGV[10] == '' or TURNS
local stored, outcome, turn =
  unpack(isAsked and attempt(call, 'HMGET', P .. ARGV[1], '${JOB.keys}', '${JOB.outcome}', '${JOB.turn}') or {})
local pin = stored or string.sub(ARGV[10], 2)
-- The key's next job goes first, and BullMQ's own fetch takes it: this gains a tenth of the jobs/s on 100 keys. With
-- rotation, only if no other key waits or the key's turn continues.
local stops = HALT and ARGV[5] == 'failed' and ARGV[6] ~= 'unstarted' and not isWatched()
local mayFetch = ARGV[6] == '1' and not stops
local isHolder, isWanted = quietly(holderState, ARGV[1], pin)
local slot = (SLOTS > 1 or POLICIES[pin]) and not isHolder and hasKeys(pin) and quietly(contended().slotOf, ARGV[1], pin)
local isTurnOfKey = isWanted and (not ROTATE or turn or not quietly(contended().othersGoFirst))
local next = mayFetch and isTurnOfKey and quietly(contended().putNext, pin)
if ARGV[6] == '1' and not next then quietly(siftAhead, pin) end
local reply = bullMoveToFinished(KEYS, ARGV)
local isNext = next and type(reply) == 'table' and reply[2] == next
if next and not isNext then attempt(contended().takeBack, next, pin) end
if type(reply) == 'number' and reply < 0 then return reply end${supersedes ? forget("ARGV[1]") : ""}
if ARGV[5] == 'failed' then attempt(call, 'HDEL', P .. ARGV[1], '${JOB.refusal}') end
if hasKeys(pin) and isWatched() then attempt(call, 'HINCRBY', P .. 'lane:watched', 'ended', 1) end
-- The outcome that another job's processor call has set is used up.
if outcome then attempt(call, 'HDEL', P .. ARGV[1], '${JOB.outcome}') end
if type(reply) == 'table' then FETCHED = reply[2] end
if turn then attempt(call, 'HDEL', P .. ARGV[1], '${JOB.turn}') end
if isNext and attempt(contended().claimNext, next, pin, reply, turn) then
  reply[${REPLY.fencingToken}] = passOn(pin, ownToken, token)
  local isKept = ownToken ~= '' and not reply[${REPLY.fencingToken}] and not unlock(pin, ownToken)
  reply[${REPLY.fencingToken}] = reply[${REPLY.fencingToken}] or lockOf(pin, token)
  return wrapReply(reply, isKept)
end
local isKept = ownToken ~= '' and not (hasKeys(pin) and unlock(pin, ownToken, slot))
if stops and hasKeys(pin) then attempt(contended().halt, ARGV[1], pin) end
local chosen
-- If nothing was parked for the key meanwhile, still no job waits.
if isHolder and not isWanted and not stops and not (slow and (SLOTS > 1 or parkedFor[pin])) then
  attempt(call, 'HDEL', HOLDERS, pin)
else
  chosen = not FAULT and attempt(release, ARGV[1], pin, turn)
end
return wrapReply(attempt(follow, reply, chosen, ARGV[6], ARGV[8]) or 0, isKept)
`;

/**
 * Runs some functions of BullMQ's `moveToFinished` once per request, because no other client acts between its ends. The
 * functions trim the stream of events, move due jobs out of `delayed`, wake idle workers, and check whether the queue
 * is paused. On 100 keys this gains a twentieth of the jobs/s. `lua` is BullMQ's text; one version has another name for
 * the last function.
 */
export const oncePerRequest = (lua: string): string => {
  const metadata = lua.includes("local function getQueueMetadata(") ? "getQueueMetadata" : "getTargetQueueList";
  return /* lua */ `
local trim, isTrimmed = trimEvents, false
trimEvents = function(...)
  if isTrimmed then return end
  trim(...)
  isTrimmed = true
end

local promote, promotedMs = promoteDelayedJobs, -1
promoteDelayedJobs = function(delayedKey, markerKey, targetKey, prioritizedKey, eventsKey, prefix, timestamp, ...)
  local nowMs = tonumber(timestamp)
  if nowMs <= promotedMs then return end
  promote(delayedKey, markerKey, targetKey, prioritizedKey, eventsKey, prefix, timestamp, ...)
  promotedMs = nowMs
end

local mark = addBaseMarkerIfNeeded
addBaseMarkerIfNeeded = function(markerKey, isPausedOrMaxed)
  if isPausedOrMaxed or MARKED == markerKey then return end
  mark(markerKey, isPausedOrMaxed)
  MARKED = markerKey
end

local metadata, known = ${metadata}, {}
${metadata} = function(metaKey, ...)
  local facts = known[metaKey]
  if facts == nil then
    -- The number of running jobs must be counted each time.
    facts = rcall('HEXISTS', metaKey, 'concurrency') == 0 and {metadata(metaKey, ...)}
    known[metaKey] = facts
  end
  if not facts then return metadata(metaKey, ...) end
  return unpack(facts, 1, 4)
end
`;
};

/**
 * Ends many jobs of one worker, each as if alone: `moveToFinished` is the function `finish` here. Replies the JSON of
 * the replies, with {TAGS.error, text} for an end that failed.
 *
 * KEYS are BullMQ's without the keys of the job. ARGV[1] is the queue's prefix. These arguments of each job follow:
 * - The job's ID, the end time, the property, the value and the state.
 * - '1' to fetch the next job.
 * - The options as JSON, and BullMQ's token.
 * - The last two arguments of `moveToFinished`.
 * - The number of texts that follow: names and values of fields to set.
 */
export const eachEnd: string = /* lua */ `
local prefix, keys = ARGV[1], {}
for i = 1, 10 do keys[i] = KEYS[i] end
keys[14] = KEYS[11]
local replies, known = {}, {}
local i = 2
while i < #ARGV do
  local id, state, text, count = ARGV[i], ARGV[i + 4], ARGV[i + 6], tonumber(ARGV[i + 10])
  keys[11], keys[12], keys[13] = prefix .. state, prefix .. id, prefix .. 'metrics:' .. state
  local options = known[text] or cmsgpack.unpack(text)
  known[text] = options
  options.token = ARGV[i + 7]
  local fields = ''
  if count > 0 then
    fields = {}
    for j = 1, count do fields[j] = ARGV[i + 10 + j] end
  end
  local ok, reply = pcall(finish, keys, {
    id, ARGV[i + 1], ARGV[i + 2], ARGV[i + 3], state, ARGV[i + 5], prefix, options, fields, ARGV[i + 8], ARGV[i + 9]
  })
  if not ok then reply = {'${TAGS.error}', type(reply) == 'table' and reply.err or tostring(reply)} end
  replies[#replies + 1] = reply
  i = i + 11 + count
end
return cjson.encode(replies)
`;

/** Calls `eachEnd`, which is the function `endAll` here. */
export const endCalmly: string = /* lua */ `return calmly(endAll(KEYS, ARGV))`;

/**
 * ARGV[#ARGV]: "<how> <token>". `how` is one of these texts:
 * - '': an ordinary delay.
 * - "<place>" or "<place>@<ms>": other code holds the job's lock. The job keeps its keys, and no attempt is counted.
 *   The place is for the line of the lock, and <ms> is when the job was parked.
 * - "!<ms>": the job backs off, and no job of its keys starts for this number of ms.
 *
 * ARGV[6] is '1' if the processor asked for the delay, and '0' for the backoff of a retry.
 */
export const moveToDelayed: string = /* lua */ `
local how, token = ${SPLIT}
${at("ARGV[1]", "ARGV[2]", "token")}
local id = ARGV[3]
local refusal = quietly(cancellation, id)
if refusal and (how ~= '' or ARGV[6] == '1') then return refuse(refusal) end
local reply = bullMoveToDelayed(KEYS, ARGV)
if type(reply) == 'number' and reply < 0 then return reply end
if type(reply) == 'table' then FETCHED = reply[2] end
local chosen
attempt(call, 'HDEL', P .. id, '${JOB.outcome}')
local backOffMs = tonumber(string.match(how, '^!(%d+)$'))
if backOffMs then
  attempt(contended().backOff, id, backOffMs)
elseif how ~= '' then
  attempt(contended().uncount, id)
  local place, since = string.match(how, '^([^@]*)@?(.*)$')
  local field = since ~= '' and '${JOB.parkedAt}' or '${JOB.lockPlace}'
  attempt(call, 'HSET', P .. id, '${JOB.lockPlace}', place, field, since ~= '' and since or place)
  attempt(contended().uncountStart, id)
elseif not refusal and (SKIP or ARGV[6] == '1') then
  if ARGV[6] ~= '1' then
    ${keepAge("id")}
  end
  chosen = attempt(release, id)
elseif attempt(call, 'HEXISTS', P .. id, '${JOB.refusal}') == 1 then
  -- A newer job has superseded this job, or the job was cancelled. The keys do not wait for the retry.
  attempt(contended().promoteToFront, id)
  chosen = id
end
return calmly(wrapReply(attempt(follow, reply, chosen, ARGV[8], ARGV[9]) or 0))
`;

export const moveToWaitingChildren: string = /* lua */ `
${at("ARGV[5]", "ARGV[3]")}
local refusal = quietly(cancellation, ARGV[4])
if refusal then return refuse(refusal) end
local reply = bullMoveToWaitingChildren(KEYS, ARGV)
if reply == 0 then attempt(release, ARGV[4]) end
return wrapReply(reply)
`;

export const retryJob: string = /* lua */ `
${at("ARGV[1]", "ARGV[2]")}
local reply = bullRetryJob(KEYS, ARGV)
if reply == 0 then attempt(call, 'HDEL', P .. ARGV[4], '${JOB.outcome}') end
if reply == 0 and quietly(cancellation, ARGV[4]) then
  attempt(contended().promoteToFront, ARGV[4])
elseif reply == 0 and SKIP then
  ${keepAge("ARGV[4]")}
  attempt(release, ARGV[4])
end
return wrapReply(reply)
`;
