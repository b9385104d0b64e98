import type { NodeScript } from "@x/redlock-core";
import { defineScript } from "@x/redlock-core/protocol";

/**
 * An operator's order to the leader: to pause or resume a schedule, or to run it now. The highest version stays; of two values of one
 * version, the greater. Told on the channel if it changes anything: the leader repeats orders for nodes that missed them.
 *
 * KEYS 1 paused or requests (hash) · ARGV 1 field · 2 value, begins with the order's version · 3 keep in ms · 4 channel
 * Replies -1: stored · else the version that stays instead
 */
export const ORDER: NodeScript = defineScript(
  "leader-order",
  /* lua */ `
local call = redis.call
local stored = call('HGET', KEYS[1], ARGV[1]) or ''
local version = tonumber(string.match(stored, '^%d+')) or -1
local given = tonumber(string.match(ARGV[2], '^%d+'))
local stays = version > given or (version == given and stored > ARGV[2])
if not stays and stored ~= ARGV[2] then
  call('HSET', KEYS[1], ARGV[1], ARGV[2])
  call('PUBLISH', ARGV[4], 'schedules')
end
call('PEXPIRE', KEYS[1], ARGV[3])
return stays and version or -1
`,
);
