/** What `check()` asks a node: {INFO server, replication, memory, persistence, cluster; TIME; remembered run_id, since}. KEYS[1]: the node's hash, if any. */
import { defineScript, type NodeScript } from "../node.ts";

export const checkScript: NodeScript = defineScript(
  "check",
  /* lua */ `
local call = redis.call
local info = {}
for _, section in ipairs({'server', 'replication', 'memory', 'persistence', 'cluster'}) do info[#info + 1] = call('INFO', section) end
local seen = KEYS[1] and call('HMGET', KEYS[1], 'run_id', 'since') or {}
local time = call('TIME')
return {table.concat(info, '\\r\\n'), time[1], time[2], seen[1] or '', seen[2] or ''}
`,
);
