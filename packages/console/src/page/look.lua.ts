import type { NodeScript } from "@x/redlock-core";
import { defineScript, lengthOfLine, NODE_KEYS, NODE_LINES } from "@x/redlock-core/protocol";

/**
 * Reads a part of one node's keys and changes nothing. The arguments bound the work of one call, however many keys the
 * node has.
 *
 * - KEYS[1], only in a Cluster: a key of the master to read. The key itself is not read.
 * - ARGV[1]: prefix of lock keys.
 * - ARGV[2]: number of keys to look through (COUNT of SCAN).
 * - ARGV[3]: number of cursors. A pair (run_id, cursor) for each cursor follows. A node recognizes its own cursor by
 *   its run_id.
 * - The number of semaphores to read in any case, followed by the keys of their states.
 * - Further arguments: lock keys to read in any case, each followed by the key of its lines of waiters.
 *
 * Replies {run_id, seconds, microseconds, next cursor, {lock, …}, {name of an election, …}, {{name of an election, key
 * prefix of its scheduler}, …}, {semaphore, …}, {{lock key, waiters}, …}}. A lock is {key, hash of its value, pttl,
 * waiters, note of the holder | '', digits that may name the client | ''}. The value itself is a secret, because its
 * owner can release the lock.
 *
 * In a Cluster each slot has its own set of lines, and the script cannot compute the set's name. The waiters of a lock
 * are then -1, unless the lock was asked for. The last list contains the lines of the sets that the search has found.
 *
 * A semaphore, or a read-write lock, is {key of its state, held permits, capacity | '', leases, ms until the first
 * lease ends | '', waiters}; see permits.lua.ts of `@x/semaphore`. With more than 100 leases, the script replies the
 * held permits of the last request, which may include leases that have ended.
 *
 * A lock's value is an x or xn followed by hexadecimal digits, 41 bytes in all. A reservation's value begins with
 * `reserved:`. STRLEN rejects most foreign values unread, because they may be large.
 */
