/**
 * Defines what concerns waiters: `valueOf`, `enrol`, `withdraw`, `askAgainMs`, `handOver` and `handOverFreed`.
 *
 * `{k}:waiters` is a sorted set of members "<channel>#<id>" by place. When the resource is free, the head is taken out
 * and told on its channel ("turn <member> <lock key>"). The lock key is then reserved for it for a short time with the
 * value "reserved:<place>:<member>", which every Redlock implementation sees as held. A reservation only ever denies:
 * taking it is an ordinary acquisition.
 *
 * A channel without a subscriber (PUBLISH counts receivers) belongs to a process that has gone, so its waiter is
 * skipped. Or the process has no connection for messages, and asks again when it has one. The next three in line are
 * told their position ("next<position> <member> <lock key>"). They look again after as many reservations, in case those
 * before them are frozen. Who asks in the same request is told when to look again by the reply.
 *
 * A holder that is no client of ours tells nobody of its release, so whoever waits for it asks again every
 * `FOREIGN_POLL_MS`. It is known by its value, which has not our mark (see token.ts), or by the type of its key.
 * `valueOf` is the value of a lock's key; of one of another type, Redis' error.
 *
 * What an operation frees is handed over only at the end of the whole request. A later operation of the same request
 * may have a better claim to it.
 */
import { IS_OURS } from "../rules/token.ts";

/** Tells a waiter something about the lock of `key`. Returns how many heard it. */
export const notify: string = /* lua */ `function(key, member, what)
  local channel = string.match(member, '^([^#]*)#')
  local receivers = channel and redis.pcall('PUBLISH', channel, what .. ' ' .. member .. ' ' .. key)
  return type(receivers) == 'number' and receivers or 0
end`;

/** Tells the next in line but the one who is `asking`. */
export const notifyNext: string = /* lua */ `
for position, member in ipairs(call('ZRANGE', waiters, 0, 2)) do
  if member ~= asking then notify(key, member, 'next' .. position) end
end`;

/**
 * Lets a line live for `idleMs`, and KEYS[1] longer than every line. Both get a while more than that, so that they
 * are prolonged once in a while only.
 */
export const prolongLine: string = /* lua */ `
if call('PTTL', waiters) < idleMs then
  call('PEXPIRE', waiters, idleMs + 1000)
  if call('PTTL', KEYS[1]) < idleMs + 1000 then call('SET', KEYS[1], '1', 'PX', idleMs + 2000) end
end`;

export const handOver: string = /* lua */ `
local freed, notify, FOREIGN_POLL_MS = {}, ${notify}, 100

local function reservedFor(value)
  local place, member = string.match(value, '^reserved:([^:]+):(.+)$')
  return member, tonumber(place)
end

local function valueOf(key)
  local value = redis.pcall('GET', key)
  if type(value) ~= 'table' then return value end
  return string.match(value.err, '^WRONGTYPE.*') or call('GET', key)
end

local function askAgainMs(first, pttl)
  local value = valueOf(KEYS[first])
  local isOurs = not value or reservedFor(value) or (${IS_OURS})
  return isOurs and pttl or math.min(pttl, FOREIGN_POLL_MS)
end

local function enrol(first, place, member, pttl)
  local waiters, idleMs = waitersOf(KEYS[first]), math.max(pttl, 0) + waiterTtl
  call('ZADD', waiters, place, member)
  waiting = true
  ${prolongLine}
end

local function withdraw(first, member)
  call('ZREM', waitersOf(KEYS[first]), member)
  local value = valueOf(KEYS[first])
  if value and reservedFor(value) == member then
    call('DEL', KEYS[first])
    freed[#freed + 1] = first
  end
end

local function handOver(first, asking)
  local key, waiters = KEYS[first], waitersOf(KEYS[first])
  if call('EXISTS', waiters) == 0 or call('EXISTS', key) == 1 then return end
  for _ = 1, 1000 do
    local head = call('ZPOPMIN', waiters)
    if not head[1] then return end
    if notify(key, head[1], 'turn') > 0 or not countsReceivers then
      call('SET', key, 'reserved:' .. head[2] .. ':' .. head[1], 'PX', grantTtl)
      ${notifyNext}
      return
    end
  end
end

local function handOverFreed()
  local lines = {}
  for n, first in ipairs(freed) do lines[n] = waitersOf(KEYS[first]) end
  if #lines == 0 or (#lines <= 1000 and call('EXISTS', unpack(lines)) == 0) then return end
  for _, first in ipairs(freed) do pcall(handOver, first) end
end
`;
