import type { NodeScript } from "@x/redlock-core";
import { defineScript } from "@x/redlock-core/protocol";

/**
 * Stores ticks as dealt with, fenced by the term: a node that saw a newer term refuses. Idempotent for one term and tick.
 *
 * KEYS 1 leader (hash) · 2 ticks (hash: name → "accounted term last missed") · 3 paused (hash: name → "version 0|1 resumed") · 4 running (hash)
 * ARGV 1 term · 2 keep in ms · 3 1: these entries are the whole state, a node that had none has it now · then per entry: name,
 *      tick in ms, last run tick in ms, missed, mode, note of the run ("term attempt"), version of the last pause or resumption that
 *      the leader knows
 *      A term may claim a tick that is older than one of its own: its claims are retried one by one. It knows what it ran.
 *      mode: once = at-most-once · least = at-least-once, also noted as running · skip = dealt with, will not run
 *            hold = only note it as running
 *
 * Replies
 *   {'stale', term}
 *   {had state 0|1, answer per entry}   1 stored · 2 stored, the schedule is paused by an order that the leader does not know · "accounted": dealt with up to there already
 */
export const CLAIM_TICKS: NodeScript = defineScript(
  "leader-claim-ticks",
  /* lua */ `
local call = redis.call
local stored = call('HGET', KEYS[1], 'term')
if stored and tonumber(stored) > tonumber(ARGV[1]) then return {'stale', stored} end
local known = call('HEXISTS', KEYS[2], '')
if ARGV[3] == '1' then call('HSET', KEYS[2], '', '1') end
local answers = {}
for i = 4, #ARGV, 7 do
  local name, tick, mode = ARGV[i], ARGV[i + 1], ARGV[i + 4]
  local accounted, by = string.match(call('HGET', KEYS[2], name) or '', '^(%-?%d+) (%d+)')
  local later = accounted and tonumber(accounted) > tonumber(tick)
  if mode ~= 'hold' and later and by ~= ARGV[1] then
    answers[#answers + 1] = accounted
  else
    if mode ~= 'hold' and not later then
      call('HSET', KEYS[2], name, tick .. ' ' .. ARGV[1] .. ' ' .. ARGV[i + 2] .. ' ' .. ARGV[i + 3])
    end
    local version = string.match(call('HGET', KEYS[3], name) or '', '^(%d+) 1')
    local paused = (mode == 'once' or mode == 'least') and version and tonumber(version) >= tonumber(ARGV[i + 6])
    if (mode == 'least' and not paused) or mode == 'hold' then
      call('HSET', KEYS[4], name .. '@' .. tick, ARGV[i + 5])
    end
    answers[#answers + 1] = paused and 2 or 1
  end
end
for i = 2, 4 do call('PEXPIRE', KEYS[i], ARGV[2]) end
return {known, answers}
`,
);
