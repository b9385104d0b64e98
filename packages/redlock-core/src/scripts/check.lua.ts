/**
 * Reads the facts about a node for `check()`. `CHECK_REPLY` describes the elements of the reply.
 *
 * - KEYS[1]: key for the attempt to write.
 * - KEYS[2]: the node's hash, if there is one.
 * - ARGV[1]: quarantine of the caller in ms, stored in the hash if the node accepts writes.
 */
import { defineScript, type NodeScript, replyInLua } from "../rules/script.ts";

export const CHECK_REPLY = {
  /** INFO of the sections server, replication, memory, persistence and cluster. */
  info: "table.concat(info, '\\r\\n')",
  /** The node's time. */
  seconds: "seconds",
  micros: "micros",
  /** Process and time stored in the node's hash. */
  knownRunId: "knownRunId or ''",
  since: "since or ''",
  /** Quarantine that a client reported before this check. */
  knownQuarantine: "knownQuarantine or ''",
  /** Error of the attempt to write. */
  writeError: "tried.err or ''",
} as const;

export const checkScript: NodeScript = defineScript(
  "check",
  /* lua */ `
local call = redis.call
local info = {}
for _, section in ipairs({'server', 'replication', 'memory', 'persistence', 'cluster'}) do info[#info + 1] = call('INFO', section) end
local knownRunId, since, knownQuarantine
if KEYS[2] then knownRunId, since, knownQuarantine = unpack(call('HMGET', KEYS[2], 'run_id', 'since', 'quarantine')) end
if KEYS[2] then redis.pcall('HSET', KEYS[2], 'quarantine', ARGV[1]) end
local tried = redis.pcall('SET', KEYS[1], '', 'PX', 1)
local time = redis.pcall('TIME')
if time.err then return redis.error_reply('TIME_REFUSED the server refuses TIME, by which leases end: ' .. time.err) end
local seconds, micros = unpack(time)
return ${replyInLua(CHECK_REPLY)}
`,
);

/**
 * Does nothing, and replies 1. KEYS are keys for which the user needs rights. The server checks the rights before it
 * runs the script.
 */
export const rightsScript: NodeScript = defineScript("rights", "return 1");
