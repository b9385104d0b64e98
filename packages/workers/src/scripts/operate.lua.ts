/**
 * The one script of the functions in operators.lua.ts. The lane library comes before it. The parameters are:
 *
 * - KEYS[1]: P lane:holders, for the slot.
 * - KEYS[2]: P lane:none, which never exists. A Cluster that moves the slot key by key then refuses the whole script,
 *   which would otherwise find only some of its keys.
 * - KEYS[3]: P lane:rules, the rules of the workers: "<ID of the worker that stored them> <JSON>".
 * - ARGV[1]: P.
 * - ARGV[2]: the time in ms.
 * - ARGV[3]: the name of the function, followed by its arguments.
 * - ARGV[#ARGV]: "=<JSON>", the rules with which the caller has composed this script. A caller that runs no jobs must
 *   follow the rules of the workers. If the stored rules are different, the script only replies {TAGS.rules, JSON}. A
 *   worker follows its own rules, and passes ''.
 *
 * Redis compiles one text and keeps one copy of the library. With a script for each function, Redis compiled twenty.
 */
import { TAGS } from "./command-replies.ts";
import { at } from "./lane.lua.ts";
import { JOB_FACTS, KEY_FACTS } from "./operator-replies.ts";
import * as operators from "./operators.lua.ts";
import { JOB } from "./rules/job-fields.ts";

export type OperatorCommand = keyof typeof operators;

/** No function has more parameters than this. */
const PARAMETERS = ["ARGV[4]", "ARGV[5]", "ARGV[6]", "ARGV[7]"];

const functions = Object.entries(operators).map(([name, text]) => `${name} = ${text}`);

