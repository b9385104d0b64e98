import type { NodeScript } from "@x/redlock-core";
import { defineScript } from "@x/redlock-core/protocol";

/**
 * Reads the state of all schedules, or only that which changes without the leader, or which a node may have missed.
 *
 * KEYS 1 leader · 2 ticks · 3 paused · 4 running · 5 requests (hash: id → "at name") · ARGV 1: 1 = all, 0 = all but ticks
 *
 * Replies {term that the node knows or '', had state 0|1, ticks, paused, running, requests}: each list is field, value, …
 */
export const READ_TICKS: NodeScript = defineScript(
  "leader-read-ticks",
  /* lua */ `
local call = redis.call
local all = ARGV[1] == '1'
return {call('HGET', KEYS[1], 'term') or '', call('HEXISTS', KEYS[2], ''), all and call('HGETALL', KEYS[2]) or {},
  call('HGETALL', KEYS[3]), call('HGETALL', KEYS[4]), call('HGETALL', KEYS[5])}
`,
);
