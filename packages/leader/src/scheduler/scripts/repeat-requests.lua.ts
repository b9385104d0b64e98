import type { NodeScript } from "@x/redlock-core";
import { defineScript } from "@x/redlock-core/protocol";

/**
 * Stores requests that are not dealt with on a node that lost them, fenced by the term: none comes back that a newer leader has taken.
 *
 * KEYS 1 leader · 2 requests (hash) · ARGV 1 term · 2 keep in ms · then per request: id, value · Replies 'stale' or 'ok'
 */
export const REPEAT_REQUESTS: NodeScript = defineScript(
  "leader-repeat-requests",
  /* lua */ `
local stored = redis.call('HGET', KEYS[1], 'term')
if stored and tonumber(stored) > tonumber(ARGV[1]) then return 'stale' end
for i = 3, #ARGV, 2 do redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1]) end
redis.call('PEXPIRE', KEYS[2], ARGV[2])
return 'ok'
`,
);
