import type { NodeScript } from "@x/redlock-core";
import { defineScript } from "@x/redlock-core/protocol";

/**
 * Takes entries out of a hash, fenced by the term: ticks that have ended, or requests that are dealt with.
 *
 * KEYS 1 leader · 2 hash · ARGV 1 term · then the fields · Replies 'stale' or 'ok'
 */
export const SETTLE_ENTRIES: NodeScript = defineScript(
  "leader-settle-entries",
  /* lua */ `
local stored = redis.call('HGET', KEYS[1], 'term')
if stored and tonumber(stored) > tonumber(ARGV[1]) then return 'stale' end
for i = 2, #ARGV do redis.call('HDEL', KEYS[2], ARGV[i]) end
return 'ok'
`,
);
