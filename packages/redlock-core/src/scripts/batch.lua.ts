/**
 * The script of the lock protocol. It performs all operations that a client issued to a node in one turn of its event
 * loop, in the order of issue. An operation fails alone: because of a key of another type, for lack of memory, or
 * because its text cannot be read.
 *
 * # The rule
 *
 * A node grants an attempt if all of these are true of each of its resources:
 * 1. The lock's key is missing, or is reserved for this waiter or for a waiter behind it.
 * 2. No waiter is in line before it.
 * 3. One of several nodes: the proposed ballot is above the register, and not far ahead of the node's time. A node
 *    alone: its next number is a valid fencing token (number.lua.ts).
 *
 * A grant sets every lock key to the token of the attempt, removes the waiter from the lines, and stores the ballot or
 * the number. A holder releases and extends a lock only while the lock's key has its token. A released lock is handed
 * over to the first waiter. This is the long form: acquire.lua.ts, extend.lua.ts, release.lua.ts and hand-over.lua.ts.
 *
 * # Two short forms
 *
 * Creating the functions of the long form is most of the script's time, so the first operation that needs them creates
 * them. Two short forms do without. A test compares both with the rule on random states (short-way.test.ts).
 * - In the loop: an operation about one resource that nobody waits for.
 * - `waiters` (waiters.lua.ts): a request that hands one lock over.
 *
 * # The request
 *
 * ARGV[1] contains the following, one after the other:
 * - mode: one character, see below.
 * - greatest fencing token that the client received from the node: 16 digits.
 * - quarantine in ms, or 0. A space follows.
 * - life of a reservation in ms. A space follows.
 * - 1 if PUBLISH counts every subscriber of the node, otherwise 0. A space follows.
 * - life of an idle line of waiters in ms.
 *
 * In mode N, the number of fencing registers follows, then the registers: one for each lock key of each acquisition.
 * The rest of ARGV is one text per operation (operation.ts).
 *
 * Every key that the script reads or writes is in KEYS. KEYS[1] and KEYS[2] contain the lines of waiters
 * (hand-over.lua.ts). The keys of the mode follow, then the keys of each operation: one lock key for each resource,
 * then one side key for each resource if the operation needs side keys (`SIDE_KEYS`). So the side key of
 * KEYS[i] is KEYS[i + count], where `count` is the number of resources. The modes (keys.ts names their keys):
 * - 1: the node alone votes and forgets nothing, so it numbers the grants. KEYS[3] is the last number.
 * - Q: the same with quarantine. KEYS[3] is the node's hash, KEYS[4] the last number.
 * - N: the node is one of several. KEYS[3] is the node's hash.
 * - R: the request contains only releases. The node may be of either kind.
 *
 * The node's hash contains `run_id`, `since` and `quarantine` (quarantine.lua.ts), and the fencing registers 0 to
 * 16383. A register is the largest ballot that was granted for any resource whose key has this hash slot. Resources
 * share registers, so a valid ballot may be refused, but an outdated one is never accepted. The registers cannot be
 * lost without the `run_id` next to them.
 *
 * # The reply
 *
 * {node's time in µs, or 0 if it was not read; quarantineLeftMs; reply of operation 1, 2, …}. The reply is one value if
 * a node that may vote granted, extended or released everything: 1, or the number of the last grant. This number is a
 * text, and the grants before have the numbers before.
 */

import {
  codeOf,
  FIELDS,
  isAcquisition,
  LAST_PLACE,
  LETTER,
  LETTERS,
  MODE,
  type OperationKind,
  SIDE_KEYS,
} from "../rules/operation.ts";
import { defineScript, type NodeScript } from "../rules/script.ts";
import { acquire } from "./acquire.lua.ts";
import { extend } from "./extend.lua.ts";
import { handOver, lengthOfLine, waiting } from "./hand-over.lua.ts";
import { greatestBallot, isToken, noToken, readFloor, readTime } from "./number.lua.ts";
import { quarantine } from "./quarantine.lua.ts";
import { release } from "./release.lua.ts";
import { lineSettings, waiters } from "./waiters.lua.ts";

const ACQUIRE = codeOf(LETTER.acquireOne);
const RELEASE = codeOf(LETTER.releaseOne);
const EXTEND = codeOf(LETTER.extendOne);

const field = ([from, to]: readonly [from: number, to?: number]): string =>
  `sub(text, ${to === undefined ? from : `${from}, ${to}`})`;
const TOKEN = field(FIELDS.token);
const BALLOT = field(FIELDS.ballot);
const ACQUIRE_TTL = field(FIELDS.acquireTtl);
const EXTEND_REGISTER = field(FIELDS.extendRegister);
const EXTEND_TTL = field(FIELDS.extendTtl);

