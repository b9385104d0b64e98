/**
 * This is the one script of the lock protocol. It does all operations that a client issued to a node in one turn of its
 * event loop, in the order of issue. An operation fails alone: by a key of another type, for want of memory, or because
 * its text is none.
 *
 * ARGV[1] has these, one after the other:
 * - The mode, one character.
 * - The greatest fencing token that the client had from the node, in 16 digits.
 * - The quarantine in ms, or 0, and a space.
 * - The life of a reservation in ms, and a space.
 * - 1 where PUBLISH counts every subscriber of the node, or 0, and a space.
 * - The life of an idle line of waiters in ms.
 *
 * In mode N, the count of fencing registers follows, then the registers, one for each lock key of each acquisition.
 * Then there is one text per operation, as operation.ts writes it.
 *
 * KEYS[1] exists as long as somebody may stand in a line on this node. What the mode needs follows, then the lock keys
 * of all operations. The modes are these; keys.ts names their keys:
 * - 1: this node alone votes and forgets nothing, so it numbers the grants. KEYS[2] is the last number.
 * - Q: the same with quarantine. KEYS[2] is the node's hash, KEYS[3] the last number.
 * - N: the node is one of several. KEYS[2] is the node's hash.
 * - R: there are only releases, of whatever node.
 *
 * The node's hash has run_id, since and quarantine (quarantine.lua.ts), and the fencing registers 0 to 16383. A
 * register is the largest ballot that was granted for any resource whose key has this hash slot. It is never below what
 * any of its resources was granted. To refuse what is not above it refuses too much, never too little. Registers cannot
 * be lost without the run_id beside them.
 *
 * A number that a node chooses is above the last one, above what the client had before, and at least the node's time in
 * µs. After a loss of data they go on rising unless the node's clock was set back. Where that is none of those in
 * number.lua.ts, the acquisition fails.
 *
 * It replies {µs (0: not looked at), quarantineLeftMs, reply of operation 1, 2, …}. Where a node that may vote granted,
 * extended or released all, it replies one value: 1, or the number of the last grant, as text. The grants before have
 * the numbers before.
 *
 * Calls are what a script costs, and closures. So what is done most often comes first and by itself. These are locks
 * and releases of one resource that nobody else has or waits for, and its hand-over to a waiter. What is released is
 * deleted in one call. That way is checked against the long one, which does everything, and is defined by the first
 * operation that needs it.
 */

import { CLAMP_US } from "../rules/ballot.ts";
import { FIELDS } from "../rules/operation.ts";
import { defineScript, type NodeScript } from "../rules/script.ts";
import { acquire } from "./acquire.lua.ts";
import { extend } from "./extend.lua.ts";
import { handOver, notify, notifyNext, prolongLine } from "./hand-over.lua.ts";
import { isToken, isTokenText, noToken } from "./number.lua.ts";
import { quarantine } from "./quarantine.lua.ts";
import { release } from "./release.lua.ts";
import { fenceOf, lineOf, noteOf } from "./side-keys.lua.ts";

const codeOf = (letter: string): number => letter.charCodeAt(0);
const [ALONE, ALONE_QUARANTINED, SEVERAL, RELEASES] = ["1", "Q", "N", "R"].map(codeOf);
const [ACQUIRE, RELEASE, EXTEND] = ["a", "r", "e"].map(codeOf);

const field = ([from, to]: readonly [from: number, to?: number]): string =>
  `sub(text, ${to === undefined ? from : `${from}, ${to}`})`;
const TOKEN = field(FIELDS.token);
const BALLOT = field(FIELDS.ballot);
const ACQUIRE_TTL = field(FIELDS.acquireTtl);
const EXTEND_REGISTER = field(FIELDS.extendRegister);
const EXTEND_TTL = field(FIELDS.extendTtl);

const setIfFree = (key: string): string => `try('SET', ${key}, ${TOKEN}, 'PX', ${ACQUIRE_TTL}, 'NX')`;

