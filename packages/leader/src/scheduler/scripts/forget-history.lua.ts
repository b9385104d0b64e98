import type { NodeScript } from "@x/redlock-core";
import { defineScript } from "@x/redlock-core/protocol";

/**
 * Removes the histories of schedules that were removed.
 *
 * KEYS 1 histories (hash of texts by schedule) · 2 newest lines (hash by schedule)
 * ARGV fields
 *
 * Replies 1
 */
export const FORGET_HISTORY: NodeScript = defineScript(
  "leader-forget-history",
  /* lua */ `
redis.call('HDEL', KEYS[1], unpack(ARGV))
redis.call('HDEL', KEYS[2], unpack(ARGV))
return 1
`,
);
