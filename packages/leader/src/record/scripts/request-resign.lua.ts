import type { NodeScript } from "@x/redlock-core";
import { defineScript } from "@x/redlock-core/protocol";

/**
 * Asks the leader of a term to resign.
 *
 * KEYS 1 request (the term) · ARGV 1 term · 2 keep in ms · 3 channel · Replies 1
 */
export const REQUEST_RESIGN: NodeScript = defineScript(
  "leader-request-resign",
  /* lua */ `
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('PUBLISH', ARGV[3], 'resign')
return 1
`,
);
