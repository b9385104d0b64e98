import type { NodeScript } from "@x/redlock-core";
import { defineScript } from "@x/redlock-core/protocol";

/**
 * Asks the leader of a term to resign.
 *
 * KEYS 1 request (hash) · ARGV 1 term · 2 preferred id or '' · 3 keep in ms · 4 channel · Replies 1
 */
export const REQUEST_RESIGN: NodeScript = defineScript(
  "leader-request-resign",
  /* lua */ `
redis.call('HSET', KEYS[1], 'term', ARGV[1], 'preferred', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
redis.call('PUBLISH', ARGV[4], 'resign')
return 1
`,
);
