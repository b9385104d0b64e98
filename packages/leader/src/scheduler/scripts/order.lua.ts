import { defineScript, type NodeScript } from "@x/redlock-core";

/**
 * An operator's order to the leader: to pause or resume a schedule, or to run it now. Whoever orders later wins.
 *
 * KEYS 1 paused or requests (hash) · ARGV 1 field · 2 value, begins with the order's version · 3 keep in ms · 4 channel · Replies 1
 */
export const ORDER: NodeScript = defineScript(
  "leader-order",
  /* lua */ `
local call = redis.call
local stored = tonumber(string.match(call('HGET', KEYS[1], ARGV[1]) or '', '^%d+')) or -1
if stored <= tonumber(string.match(ARGV[2], '^%d+')) then call('HSET', KEYS[1], ARGV[1], ARGV[2]) end
call('PEXPIRE', KEYS[1], ARGV[3])
call('PUBLISH', ARGV[4], 'schedules')
return 1
`,
);
