import type { NodeScript } from "@x/redlock-core";
import { defineScript } from "@x/redlock-core/protocol";

/**
 * Announces a candidate with a priority, for as long as it goes on saying so; takes those out whose time is over.
 *
 * KEYS 1 candidates (hash) · ARGV 1 instance · 2 priority · 3 id · 4 keep in ms; 0 = withdraw · Replies 1
 */
export const STAND: NodeScript = defineScript(
  "leader-stand",
  /* lua */ `
local call = redis.call
if ARGV[4] == '0' then call('HDEL', KEYS[1], ARGV[1]) return 1 end
local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local all = call('HGETALL', KEYS[1])
for i = 1, #all, 2 do
  if (tonumber(string.match(all[i + 1], "^%d+")) or 0) < now then call('HDEL', KEYS[1], all[i]) end
end
call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now + tonumber(ARGV[4])) .. ' ' .. ARGV[2] .. ' ' .. ARGV[3])
if call('PTTL', KEYS[1]) < tonumber(ARGV[4]) then call('PEXPIRE', KEYS[1], ARGV[4]) end
return 1
`,
);