const microseconds = /* lua */ `
  local time = call('TIME')
  now = #time[2] == 6 and time[1] .. time[2] or time[1] .. sub('00000' .. time[2], -6)`;

/** What a ballot must not be above. */
const limit = `string.format('%.0f', now + ${CLAMP_US})`;

/** Sets `floor` to what the next number must be above. */
const greatestBefore = /* lua */ `
  local floor, stored = sub(header, 2, 17), call('GET', topKey)
  if stored and stored > floor then floor = stored end`;

/** Sets `now` to the number of a grant that is the only one of the request. */
const loneNumber = /* lua */ `${microseconds}
      ${greatestBefore}
      if floor >= now then now = string.format('%.0f', floor + 1) end`;

/** What acquireText writes of a waiter for one resource, without a note. */
const WAITER = "'^A1 (%S+) %d+ (%d+) (%d+) (%S+) $'";

/**
 * Reserves the lock of `key`, which was released, for the `head` of its line, as handOver does. It sets `isReserved`,
 * unless the head has gone. `asking` is who comes behind the release, if anybody.
 */
const reserve = /* lua */ `
    local grantTtl, receivers, waiterTtl = string.match(header, ' (%d+) ([01]) (%d+)$')
    local notify, isReserved = ${notify}, false
    if notify(key, head[1], 'turn') > 0 or receivers == '0' then
      local set = try('SET', key, 'reserved:' .. head[2] .. ':' .. head[1], 'PX', grantTtl)
      isReserved = set and not set.err
    end
    if isReserved then
      if asking then
        local idleMs = grantTtl + waiterTtl
        call('ZADD', waiters, place, asking)
        ${prolongLine}
      end
      call('ZREM', waiters, head[1])
      ${notifyNext}
    end`;

const lone = /* lua */ `
local call, try, byte, sub = redis.call, redis.pcall, string.byte, string.sub
local header, last = ARGV[1], #ARGV
local mode = byte(header)
local now, seen, quarantineLeftMs = nil, nil, 0

-- A lone release, and a lone acquisition: what there is to do and nothing else.
if last == 2 and call('EXISTS', KEYS[1]) == 0 then
  local text = ARGV[2]
  local kind = byte(text)
  if kind == ${RELEASE} and mode == ${RELEASES} then
    if try('GET', KEYS[2]) == sub(text, 2) then return call('DEL', KEYS[2]) end
  elseif kind == ${ACQUIRE} and mode == ${ALONE} then
    local set, topKey = ${setIfFree("KEYS[3]")}, KEYS[2]
    if set and not set.err then ${loneNumber}
      if ${isTokenText("now")} then
        call('SET', topKey, now)
        return now
      end
      call('DEL', KEYS[3])
    end
  end
elseif last == 2 and mode == ${RELEASES} then
  -- A release that somebody waits for, of this lock or another one.
  local key, text = KEYS[2], ARGV[2]
  if byte(text) == ${RELEASE} and try('GET', key) == sub(text, 2) then
    local waiters, asking = (${lineOf})(key), nil
    local head = try('ZRANGE', waiters, 0, 0, 'WITHSCORES')
    if head[1] then ${reserve}
      if isReserved then return 1 end
    elseif not head.err then return call('DEL', key)
    end
  end
elseif last <= 3 and mode == ${ALONE} and byte(ARGV[last]) == ${codeOf("A")} and (last == 2 or KEYS[4] == KEYS[3]) then
  -- A waiter whose turn has come, or who comes behind the release of the lock: it is its turn, or another's.
  local key, topKey, mayTake, head = KEYS[3], KEYS[2], false, nil
  local token, place, ttl, asking = string.match(ARGV[last], ${WAITER})
  local value, waiters = token and try('GET', key), (${lineOf})(key)
  if not token then mayTake = false
  elseif last == 2 then mayTake = value == 'reserved:' .. place .. ':' .. asking
  elseif byte(ARGV[2]) == ${RELEASE} and value == sub(ARGV[2], 2) then
    -- Whether anybody stands before it, ZCOUNT tells in 10 µs less than ZRANGE.
    mayTake = try('ZCOUNT', waiters, '-inf', place) == 0
    head = not mayTake and try('ZRANGE', waiters, 0, 0, 'WITHSCORES')
  end
  if mayTake then ${loneNumber}
    if ${isTokenText("now")} then
      local set = try('SET', key, token, 'PX', ttl)
      if set and not set.err then
        if last == 2 then call('ZREM', waiters, asking) end
        call('SET', topKey, now)
        return now
      end
    end
  elseif head and head[1] and tonumber(place) > tonumber(head[2]) then ${reserve}
    if isReserved then
      ${microseconds}
      return {now, 0, 1, {0, 0, tonumber(grantTtl), tonumber(grantTtl)}}
    end
  end
elseif last == 4 and mode == ${SEVERAL} and call('EXISTS', KEYS[1]) == 0 then
  local text, register = ARGV[4], ARGV[3]
  if byte(text) == ${ACQUIRE} then ${microseconds}
    seen = call('HMGET', KEYS[2], 'run_id', 'since', register)
    ${quarantine}
    local ballot, stored = ${BALLOT}, seen[3]
    if quarantineLeftMs == 0 and (not stored or stored < ballot) and (ballot <= now or ballot <= ${limit}) then
      local set = ${setIfFree("KEYS[3]")}
      if set and not set.err then
        call('HSET', KEYS[2], register, ballot)
        return 1
      end
    end
  end
end
`;

