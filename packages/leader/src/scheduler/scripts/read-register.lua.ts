import type { NodeScript } from "@x/redlock-core";
import { defineScript, runIdIn } from "@x/redlock-core/protocol";
import { REGISTER_FACTS } from "./register-facts.lua.ts";

/**
 * Reads a node's register and mailbox. For a new leader, the node also promises to refuse the writes of older terms.
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
  /* lua */ `${REGISTER_FACTS}
if ARGV[1] ~= '' and promised > tonumber(ARGV[1]) then return {'stale', seen[1]} end
if ARGV[2] == '1' then
  call('HSET', KEYS[1], ':promised', ARGV[1])
  call('PEXPIRE', KEYS[1], ARGV[4])
end
local here = ${runIdIn("call('INFO', 'server')")}
return {'ok', asText(hereTerm), asText(hereStep), here, seen[4] == here and 1 or 0, call('HGETALL', KEYS[2]), nowMs(),
  wrong, ARGV[3] == '1' and table.concat(call('HGETALL', KEYS[1]), '::') or ''}
`,
);
