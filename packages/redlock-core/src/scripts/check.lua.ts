/**
 * Asks a node what `check()` wants to know. Replies {INFO server, replication, memory, persistence, cluster; TIME;
 * remembered run_id, since, quarantine; why it refuses writes, or ''}.
 *
 * - KEYS[1] is a key to try to write.
 * - KEYS[2] is the node's hash, if there is one.
 * - ARGV[1] is the quarantine of the caller, which is remembered from now on, where the node can be written to.
 */
import { defineScript, type NodeScript } from "../rules/script.ts";

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

/**
 * Does nothing, and replies 1. KEYS are those that the user must have the rights to, which the server looks at before
 * it runs a script.
 */
export const rightsScript: NodeScript = defineScript("rights", "return 1");