const header = /* lua */ `
local several, topKey, limit = mode == ${SEVERAL}, KEYS[2], nil
local o, first, register = 2, 3, 3
if mode == ${RELEASES} then first = 2
elseif seen then o, limit = 4, ${limit}
else ${microseconds}
  if several then
    local registers = tonumber(ARGV[2])
    local atOnce = math.min(registers, 1000)
    seen, o = call('HMGET', KEYS[2], 'run_id', 'since', unpack(ARGV, 3, atOnce + 2)), registers + 3
    for i = atOnce + 3, registers + 2 do seen[i] = call('HMGET', KEYS[2], ARGV[i])[1] end
    limit = ${limit}
  elseif mode == ${ALONE_QUARANTINED} then
    seen, topKey, first = call('HMGET', KEYS[2], 'run_id', 'since'), KEYS[3], 4
  end
  ${quarantine}
end
`;

/** Sets `top`, the last number that was given, to what it is before the first of this request. */
const startNumbers = /* lua */ `
  ${greatestBefore}
  top = floor < now and now - 1 or floor + 0`;

const longWay = /* lua */ `
  local match = string.match
  waitersOf = waitersOf or ${lineOf}
  if not now then ${microseconds}
  end
  local grantTtl, receivers, waiterTtl = match(header, ' (%d+) ([01]) (%d+)$')
  local countsReceivers = receivers == '1'
  waiterTtl = tonumber(waiterTtl)
  local fenceOf, noteOf = ${fenceOf}, ${noteOf}
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
  ${acquire}
  ${extend}
  ${release}
  local operations = {
    A = {acquire, '^A(%d+) (%S+) (%d+) (%d+) (%d+) (%S*) (.*)$'},
    E = {extend, '^E(%d+) (%d+) (%-?%d+) (%d+) (.*)$'},
    P = {repair, '^P(%d+) (%d+) (%-?%d+) (%d+) (.*)$'},
    R = {release, '^R(%d+) (.*)$'},
    L = {leave, '^L(%d+) (.*)$'},
    W = {wait, '^W(%d+) (%d+) (.*)$'},
  }
  handOverAtEnd = handOverFreed
  long = function(text, kind)
    if kind == ${ACQUIRE} then return acquire(first, 1, ${TOKEN}, ${BALLOT}, now, ${ACQUIRE_TTL}, '', ''), 1 end
    if kind == ${RELEASE} then return release(first, 1, sub(text, 2)), 1 end
    if kind == ${EXTEND} then return extend(first, 1, ${EXTEND_TTL}, ${BALLOT}, ${EXTEND_REGISTER}, ${TOKEN}), 1 end
    local operation = operations[sub(text, 1, 1)]
    local countText, a, b, c, d, e, f = match(text, operation[2])
    local count = tonumber(countText)
    if not count then error({err = 'ERR operation ' .. sub(text, 1, 1) .. ' cannot be read'}) end
    return operation[1](first, count, a, b, c, d, e, f), count
  end`;

