import type { NodeScript } from "@x/redlock-core";
import { defineScript } from "@x/redlock-core/protocol";

/**
 * Asks the leader of a term to resign. Replies 1. KEYS[1] is the request. ARGV are the term, how long to keep it in ms,
 * and the channel.
 */
export const REQUEST_RESIGN: NodeScript = defineScript(
  "leader-request-resign",
  /* lua */ `
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('PUBLISH', ARGV[3], 'resign')
return 1
`,
);
