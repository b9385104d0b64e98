/**
 * Asks a node what `check()` wants to know. `CHECK_REPLY` has the elements of the reply.
 *
 * - KEYS[1] is a key to try to write.
 * - KEYS[2] is the node's hash, if there is one.
 * - ARGV[1] is the quarantine of the caller, which is remembered from now on, where the node can be written to.
 */
import { defineScript, type NodeScript, replyInLua } from "../rules/script.ts";

export const CHECK_REPLY = {
  /** INFO of the sections server, replication, memory, persistence and cluster. */
  info: "table.concat(info, '\\r\\n')",
  /** The node's time. */
  seconds: "seconds",
  micros: "micros",
  /** The process and the time that the node's hash remembers. */
  knownRunId: "knownRunId or ''",
  since: "since or ''",
  /** The quarantine that a client reported last. */
  knownQuarantine: "knownQuarantine or ''",
  /** Why the node refuses writes. */
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
local seconds, micros = unpack(call('TIME'))
return ${replyInLua(CHECK_REPLY)}
`,
);

/**
 * Does nothing, and replies 1. KEYS are those that the user must have the rights to, which the server looks at before
 * it runs a script.
 */
export const rightsScript: NodeScript = defineScript("rights", "return 1");