const dispatch = /* lua */ `
-- Replies only where one value does not say it all; keys to be deleted together; the last number that was given;
-- registers that were raised, and what is to be written of them.
local replies, dels, top, raised, writes = quarantineLeftMs > 0 and {0, quarantineLeftMs} or nil, nil, nil, nil, nil
local op, long, handOverAtEnd, waitersOf = o, nil, nil, nil
local waiting = call('EXISTS', KEYS[1]) == 1
if waiting then waitersOf = ${lineOf} end
if several then raised, writes = {}, {} end

while o <= last do
  local text, key, reply, count = ARGV[o], KEYS[first], nil, 1
  local kind = byte(text)

  -- The short way: a reply only where nothing but this is to be done.
  if kind == ${ACQUIRE} then
    if not (waiting and call('EXISTS', waitersOf(key)) == 1) then
      if several then
        local name, ballot = ARGV[register], ${BALLOT}
        local stored = raised[name] or seen[register]
        if ballot <= limit and (not stored or stored < ballot) then
          local set = ${setIfFree("key")}
          if set and not set.err then
            reply, raised[name] = 1, ballot
            local size = #writes
            writes[size + 1], writes[size + 2] = name, ballot
          end
        end
      else
        local set = ${setIfFree("key")}
        if set and not set.err then
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
    if try('GET', key) == sub(text, 2) and not (waiting and call('EXISTS', waitersOf(key)) == 1) then
      if last == op then reply = call('DEL', key)
      elseif not dels then dels, reply = {key, [key] = true}, 1
      elseif not dels[key] then dels[#dels + 1], dels[key], reply = key, true, 1 end
    end
  elseif kind == ${EXTEND} then
    if try('GET', key) == ${TOKEN} and not (dels and dels[key]) then
      if call('PTTL', key) < tonumber(${EXTEND_TTL}) then call('PEXPIRE', key, ${EXTEND_TTL}) end
      reply = 1
    end
  end

  if not reply then
    if dels then
      call('DEL', unpack(dels))
      dels = nil
    end
    if not replies then
      -- All before went the short way: they succeeded, and the grants of a node alone have one number after the other.
      replies = {0, 0}
      local number = top
      for earlier = o - 1, op, -1 do
        local isNumbered = not several and byte(ARGV[earlier]) == ${ACQUIRE}
        replies[earlier - op + 3] = isNumbered and number or 1
        if isNumbered then number = number - 1 end
      end
    end
    if not long then ${longWay}
    end
    local ok
    ok, reply, count = pcall(long, text, kind)
    if not ok then
      count = tonumber(string.match(text, '^%u(%d+)')) or 1
      reply = {-1, type(reply) == 'table' and reply.err or tostring(reply)}
    end
  end
  if replies then replies[o - op + 3] = reply end
  if several and (kind == ${ACQUIRE} or kind == ${codeOf("A")}) then register = register + count end
  first, o = first + count, o + 1
end
if dels then call('DEL', unpack(dels)) end
if handOverAtEnd then handOverAtEnd() end
if top then
  top = string.format('%.0f', top)
  call('SET', topKey, top)
end
if writes then
  for i = 1, #writes, 1000 do call('HSET', KEYS[2], unpack(writes, i, math.min(i + 999, #writes))) end
end
if not replies and last >= op then return top or 1 end
replies = replies or {0, 0}
replies[1] = now or 0
return replies
`;

export const batchScript: NodeScript = defineScript("batch", [lone, header, dispatch].join(""));