export const LOOK: NodeScript = defineScript(
  "console-look",
  /* lua */ `
local call, prefix = redis.call, ARGV[1]
local function side(key, name)
  local open = string.find(key, '{', 1, true)
  local close = open and string.find(key, '}', open + 1, true)
  if close and close > open + 1 then return key .. ':' .. name end
  return '{' .. key .. '}:' .. name
end
local function sizeOf(key, kind, command)
  return call('TYPE', key).ok == kind and call(command, key) or 0
end
local function waitersOf(key, lines)
  if not lines then return -1 end
  return call('TYPE', lines).ok == 'zset' and ${lengthOfLine("key")} or 0
end
local function lockAt(key, lines)
  local size = redis.pcall('STRLEN', key)
  if type(size) ~= 'number' or size < 12 or size > 200 then return nil end
  local value = call('GET', key)
  local isReserved = string.sub(value, 1, 9) == 'reserved:'
  if not isReserved and not (size == 41 and string.find(value, '^xn?%x+$')) then return nil end
  local said, claim = side(key, 'note'), ''
  if sizeOf(said, 'string', 'STRLEN') > 0 then
    local token, text = string.match(call('GET', said), '^(%S+) %d+ %d+ (.*)$')
    if token == value then claim = text end
  end
  -- The note of a leader ends with its first lease. From then on the record of the term contains the leader.
  if claim == '' and call('TYPE', side(key, 'leader')).ok == 'hash' then
    local record = call('HMGET', side(key, 'leader'), 'token', 'record')
    if record[1] == value then claim = record[2] or '' end
  end
  return {
    key, isReserved and 'reserved' or string.sub(redis.sha1hex(value), 1, 8), call('PTTL', key),
    waitersOf(key, lines), claim, isReserved and '' or string.sub(value, 2, 13)
  }
end
local time = call('TIME')
local nowMs = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local function semaphoreAt(key)
  if sizeOf(key, 'hash', 'HLEN') == 0 or call('HSTRLEN', key, 'used') > 9 or call('HSTRLEN', key, 'capacity') > 9 then
    return nil
  end
  local state, ends = call('HMGET', key, 'used', 'capacity'), ''
  local used, leases = tonumber(state[1] or ''), 0
  if not used then return nil end
  if sizeOf(key .. ':holders', 'zset', 'ZCARD') == 0 then used = 0
  else
    leases = call('ZCOUNT', key .. ':holders', nowMs, '+inf')
    local live = call('ZRANGEBYSCORE', key .. ':holders', nowMs, '+inf', 'WITHSCORES', 'LIMIT', 0, 100)
    if live[1] then ends = string.format('%.0f', tonumber(live[2]) - nowMs) end
    if leases <= 100 then
      used = 0
      for i = 1, #live, 2 do used = used + (tonumber(string.match(live[i], '^%d+')) or 0) end
    end
  end
  return {key, used, state[2] or '', leases, ends, sizeOf(key .. ':waiters', 'zset', 'ZCARD')}
end
local runId = string.match(call('INFO', 'server'), 'run_id:(%x+)') or ''
local at, cursor = 4 + 2 * tonumber(ARGV[3]), '0'
for i = 4, at - 1, 2 do
  if ARGV[i] == runId then cursor = ARGV[i + 1] end
end
local locks, elections, schedulers, semaphores, waited, read = {}, {}, {}, {}, {}, {}
local function add(key, lines)
  if read[key] then return end
  read[key] = true
  local lock = lockAt(key, lines)
  if lock then locks[#locks + 1] = lock end
end
local function addSemaphore(key)
  local semaphore = not read[key] and semaphoreAt(key)
  if semaphore then read[key], semaphores[#semaphores + 1] = true, semaphore end
end
local asked = tonumber(ARGV[at])
for i = at + 1, at + asked do addSemaphore(ARGV[i]) end
for i = at + asked + 1, #ARGV, 2 do add(ARGV[i], ARGV[i + 1]) end
local page = call('SCAN', cursor, 'COUNT', ARGV[2])
local leader = prefix .. 'leader:'
local function electionOf(owner)
  if owner and string.sub(owner, 1, #leader) == leader then return string.sub(owner, #leader + 1) end
end
local function before(key, ending)
  if #key > #ending and string.sub(key, -#ending) == ending then return string.sub(key, 1, -#ending - 1) end
end
-- The names of foreign keys are parsed from their ends. A pattern with two open parts would take time quadratic in the
-- length of a name.
local function schedulerOf(key)
  local owner = before(key, 'register')
  local last = owner and string.sub(key, 1, 1) == '{' and string.find(string.reverse(owner), ':}', 1, true)
  if not last then return nil end
  local own = string.sub(owner, #owner - last + 2)
  if own == '' or string.sub(own, -1) == ':' then return electionOf(string.sub(owner, 2, #owner - last - 1)), own end
end
-- Reads the lines of a set, of a thousand locks at most.
local function readLines(lines)
  local from = '-'
  for _ = 1, 1000 do
    local first = call('ZRANGEBYLEX', lines, from, '+', 'LIMIT', 0, 1)[1]
    local size = first and string.match(first, '^(%d+):')
    if not size then return end
    local key = string.sub(first, #size + 2, #size + 1 + size)
    waited[#waited + 1] = {key, ${lengthOfLine("key")}}
    from = '(' .. size .. ':' .. key .. '::'
  end
end
for _, key in ipairs(page[2]) do
  if KEYS[1] and before(key, ':${NODE_LINES}') and call('TYPE', key).ok == 'zset' then readLines(key) end
  local led = before(key, ':leader')
  local election = electionOf(led and string.match(led, '^{(.+)}$') or led)
  if election then elections[#elections + 1] = election end
  local scheduled, own = schedulerOf(key)
  if scheduled then schedulers[#schedulers + 1] = {scheduled, own} end
  local isOurs = string.sub(key, 1, #prefix) == prefix
  local isSide = isOurs or string.sub(key, 1, #prefix + 1) == '{' .. prefix
  if isSide and (before(key, ':semaphore') or before(key, ':readwrite')) then addSemaphore(key) end
  if isOurs then add(key, not KEYS[1] and '${NODE_KEYS.lines}' or nil) end
end
return {runId, time[1], time[2], page[1], locks, elections, schedulers, semaphores, waited}
`,
);

/** Asks a Cluster for its masters. Replies {{first slot, last slot, {host, port, id, …} of the master, …}, …}. */
export const MASTERS: NodeScript = defineScript("console-masters", /* lua */ `return redis.call('CLUSTER', 'SLOTS')`);

/**
 * Reads the newest records of an election's terms. KEYS are the zset of the records and the hash of the newest.
 * ARGV[1]: how many to read. Replies {{record, …}, newest term | '', PTTL of the hash}.
 */
export const TERMS: NodeScript = defineScript(
  "console-terms",
  /* lua */ `
local call = redis.call
return {call('ZREVRANGE', KEYS[1], 0, ARGV[1] - 1), call('HGET', KEYS[2], 'term') or '', call('PTTL', KEYS[2])}
`,
);
