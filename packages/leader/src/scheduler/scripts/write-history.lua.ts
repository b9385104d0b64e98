import type { NodeScript } from "@x/redlock-core";
import { defineScript } from "@x/redlock-core/protocol";

/**
 * Puts lines before those that a schedule's history has. A line replaces the first one if that has its key. A
 * history that is too long is cut to what the pattern reaches.
 *
 * KEYS
 * - 1: histories, a hash of texts by schedule.
 * - 2: newest lines, a hash by schedule.
 *
 * ARGV
 * - 1: pattern of the lines that are kept.
 * - 2: too long, in bytes.
 * - 3: keep in ms.
 * - then field, key and rest of each line.
 *
 * Replies 1
 */
export const WRITE_HISTORY: NodeScript = defineScript(
  "leader-write-history",
  /* lua */ `
local call = redis.call
local most = tonumber(ARGV[2])
for i = 4, #ARGV, 3 do
  local key = ARGV[i + 1]
  local line = key .. ARGV[i + 2]
  local known = call('HGET', KEYS[1], ARGV[i]) or ''
  if string.sub(known, 1, string.len(key)) == key then known = string.match(known, '^[^\\n]*\\n(.*)$') end
  local text = line .. known
  if string.len(text) > most then text = string.match(text, ARGV[1]) or text end
  call('HSET', KEYS[1], ARGV[i], text)
  call('HSET', KEYS[2], ARGV[i], line)
end
call('PEXPIRE', KEYS[1], ARGV[3])
call('PEXPIRE', KEYS[2], ARGV[3])
return 1
`,
);
