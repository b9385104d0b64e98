/**
 * Reads a resource on one node without changing anything. Replies {value or '', pttl, fence or '', count of waiters,
 * seconds, microseconds, run_id, remembered run_id, since}.
 *
 * - KEYS[1] is where the fence is, KEYS[2] the lock, KEYS[3] the waiters.
 * - ARGV[1] is the field of the fence in the node's hash, or '' if it is no hash.
 * - ARGV[2] is '1' with quarantine.
 */
import { defineScript, type NodeScript } from "../rules/script.ts";

export const inspectScript: NodeScript = defineScript(
  "inspect",
  /* lua */ `
local call = redis.call
local time = call('TIME')
local kind = call('TYPE', KEYS[2]).ok
local value = kind == 'string' and call('GET', KEYS[2]) or (kind == 'none' and '' or 'type:' .. kind)
local seen
if ARGV[1] == '' then seen = {false, false, call('GET', KEYS[1])} else seen = call('HMGET', KEYS[1], 'run_id', 'since', ARGV[1]) end
local runId = ARGV[2] == '1' and string.match(call('INFO', 'server'), 'run_id:(%x+)') or ''
return {value, call('PTTL', KEYS[2]), seen[3] or '', call('ZCARD', KEYS[3]), time[1], time[2], runId, seen[1] or '', seen[2] or ''}
`,
);
