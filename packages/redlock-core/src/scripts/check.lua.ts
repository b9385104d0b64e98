/**
 * What `check()` asks a node: {INFO server, replication, memory, persistence, cluster; TIME; remembered run_id, since, quarantine;
 * why it refuses writes, or ''}.
 *
 * KEYS[1] a key to try to write; KEYS[2] the node's hash, if any; ARGV[1] the quarantine of the one who asks, which is remembered from now on, where the node can be written to.
 */
import { defineScript, type NodeScript } from "../nodes/node.ts";

export const checkScript: NodeScript = defineScript(
  "check",
  /* lua */ `
local call = redis.call
local info = {}
for _, section in ipairs({'server', 'replication', 'memory', 'persistence', 'cluster'}) do info[#info + 1] = call('INFO', section) end
local seen = KEYS[2] and call('HMGET', KEYS[2], 'run_id', 'since', 'quarantine') or {}
if KEYS[2] then redis.pcall('HSET', KEYS[2], 'quarantine', ARGV[1]) end
local tried = redis.pcall('SET', KEYS[1], '', 'PX', 1)
local time = call('TIME')
return {table.concat(info, '\\r\\n'), time[1], time[2], seen[1] or '', seen[2] or '', seen[3] or '', tried.err or ''}
`,
);
