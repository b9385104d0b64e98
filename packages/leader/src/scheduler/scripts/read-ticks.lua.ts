import { defineScript, type NodeScript } from "@x/redlock-core";

/**
 * Reads the state of all schedules, or only what changes without the leader.
 *
 * KEYS 1 leader · 2 ticks · 3 paused · 4 running · 5 requests (hash: id → "name at") · ARGV 1: 1 = all, 0 = requests and pauses only
 *
 * Replies {term that the node knows or '', had state 0|1, ticks, paused, running, requests}: each list is field, value, …
 */
export const READ_TICKS: NodeScript = defineScript(
  "leader-read-ticks",
  /* lua */ `
local call = redis.call
local all = ARGV[1] == '1'
return {call('HGET', KEYS[1], 'term') or '', call('HEXISTS', KEYS[2], ''), all and call('HGETALL', KEYS[2]) or {},
  call('HGETALL', KEYS[3]), all and call('HGETALL', KEYS[4]) or {}, call('HGETALL', KEYS[5])}
`,
);
