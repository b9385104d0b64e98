/**
 * Reads a resource on one node without changing anything. `INSPECT_REPLY` describes the elements of the reply.
 *
 * - KEYS[1]: the key that contains the fence. KEYS[2]: the lock. KEYS[3]: the lines of waiters.
 * - ARGV[1]: field of the fence in the node's hash, or '' if KEYS[1] is not a hash.
 * - ARGV[2]: '1' with quarantine.
 */
import { defineScript, type NodeScript, replyInLua } from "../rules/script.ts";
import { lengthOfLine } from "./hand-over.lua.ts";

export const INSPECT_REPLY = {
  /** Value of the lock's key, `type:<type>` for a key of another type, or '' for a missing key. */
  value: "value",
  pttl: "call('PTTL', KEYS[2])",
  fence: "fence or ''",
  waiters: "waiters",
  /** The node's time. */
  seconds: "seconds",
  micros: "micros",
  /** Process ID of the node (`run_id`). '' without quarantine. */
  runId: "runId",
  /** Process and time stored in the node's hash. */
  knownRunId: "knownRunId or ''",
  since: "since or ''",
} as const;

export const inspectScript: NodeScript = defineScript(
  "inspect",
  /* lua */ `
local call, lines = redis.call, KEYS[3]
local seconds, micros = unpack(call('TIME'))
local kind = call('TYPE', KEYS[2]).ok
local value = kind == 'string' and call('GET', KEYS[2]) or (kind == 'none' and '' or 'type:' .. kind)
local waiters = ${lengthOfLine("KEYS[2]")}
local fence, knownRunId, since
if ARGV[1] == '' then fence = call('GET', KEYS[1])
else fence, knownRunId, since = unpack(call('HMGET', KEYS[1], ARGV[1], 'run_id', 'since')) end
local runId = ARGV[2] == '1' and string.match(call('INFO', 'server'), 'run_id:(%x+)') or ''
return ${replyInLua(INSPECT_REPLY)}
`,
);
