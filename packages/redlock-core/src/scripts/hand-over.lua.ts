/**
 * The line of waiters of a lock, and the rule by which a released lock passes to the first waiter.
 *
 * `{k}:waiters` is a sorted set of members `<channel>#<id>` by place. When the lock is free, the node removes the first
 * member from the line, and publishes `turn <member> <lock key>` on its channel. The node then reserves the lock for
 * about a second: the lock key holds `reserved:<place>:<member>`. Every implementation of Redlock sees a reserved key
 * as held. A reservation only ever denies: the waiter acquires the lock by an ordinary acquisition.
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
import { IS_OURS } from "../rules/token.ts";

/**
 * `enrol(waiters, place, member, pttl)` adds a waiter to the line. `pttl` is the remaining life of the lock in ms. The
 * script must define `call`, `isWaiting` and `waiterTtl` (the life of an idle line) before.
 *
 * A prolonged line lives a second longer than necessary, and KEYS[1] another second, so that both are rarely prolonged.
 * Every line ends before KEYS[1].
 */
export const enrol: string = /* lua */ `
local function enrol(waiters, place, member, pttl)
  call('ZADD', waiters, place, member)
  isWaiting = true
  local idleMs = math.max(pttl, 0) + waiterTtl
  if call('PTTL', waiters) < idleMs then
    call('PEXPIRE', waiters, idleMs + 1000)
    if call('PTTL', KEYS[1]) < idleMs + 1000 then call('SET', KEYS[1], '1', 'PX', idleMs + 2000) end
  end
end
`;

/**
 * `reserve(key, waiters, head, asking)` reserves the free lock of `key` for `head`, the first member of its line with
 * the member's place. Returns false without a change if this member's process has gone. `asking` is the member that
 * asks in the same request. The script must define `call`, `grantTtl` (the life of a reservation) and `countsReceivers`
 * before.
 */
export const reserve: string = /* lua */ `
local function notify(key, member, what)
  local channel = string.match(member, '^([^#]*)#')
  local receivers = channel and redis.pcall('PUBLISH', channel, what .. ' ' .. member .. ' ' .. key)
  return type(receivers) == 'number' and receivers or 0
end

local function reserve(key, waiters, head, asking)
  if notify(key, head[1], 'turn') == 0 and countsReceivers then return false end
  call('SET', key, 'reserved:' .. head[2] .. ':' .. head[1], 'PX', grantTtl)
  call('ZREM', waiters, head[1])
  for position, member in ipairs(call('ZRANGE', waiters, 0, 2)) do
    if member ~= asking then notify(key, member, 'next' .. position) end
  end
  return true
end
`;

/**
 * Functions for the lock of `key`:
 * - `valueOf(key)` returns the value of the key. For a key of another type it returns Redis' error.
 * - `reservedFor(value)` returns the member and the place of a reservation; nil if the value is not a reservation.
 * - `handOver(key, waiters, asking)` reserves a free lock for the first waiter whose process is alive.
 */
export const handOver: string = /* lua */ `
local function valueOf(key)
  local value = redis.pcall('GET', key)
  if type(value) ~= 'table' then return value end
  return string.match(value.err, '^WRONGTYPE.*') or call('GET', key)
end

local function reservedFor(value)
  local place, member = string.match(value, '^reserved:([^:]+):(.+)$')
  return member, tonumber(place)
end
${reserve}
local function handOver(key, waiters, asking)
  if call('EXISTS', key) == 1 then return end
  for _ = 1, 1000 do
    local head = call('ZRANGE', waiters, 0, 0, 'WITHSCORES')
    if not head[1] or reserve(key, waiters, head, asking) then return end
    call('ZREM', waiters, head[1])
  end
end
`;

/**
 * Functions about waiters for the operations of a request:
 * - `askAgainMs(key, pttl)` returns when to ask again without a message. A holder of another library, whose value lacks
 *   the mark of token.ts, sends no message when it releases, so its waiters ask every `FOREIGN_POLL_MS`.
 * - `withdraw(key, waiters, member)` removes a waiter from the line, and ends its reservation.
 * - `handOverFreed()` hands over the locks in `freed`: each is a lock's key and its line.
 */
export const waiting: string = /* lua */ `
local freed, FOREIGN_POLL_MS = {}, 100
${enrol}
local function askAgainMs(key, pttl)
  local value = valueOf(key)
  local isOurs = not value or reservedFor(value) or (${IS_OURS})
  return isOurs and pttl or math.min(pttl, FOREIGN_POLL_MS)
end

local function withdraw(key, waiters, member)
  call('ZREM', waiters, member)
  local value = valueOf(key)
  if value and reservedFor(value) == member then
    call('DEL', key)
    freed[#freed + 1] = {key, waiters}
  end
end

local function handOverFreed()
  local lines = {}
  for n, lock in ipairs(freed) do lines[n] = lock[2] end
  if #lines == 0 or (#lines <= 1000 and call('EXISTS', unpack(lines)) == 0) then return end
  for _, lock in ipairs(freed) do pcall(handOver, lock[1], lock[2]) end
end
`;