export const operate: string = /* lua */ `
${at("ARGV[1]", "ARGV[2]")}

local expected = table.remove(ARGV)
if expected ~= '' then
  local stored = string.match(call('GET', KEYS[3]) or '', '^%S* (.*)$') or ''
  if '=' .. stored ~= expected then return {'${TAGS.rules}', stored} end
end

-- Returns the arguments after the first \`count\` arguments of the function.
local function argumentsAfter(count)
  local list = {}
  for i = 4 + count, #ARGV do list[#list + 1] = ARGV[i] end
  return list
end

-- Returns the rate of a key with the counted starts as "<starts>,<max>,<ms>"; '' if the key has no rate.
local function rateOf(key)
  local lane = contended()
  local max, ms = lane.rateOf(key)
  if not max then return '' end
  -- The newest starts come first, so all counted starts come before all others.
  local counted, beyond, now = 0, call('LLEN', lane.startsOf(key)), lane.redisMs()
  while counted < beyond do
    local middle = math.floor((counted + beyond) / 2)
    local start = string.match(call('LINDEX', lane.startsOf(key), middle), '^%d+')
    if tonumber(start) + ms > now then counted = middle + 1 else beyond = middle end
  end
  return string.format('%.0f,%.0f,%.0f', counted, max, ms)
end

-- Reports whether the worker of a job is gone: the job is active, and BullMQ's lock of the job has expired.
local function isStalled(id)
  return call('EXISTS', P .. id .. ':lock') == 0 and call('LPOS', P .. 'active', id) and true or false
end

-- Returns the reports of at most 500 workers with keys: {seconds since the report, report as JSON, ID of the worker}.
local function reports()
  local members, found, now = call('HGETALL', P .. 'lane:workers'), {}, tonumber(call('TIME')[1])
  for i = 1, math.min(#members, 1000), 2 do
    local seen, report = string.match(members[i + 1], '^(%d+) (.*)$')
    if seen then found[#found + 1] = {math.max(0, now - tonumber(seen)), report, members[i]} end
  end
  return found
end

-- Returns the ID of the worker that BullMQ's lock of a job names; '' if there is none.
local function workerOf(id)
  return string.match(call('GET', P .. id .. ':lock') or '', '^([%x-]+):%d+$') or ''
end

-- Returns the facts of the queue's workers: the number of active jobs, whether BullMQ's lock of one of the newest
-- exists, and the reports.
local function fleet()
  local isHeard = 0
  for _, id in ipairs(call('LRANGE', P .. 'active', 0, 99)) do
    if call('EXISTS', P .. id .. ':lock') == 1 then isHeard = 1 break end
  end
  return {call('LLEN', P .. 'active'), isHeard, reports()}
end

-- Returns the state of a job, as BullMQ names it.
local function stateOf(id)
  for _, state in ipairs({'completed', 'failed', 'delayed', 'prioritized', 'waiting-children'}) do
    if call('ZSCORE', P .. state, id) then return state end
  end
  if call('LPOS', P .. 'active', id) then return 'active' end
  for _, list in ipairs({'wait', 'paused'}) do
    if call('LPOS', P .. list, id) then return 'waiting' end
  end
  return 'unknown'
end

-- Returns the number of jobs that a free slot would take. 0 while the queue is paused.
local function runnable()
  if call('HEXISTS', P .. 'meta', 'paused') == 1 then return 0 end
  -- A key that waits for its turn has at least one job.
  local turns = ROTATE and call('ZCARD', P .. 'lane:ring') or 0
  return call('LLEN', P .. 'wait') + call('ZCARD', P .. 'prioritized') + turns
end

-- Returns the facts of a key that operators see. A fact that does not apply is ''.
local function keyFacts(key)
  local lane = contended()
  local isPaused = lane.pausedFor(key)
  local holders = lane.holdersOf(key)
  local heads = call('ZRANGE', line(key), 0, 1)
  local head = heads[1] == PAUSED and heads[2] or heads[1]
  local _, limitedUntil = lane.limitedFor(key)
  return {
    key = key,
    holders = table.concat(holders, '\\31'),
    startedOn = holders[1] ~= '' and call('HGET', P .. holders[1], 'processedOn') or '',
    parked = call('ZCARD', line(key)) - (isPaused and 1 or 0),
    pause = call('HGET', P .. 'lane:paused', key) or '',
    limitedUntil = limitedUntil and string.format('%.0f', limitedUntil) or '',
    slots = lane.slotCount(key),
    rate = rateOf(key),
    policy = POLICIES[key] and call('HGET', HOLDERS, key .. '\\31') or '',
    waitingSince = head and call('HGET', P .. head, 'timestamp') or '',
    keysAhead = ROTATE and call('ZRANK', P .. 'lane:ring', key) or '',
    isStalled = holders[1] ~= '' and isStalled(holders[1]) and 1 or 0
  }
end

local function watchedFacts(most)
  local reply = call('HMGET', P .. 'lane:watched', 'since', 'until', 'ended', 'overlaps', 'outOfOrder')
  table.insert(reply, 1, call('HEXISTS', HOLDERS, WATCH))
  reply[7] = call('ZREVRANGE', P .. 'lane:early', 0, most - 1, 'WITHSCORES')
  return reply
end

local function keyReply(facts) return ${KEY_FACTS.arrayOf("facts")} end

-- Returns the facts of a job, followed by an array for each of its keys: whether the holder was removed, the job's rank
-- in line or -1, and the facts of the key. Returns {} if the job does not exist.
local function jobReply(id)
  local pin, place, finishedOn, data, name, lockPlace, processedOn, parkedAt = unpack(call('HMGET', P .. id,
    '${JOB.keys}', '${JOB.place}', 'finishedOn', 'data', 'name', '${JOB.lockPlace}', 'processedOn', '${JOB.parkedAt}'))
  if not data and not name then return {} end
  pin = pin or (data and pinOfData(data)) or false
  local due = call('ZSCORE', P .. 'delayed', id)
  local facts = {
    name = name or '', pin = pin, isParked = place and 1 or 0,
    due = due and string.format('%.0f', math.floor(tonumber(due) / 4096)) or '', isFinished = finishedOn and 1 or 0,
    waitsForLock = lockPlace and 1 or 0, isQueuePaused = call('HEXISTS', P .. 'meta', 'paused'),
    isStalled = isStalled(id) and 1 or 0, state = stateOf(id), startedOn = processedOn or '', parkedAt = parkedAt or '',
    worker = workerOf(id), lockMs = call('PTTL', P .. id .. ':lock'),
    cancellation = finishedOn and '' or BAD .. (cancellation(id) or '')
  }
  local reply = ${JOB_FACTS.arrayOf("facts")}
  for _, key in ipairs(hasKeys(pin) and contended().keysOf(pin) or {}) do
    local isPaused = contended().pausedFor(key)
    local holder = contended().holdersOf(key)[1]
    local rank = call('ZRANK', line(key), id)
    local isRemoved = holder ~= '' and not contended().holds(holder, key) and 1 or 0
    reply[#reply + 1] = {isRemoved, rank and (isPaused and rank - 1 or rank) or -1, keyReply(keyFacts(key))}
  end
  return reply
end

-- A function may call others.
local functions
functions = {
${functions.join(",\n")}
}
return functions[ARGV[3]](${PARAMETERS.join(", ")})
`;
