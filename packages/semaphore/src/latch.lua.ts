/**
 * This script stores a latch on one node.
 *
 * KEYS:
 * - 1: hash of the current round. `count` holds the number of count-downs that open the latch, and `by` the call that
 *   set it. Every other field is an ID that counted down; its value lists the last calls that used the ID. Expires
 *   ARGV[3] ms after the last set or count-down.
 * - 2: hash of the previous round.
 *
 * ARGV[1] is the operation, ARGV[4] the channel, ARGV[5] the call:
 * - set: ARGV[2] is the count. Replies 1, or 0 if the latch is set and not open yet. If the same call has set the latch
 *   before, the script replies 1 and changes nothing. The first reply was lost, and the latch may have opened since.
 * - down: ARGV[2] is the ID. Replies with the number of count-downs left, or -1 if the latch is not set. An ID counts
 *   once.
 * - left: replies like `down` and changes nothing.
 *
 * A repeated request may arrive after the latch was set again. The script ignores a request whose call is in KEYS[2].
 * The operation that opens the latch publishes a message on the channel.
 */
import { defineScript } from "@x/redlock-core/protocol";

export const latchScript: ReturnType<typeof defineScript> = defineScript(
  "latch",
  /* lua */ `
local call, key, before, op = redis.call, KEYS[1], KEYS[2], ARGV[1]
local id = 'id:' .. ARGV[2]

local function left()
  local count = call('HGET', key, 'count')
  return count and math.max(0, tonumber(count) - call('HLEN', key) + 2) or -1
end

local function keep()
  call('PEXPIRE', key, ARGV[3])
  if left() == 0 then redis.pcall('PUBLISH', ARGV[4], 'open') end
end

if op == 'set' then
  if call('HGET', key, 'by') == ARGV[5] or call('HGET', before, 'by') == ARGV[5] then return 1 end
  if left() > 0 then return 0 end
  if left() == 0 then call('RENAME', key, before) end
  call('HSET', key, 'count', ARGV[2], 'by', ARGV[5])
  keep()
  return 1
end
if op == 'down' and left() >= 0 and not string.find(call('HGET', before, id) or '', ARGV[5], 1, true) then
  call('HSET', key, id, string.sub((call('HGET', key, id) or '') .. ARGV[5], -400))
  keep()
end
return left()
`,
);
