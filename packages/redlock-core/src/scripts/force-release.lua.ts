/**
 * Takes a lock away from whoever holds it.
 *
 * The stored fencing token is raised above the holder's, so its next extension neither succeeds nor repairs the key, and a
 * note beside it says that this was done by force. Waiters get the lock as after a release.
 *
 * KEYS lock, fence, waiters; ARGV 1 life of a fencing token in ms, 2 life of a reservation in ms, 3 '1' where PUBLISH counts
 * every subscriber, 4 the caller's wall clock in µs.
 * Replies 1 if a lock was taken away, else 0.
 */
import { defineScript, type NodeScript } from "../node.ts";
import { handOver } from "./hand-over.lua.ts";

export const forceReleaseScript: NodeScript = defineScript(
  "force-release",
  [
    /* lua */ `
local call = redis.call
local fenceTtl, grantTtl, countsReceivers, waiterTtl = ARGV[1], ARGV[2], ARGV[3] == '1', 0
`,
    handOver,
    /* lua */ `
local value = call('GET', KEYS[1])
if not value or reservedFor(value) then return 0 end
local fence = tonumber(call('GET', KEYS[2])) or tonumber(ARGV[4])
local raised = string.format('%.0f', fence + 1)
call('SET', KEYS[2], raised, 'PX', fenceTtl)
call('SET', KEYS[2] .. ':forced', raised, 'PX', fenceTtl)
call('DEL', KEYS[1])
handOver(1)
return 1
`,
  ].join(""),
);
