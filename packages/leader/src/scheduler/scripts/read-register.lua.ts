import type { NodeScript } from "@x/redlock-core";
import { defineScript } from "@x/redlock-core/protocol";

/**
 * Reads a node's register and mailbox. For a leader that takes office this is the promise, too: from now on no older
 * term writes here.
 *
 * KEYS 1 register (hash) · 2 mailbox (hash)
 *
 * ARGV 1 term of the leader who asks, or '' · 2 '1': promise · 3 '1': with the fields · 4 keep in ms
 *
 * Replies as write-register, and the fields as one text, in which `::` separates them: see `linesIn`. A client needs
 * some 3 µs for each text of a reply, and does nothing else meanwhile.
 */
export const READ_REGISTER: NodeScript = defineScript(
  "leader-read-register",
  /* lua */ `
local call = redis.call
local seen = call('HMGET', KEYS[1], ':promised', ':term', ':step', ':run')
if ARGV[1] ~= '' and (tonumber(seen[1] or nil) or 0) > tonumber(ARGV[1]) then return {'stale'} end
if ARGV[2] == '1' then
  call('HSET', KEYS[1], ':promised', ARGV[1])
  call('PEXPIRE', KEYS[1], ARGV[4])
end
local here = string.match(call('INFO', 'server'), 'run_id:(%x+)')
return {'ok', seen[2] or '0', seen[3] or '0', here, seen[4] == here and 1 or 0, call('HGETALL', KEYS[2]),
  ARGV[3] == '1' and table.concat(call('HGETALL', KEYS[1]), '::') or ''}
`,
);