const KINDS = Object.keys(LETTERS) as OperationKind[];
const isOneOf = (kinds: readonly OperationKind[]): string => {
  const letters = kinds.flatMap((kind) => LETTERS[kind]);
  return `(${letters.map((letter) => `kind == ${codeOf(letter)}`).join(" or ")})`;
};
const acquires = isOneOf(KINDS.filter(isAcquisition));
const hasSideKey = isOneOf(KINDS.filter((kind) => SIDE_KEYS[kind] !== undefined));

const start = /* lua */ `
local call, try, byte, sub = redis.call, redis.pcall, string.byte, string.sub
local header, last = ARGV[1], #ARGV
local mode, lines, lineEnds, topKey = byte(header), KEYS[1], KEYS[2], KEYS[3]
local several = mode == ${codeOf(MODE.several)}
local now, seen, limit, quarantineLeftMs = nil, nil, nil, 0
local isWaiting = call('EXISTS', lines) == 1
`;

/** Reads the time, the registers of the request, and the quarantine. */
const look = /* lua */ `
local firstOperation, first, register = 2, 4, 3
if mode == ${codeOf(MODE.releases)} then first = 3
else ${readTime}
  if several then
    local registers = tonumber(ARGV[2])
    local atOnce = math.min(registers, 1000)
    seen = call('HMGET', KEYS[3], 'run_id', 'since', unpack(ARGV, 3, atOnce + 2))
    for i = atOnce + 3, registers + 2 do seen[i] = call('HMGET', KEYS[3], ARGV[i])[1] end
    limit, firstOperation = ${greatestBallot}, registers + 3
  elseif mode == ${codeOf(MODE.aloneQuarantined)} then
    seen, topKey, first = call('HMGET', KEYS[3], 'run_id', 'since'), KEYS[4], 5
  end
  ${quarantine}
end
`;

/** Sets `top` to the last number before the numbers of this request. */
const startNumbers = /* lua */ `
  ${readFloor}
  top = floor < now and now - 1 or floor + 0`;

/** The long form. Defines `long(text, kind)`, which replies to one operation and returns its number of resources. */
const longForm = /* lua */ `
  local match = string.match
  if not now then ${readTime}
  end
  ${lineSettings}
  local function nextNumber()
    if not top then ${startNumbers}
    end
    if not ${isToken("top + 1")} then error({err = ${noToken("string.format('%.0f', top + 1)")}}) end
    top = top + 1
    return top
  end
  local function raise(name, ballot)
    raised[name] = ballot
    writes[#writes + 1] = name
    writes[#writes + 1] = ballot
  end
  ${handOver}
  ${waiting}
  ${acquire}
  ${extend}
  ${release}
  local operations = {
    ${LETTER.acquire} = {acquire, '^A(%d+) (%S+) (%d+) (%S+) (%d+)$'},
    ${LETTER.acquireNoted} = {acquire, '^N(%d+) (%S+) (%d+) (%S+) (%d+) (.*)$'},
    ${LETTER.extend} = {extend, '^E(%d+) (%d+) (%-?%d+) (%d+) (.*)$'},
    ${LETTER.repair} = {repair, '^P(%d+) (%d+) (%-?%d+) (%d+) (.*)$'},
    ${LETTER.release} = {release, '^R(%d+) (.*)$'},
    ${LETTER.leave} = {leave, '^L(%d+) (.*)$'},
    ${LETTER.wait} = {wait, '^W(%d+) (.*)$'},
  }
  handOverAtEnd = handOverFreed
  long = function(text, kind)
    if kind == ${ACQUIRE} then return acquire(first, 1, ${TOKEN}, ${BALLOT}, '${LAST_PLACE}', ${ACQUIRE_TTL}), 1 end
    if kind == ${RELEASE} then return release(first, 1, ${field(FIELDS.releasedToken)}), 1 end
    if kind == ${EXTEND} then return extend(first, 1, ${EXTEND_TTL}, ${BALLOT}, ${EXTEND_REGISTER}, ${TOKEN}), 1 end
    local operation = operations[sub(text, 1, 1)]
    local countText, a, b, c, d, e = match(text, operation[2])
    local count = tonumber(countText)
    if not count then error({err = 'ERR operation ' .. sub(text, 1, 1) .. ' cannot be read'}) end
    return operation[1](first, count, a, b, c, d, e), count
  end`;

