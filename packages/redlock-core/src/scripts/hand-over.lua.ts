/**
 * The lines of waiters, and the rule by which a released lock passes to the first waiter.
 *
 * The lines of all locks of a node are in one sorted set, `lines`. All scores are 0, so the set is in the order of its
 * texts `<length of the lock key>:<lock key>:<member>`. A member is `<place>:<channel>#<id>`, and all places have 16
 * digits, so a line is a range of the set in the order of places. `lineEnds` contains the keys of locks with a line;
 * the score is the time in ms at which the line ends unless a waiter asks again. In a Cluster each slot has its sets.
 *
 * When a lock is free, the node removes the first member from the line, and publishes `turn <member> <lock key>` on its
 * channel. The node then reserves the lock for about a second: the lock key holds `reserved:<member>`. Every
 * implementation of Redlock sees a reserved key as held. A reservation only ever denies: the waiter acquires the lock
 * by an ordinary acquisition.
 *
 * PUBLISH counts the receivers. A channel without a subscriber belongs to a process that has gone, so its waiter is
 * skipped. A living process that has lost its connection for messages asks again when it is connected. The next three
 * members in line receive their position as `next<position> <member> <lock key>`. A member in this position asks
 * again after as many reservations as its position, because the waiters before it may be frozen. A waiter that asks in
 * the same request receives no message, because the reply says when to ask again.
 *
 * An operation that frees a lock does not hand over the lock until the end of the whole request, because a later
 * operation of the same request may have a better claim.
 */
import { DIGITS } from "../rules/operation.ts";
import { IS_OURS } from "../rules/token.ts";

/** Returns a Lua expression: the start of all texts of a lock's line in `lines`. */
export const startOfLine = (key: string): string => `#${key} .. ':' .. ${key} .. ':'`;

/** Returns Lua expressions: the range of a lock's line, from its start. Each member begins with a digit. */
export const rangeOfLine = (start: string): string => `'[' .. ${start}, '(' .. ${start} .. ':'`;

/** Returns a Lua expression: the number of waiters of the lock. The script must define `call` and `lines` before. */
export const lengthOfLine = (key: string): string => `call('ZLEXCOUNT', lines, ${rangeOfLine(startOfLine(key))})`;

/** Returns a Lua expression: the place of a member. Places compare as texts. */
export const placeOf = (member: string): string => `string.sub(${member}, 1, ${DIGITS})`;

/** Returns a Lua expression: whether the text names a waiter, and not only a place. */
export const isMember = (text: string): string => `#${text} > ${DIGITS}`;

/**
 * `enrol(key, member, pttl)` adds a waiter to the line. `pttl` is the remaining life of the lock in ms. The script must
 * define `call`, `lines`, `lineEnds`, `isWaiting`, `now` (the node's time in µs) and `waiterTtl` (the life of an idle
 * line) before.
 *
 * A prolonged line lives a second longer than necessary, and both sets another second, so that they are rarely
 * prolonged. A prolongation also removes lines that have ended: their waiters have gone without a word.
 */
export const enrol: string = /* lua */ `
local function enrol(key, member, pttl)
  local nowMs, idleMs = math.floor(now / 1000), math.max(pttl, 0) + waiterTtl
  if (tonumber(call('ZSCORE', lineEnds, key) or nil) or 0) < nowMs + idleMs then
    for _, ended in ipairs(call('ZRANGEBYSCORE', lineEnds, '-inf', nowMs - 1, 'LIMIT', 0, 100)) do
      call('ZREMRANGEBYLEX', lines, ${rangeOfLine(startOfLine("ended"))})
      call('ZREM', lineEnds, ended)
    end
    call('ZADD', lineEnds, nowMs + idleMs + 1000, key)
  end
  call('ZADD', lines, 0, ${startOfLine("key")} .. member)
  isWaiting = true
  if call('PTTL', lines) < idleMs + 1000 then
    call('PEXPIRE', lines, idleMs + 2000)
    call('PEXPIRE', lineEnds, idleMs + 2000)
  end
end
`;

