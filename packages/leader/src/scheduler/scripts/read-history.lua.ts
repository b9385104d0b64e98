import type { NodeScript } from "@x/redlock-core";
import { defineScript } from "@x/redlock-core/protocol";

/**
 * Reads the histories of some schedules, or the newest line of each schedule.
 *
 * KEYS 1 histories (hash of texts by schedule) · 2 newest lines (hash by schedule)
 * ARGV fields; none: all
 *
 * Replies the lines of each field, or one text of each field and its newest line; each line has a line end
 */
export const READ_HISTORY: NodeScript = defineScript(
  "leader-read-history",
  /* lua */ `
if #ARGV > 0 then return redis.call('HMGET', KEYS[1], unpack(ARGV)) end
local all = redis.call('HGETALL', KEYS[2])
for i = 1, #all, 2 do all[i] = all[i] .. '\\n' end
return table.concat(all)
`,
);