/** The short form in the loop. Sets `reply` if it has performed the operation. */
const shortForm = /* lua */ `
  if kind == ${ACQUIRE} then
    if not (isWaiting and ${lengthOfLine("key")} > 0) then
      local name, ballot = ARGV[register], ${BALLOT}
      local stored = several and (raised[name] or seen[register])
      local mayGrant = not several or ballot <= limit and (not stored or stored < ballot)
      local set = mayGrant and try('SET', key, ${TOKEN}, 'PX', ${ACQUIRE_TTL}, 'NX')
      if set and not set.err then
        if several then
          reply, raised[name] = 1, ballot
          local size = #writes
          writes[size + 1], writes[size + 2] = name, ballot
        else
          if not top then ${startNumbers}
          end
          if ${isToken("top + 1")} then
            top = top + 1
            reply = top
          else
            call('DEL', key)
          end
        end
      end
    end
  elseif kind == ${RELEASE} then
    if try('GET', key) == ${field(FIELDS.releasedToken)} and not (isWaiting and ${lengthOfLine("key")} > 0) then
      if last == firstOperation then reply = call('DEL', key)
      elseif not dels then dels, reply = {key, [key] = true}, 1
      elseif not dels[key] then dels[#dels + 1], dels[key], reply = key, true, 1 end
    end
  elseif kind == ${EXTEND} then
    if try('GET', key) == ${TOKEN} and not (dels and dels[key]) then
      if call('PTTL', key) < tonumber(${EXTEND_TTL}) then call('PEXPIRE', key, ${EXTEND_TTL}) end
      reply = 1
    end
  end`;

const loop = /* lua */ `
-- Replies, unless one value says everything. Keys to delete together. The last number that was given. Registers that
-- were raised, and their fields and values to write.
local replies, dels, top, raised, writes = quarantineLeftMs > 0 and {0, quarantineLeftMs} or nil, nil, nil, nil, nil
local at, long, handOverAtEnd = firstOperation, nil, nil
if several then raised, writes = {}, {} end

while at <= last do
  local text, key, reply, count = ARGV[at], KEYS[first], nil, 1
  local kind = byte(text)
  ${shortForm}

  if not reply then
    if dels then
      call('DEL', unpack(dels))
      dels = nil
    end
    if not replies then
      -- The short form has performed all operations so far, and the numbers of a node alone are consecutive.
      replies = {0, 0}
      local number = top
      for earlier = at - 1, firstOperation, -1 do
        local isNumbered = not several and byte(ARGV[earlier]) == ${ACQUIRE}
        replies[earlier - firstOperation + 3] = isNumbered and number or 1
        if isNumbered then number = number - 1 end
      end
    end
    if not long then ${longForm}
    end
    local isDone
    isDone, reply, count = pcall(long, text, kind)
    if not isDone then
      count = tonumber(string.match(text, '^%u(%d+)')) or 1
      reply = {-1, type(reply) == 'table' and reply.err or tostring(reply)}
    end
  end
  if replies then replies[at - firstOperation + 3] = reply end
  if several and ${acquires} then register = register + count end
  first, at = first + (${hasSideKey} and 2 or 1) * count, at + 1
end

if dels then call('DEL', unpack(dels)) end
if handOverAtEnd then handOverAtEnd() end
if top then
  top = string.format('%.0f', top)
  call('SET', topKey, top)
end
if writes then
  for i = 1, #writes, 1000 do call('HSET', KEYS[3], unpack(writes, i, math.min(i + 999, #writes))) end
end
if not replies and last >= firstOperation then return top or 1 end
replies = replies or {0, 0}
replies[1] = now or 0
return replies
`;

export const batchScript: NodeScript = defineScript("batch", [start, waiters, look, loop].join(""));

interface Replies {
  /** Clock of the node in microseconds. 0 if the script did not read the clock. */
  readonly nodeTimeUs: number;
  /** Milliseconds until the node may vote. 0 if the node may vote now. */
  readonly quarantineLeftMs: number;
  /** One value for each operation, in the order of the request. */
  readonly values: readonly unknown[];
}

/** Parses a reply with one value per operation. */
export function parseReplies([nodeTimeUs, quarantineLeftMs, ...values]: readonly unknown[]): Replies {
  return { nodeTimeUs: Number(nodeTimeUs), quarantineLeftMs: Number(quarantineLeftMs), values };
}

/** Returns the error of one operation in a request that the node has executed. */
export function operationError(value: unknown): string | undefined {
  if (typeof value === "number" && !Number.isSafeInteger(value)) return `replied ${value}, which is not a safe integer`;
  return Array.isArray(value) && value[0] === -1 ? String(value[1]) : undefined;
}

/** Reports whether the node refused to write because it is a replica. */
export function isReadOnly(message: string | undefined): boolean {
  return message?.includes("READONLY ") === true;
}

/**
 * Reports whether the node refused to write (READONLY, NOREPLICAS, MISCONF). WRONGTYPE does not count, because another
 * program owns the key.
 */
export function isRefused(value: unknown): boolean {
  return operationError(value)?.startsWith("WRONGTYPE") === false;
}