/**
 * `reserve(key, head, asking)` reserves the free lock for `head`, the first member of its line. Returns false without a
 * change if this member's process has gone. `asking` is the member that asks in the same request. The script must
 * define `call`, `lines`, `lineEnds`, `grantTtl` (the life of a reservation) and `countsReceivers` before.
 */
export const reserve: string = /* lua */ `
local function notify(key, member, what)
  local channel = string.match(member, '^%d+:([^#]*)#')
  local receivers = channel and redis.pcall('PUBLISH', channel, what .. ' ' .. member .. ' ' .. key)
  return type(receivers) == 'number' and receivers or 0
end

local function reserve(key, head, asking)
  if notify(key, head, 'turn') == 0 and countsReceivers then return false end
  call('SET', key, 'reserved:' .. head, 'PX', grantTtl)
  local start = ${startOfLine("key")}
  call('ZREM', lines, start .. head)
  local followers = call('ZRANGEBYLEX', lines, ${rangeOfLine("start")}, 'LIMIT', 0, 3)
  if not followers[1] then call('ZREM', lineEnds, key) end
  for position, text in ipairs(followers) do
    local member = string.sub(text, #start + 1)
    if member ~= asking then notify(key, member, 'next' .. position) end
  end
  return true
end
`;

/**
 * Functions for the lock of `key`:
 * - `valueOf(key)` returns the value of the key. For a key of another type it returns Redis' error.
 * - `reservedFor(value)` returns the member of a reservation; nil if the value is not a reservation.
 * - `headOf(key)` returns the first member of the lock's line, or nil.
 * - `handOver(key, asking)` reserves a free lock for the first waiter whose process is alive.
 */
export const handOver: string = /* lua */ `
local function valueOf(key)
  local value = redis.pcall('GET', key)
  if type(value) ~= 'table' then return value end
  return string.match(value.err, '^WRONGTYPE.*') or call('GET', key)
end

local function reservedFor(value)
  return string.match(value, '^reserved:(%d+:.+)$')
end
${reserve}
local function headOf(key)
  local start = ${startOfLine("key")}
  local text = call('ZRANGEBYLEX', lines, ${rangeOfLine("start")}, 'LIMIT', 0, 1)[1]
  return text and string.sub(text, #start + 1)
end

local function handOver(key, asking)
  if call('EXISTS', key) == 1 then return end
  for _ = 1, 1000 do
    local head = headOf(key)
    if not head or reserve(key, head, asking) then return end
    call('ZREM', lines, ${startOfLine("key")} .. head)
  end
end
`;

/**
 * Functions about waiters for the operations of a request:
 * - `askAgainMs(key, pttl)` returns when to ask again without a message. A holder of another library, whose value lacks
 *   the mark of token.ts, sends no message when it releases, so its waiters ask every `FOREIGN_POLL_MS`.
 * - `withdraw(key, member)` removes a waiter from the line, and ends its reservation.
 * - `handOverFreed()` hands over the locks whose keys are in `freed`.
 */
export const waiting: string = /* lua */ `
local freed, FOREIGN_POLL_MS = {}, 100
${enrol}
local function askAgainMs(key, pttl)
  local value = valueOf(key)
  local isOurs = not value or reservedFor(value) or (${IS_OURS})
  return isOurs and pttl or math.min(pttl, FOREIGN_POLL_MS)
end

local function withdraw(key, member)
  call('ZREM', lines, ${startOfLine("key")} .. member)
  local value = valueOf(key)
  if value and reservedFor(value) == member then
    call('DEL', key)
    freed[#freed + 1] = key
  end
end

local function handOverFreed()
  if #freed == 0 or call('EXISTS', lines) == 0 then return end
  for _, key in ipairs(freed) do pcall(handOver, key) end
end
`;
