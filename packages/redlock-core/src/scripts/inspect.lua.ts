/**
 * Reads a resource on one node without changing anything. `INSPECT_REPLY` has the elements of the reply.
 *
 * - KEYS[1] is where the fence is, KEYS[2] the lock, KEYS[3] the waiters.
 * - ARGV[1] is the field of the fence in the node's hash, or '' if it is no hash.
 * - ARGV[2] is '1' with quarantine.
 */
import { defineScript, type NodeScript, replyInLua } from "../rules/script.ts";

export const INSPECT_REPLY = {
  /** The value of the lock's key, `type:<type>` for a key of another type, or ''. */
  value: "value",
  pttl: "call('PTTL', KEYS[2])",
  fence: "fence or ''",
  waiters: "call('ZCARD', KEYS[3])",
  /** The node's time. */
  seconds: "seconds",
  micros: "micros",
  /** The process of the node; '' without quarantine. */
  runId: "runId",
  /** The process and the time that the node's hash remembers. */
  knownRunId: "knownRunId or ''",
  since: "since or ''",
} as const;

export const inspectScript: NodeScript = defineScript(
  "inspect",
  /* lua */ `
local call = redis.call
local seconds, micros = unpack(call('TIME'))
local kind = call('TYPE', KEYS[2]).ok
local value = kind == 'string' and call('GET', KEYS[2]) or (kind == 'none' and '' or 'type:' .. kind)
local fence, knownRunId, since
if ARGV[1] == '' then fence = call('GET', KEYS[1])
else fence, knownRunId, since = unpack(call('HMGET', KEYS[1], ARGV[1], 'run_id', 'since')) end
local runId = ARGV[2] == '1' and string.match(call('INFO', 'server'), 'run_id:(%x+)') or ''
return ${replyInLua(INSPECT_REPLY)}
`,
);
