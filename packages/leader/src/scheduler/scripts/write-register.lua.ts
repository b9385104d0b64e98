import type { NodeScript } from "@x/redlock-core";
import { defineScript, runIdIn } from "@x/redlock-core/protocol";
import { REGISTER_FACTS } from "./register-facts.lua.ts";

/**
 * Writes a step or the whole register to a node: see register.ts. Repeated and outdated writes have no effect.
 *
 * KEYS
 * - 1: register, a hash of lines by field. `:promised` is a term, `:term` and `:step` are the version. `:run` is the
 *   process that received the whole register.
 * - 2: mailbox, a hash of lines by field.
 *
 * ARGV
 * - 1, 2: term and step.
 * - 3, 4: term and step of the version that the step changes.
 * - 5: '' for a step. For a full write, the answers for which it is valid: `process:term.step;` for each.
 * - 6: lifetime in ms.
 * - 7: number of orders to remove from the mailbox.
 * - then these orders, each as field and line.
 * - then the fields and lines to write. The line '' removes its field.
 *
 * Replies
 * - {'stale', promised}: the node has promised to accept no term below this one.
 * - {'ok', term, step, process, whole, mailbox, time, wrong}: the version that is here now. Whole is 1 if all of it is
 *   from this very process. Time is the node's clock in ms. Wrong names the own fields whose value cannot be right.
 */
export const WRITE_REGISTER: NodeScript = defineScript(
  "leader-write-register",
  /* lua */ `${REGISTER_FACTS}
local term, step = tonumber(ARGV[1]), tonumber(ARGV[2])
if promised > term then return {'stale', seen[1]} end
local here = ${runIdIn("call('INFO', 'server')")}
local isNewer = hereTerm < term or (hereTerm == term and hereStep < step)
local first = 8 + 2 * tonumber(ARGV[7])
for i = 8, first - 1, 2 do
  if call('HGET', KEYS[2], ARGV[i]) == ARGV[i + 1] then call('HDEL', KEYS[2], ARGV[i]) end
end
local fits
if ARGV[5] ~= '' then
  fits = string.find(ARGV[5], here .. ':' .. asText(hereTerm) .. '.' .. asText(hereStep) .. ';', 1, true)
  if fits and isNewer then call('DEL', KEYS[1]) end
else
  fits = seen[4] == here and hereTerm == tonumber(ARGV[3]) and hereStep == tonumber(ARGV[4])
end
if fits and isNewer then
  for i = first, #ARGV, 2 do
    if ARGV[i + 1] == '' then call('HDEL', KEYS[1], ARGV[i]) else call('HSET', KEYS[1], ARGV[i], ARGV[i + 1]) end
  end
  call('HSET', KEYS[1], ':promised', ARGV[1], ':term', ARGV[1], ':step', ARGV[2], ':run', here)
  hereTerm, hereStep, seen[4] = term, step, here
elseif fits then
  call('HSET', KEYS[1], ':run', here)
  seen[4] = here
end
call('PEXPIRE', KEYS[1], ARGV[6])
return {'ok', asText(hereTerm), asText(hereStep), here, seen[4] == here and 1 or 0, call('HGETALL', KEYS[2]), nowMs(), wrong}
`,
);
