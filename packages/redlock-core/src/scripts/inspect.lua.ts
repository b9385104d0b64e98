/**
 * Reads a resource on one node without changing anything.
 *
 * KEYS where the fence is, lock, waiters; ARGV 1 the field of the fence in the node's hash, '' if it is no hash; 2 '1' with quarantine
 * Replies {value or '', pttl, fence or '', count of waiters, seconds, microseconds, run_id, remembered run_id, since}.
 */
import { defineScript, type NodeScript } from "../nodes/node.ts";

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
