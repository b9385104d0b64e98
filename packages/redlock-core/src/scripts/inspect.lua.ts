/**
 * Reads a resource on one node without changing anything.
 *
 * KEYS lock, fence, waiters; the node's hash if ARGV[1] is '1'.
 * Replies {value or '', pttl, fence or '', count of waiters, seconds, microseconds, run_id, remembered run_id, since}.
 */
import { defineScript, type NodeScript } from "../node.ts";

export const inspectScript: NodeScript = defineScript(
  "inspect",
  /* lua */ `
local call = redis.call
local time = call('TIME')
local kind = call('TYPE', KEYS[1]).ok
local value = kind == 'string' and call('GET', KEYS[1]) or (kind == 'none' and '' or 'type:' .. kind)
local seen = ARGV[1] == '1' and call('HMGET', KEYS[4], 'run_id', 'since') or {}
local runId = ARGV[1] == '1' and string.match(call('INFO', 'server'), 'run_id:(%x+)') or ''
return {value, call('PTTL', KEYS[1]), call('GET', KEYS[2]) or '', call('ZCARD', KEYS[3]), time[1], time[2], runId, seen[1] or '', seen[2] or ''}
`,
);
