/**
 * This script keeps a latch on one node. KEYS[1] is a hash: `count` is what was set, `by` the call that set it, and
 * every other field an id that has counted down. Its value is the last calls that did so. The hash expires ARGV[3] ms
 * after it was last set or counted down. KEYS[2] is what it was before it was set anew.
 *
 * ARGV[1] is the operation, ARGV[5] the call:
 * - set: ARGV[2] is the count. Replies 1, or 0 if the latch is set and not open yet. The call that has set it is told
 *   so again, and changes nothing: its answer was lost, and the latch may have opened since.
 * - down: ARGV[2] is the id. Replies what is left; -1 if there is no latch. An id counts once.
 * - left: replies the same, and changes nothing.
 *
 * A request that was sent again may arrive when the latch has been set anew. It changes nothing if its call is in
 * KEYS[2]. Whoever opens the latch tells it on the channel ARGV[4].
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
