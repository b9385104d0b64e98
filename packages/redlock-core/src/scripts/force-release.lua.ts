/**
 * Takes a lock away from whoever holds it.
 *
 * The stored fencing token is raised above every one that may have been granted, here or only on other nodes, so the holder's next
 * extension neither succeeds nor repairs the key, and a note beside it says that this was done by force: also where the key is
 * missing or of another's failed attempt. Waiters get the lock as after a release. A key without expiry, or of another type, is
 * somebody's data, and stays as it is.
 *
 * KEYS lock, fence, waiters; ARGV 1 life of a fencing token in ms, 2 life of a reservation in ms, 3 '1' where PUBLISH counts
 * every subscriber, 4 how far a ballot may be ahead of a node's time, in µs.
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
local value = valueOf(KEYS[1])
if call('PTTL', KEYS[1]) == -1 or string.match(value or '', '^WRONGTYPE') then return 0 end
local time = call('TIME')
local largestUs = time[1] * 1000000 + time[2] + tonumber(ARGV[4])
local raised = string.format('%.0f', math.max(tonumber(call('GET', KEYS[2])) or 0, largestUs) + 1)
call('SET', KEYS[2], raised, 'PX', fenceTtl)
call('SET', KEYS[2] .. ':forced', raised, 'PX', fenceTtl)
if not value or reservedFor(value) then return 0 end
call('DEL', KEYS[1])
handOver(1)
return 1
`,
  ].join(""),
);
