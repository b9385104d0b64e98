import type { NodeScript } from "@x/redlock-core";
import { defineScript } from "@x/redlock-core/protocol";

/**
 * Reads what became of the ticks of a schedule, or the newest line of every one.
 *
 * KEYS 1 histories (hash of texts by schedule) · 2 newest lines (hash by schedule)
 * ARGV 1 field, or '' for all
 *
 * Replies the lines of the one, or field and newest line by turns; each line has a line end
 */
export const READ_HISTORY: NodeScript = defineScript(
  "leader-read-history",
  /* lua */ `
if ARGV[1] ~= '' then return redis.call('HGET', KEYS[1], ARGV[1]) or '' end
local all = redis.call('HGETALL', KEYS[2])
for i = 1, #all, 2 do all[i] = all[i] .. '\\n' end
return table.concat(all)
`,
);
