/**
 * Takes a lock away from whoever holds it. Replies 1 if a lock was taken away, else 0.
 *
 * Its register, or the last number of a node alone, is raised above every one that may have been granted, here or
 * elsewhere. A note beside the lock says up to which holders it was taken away.
 *
 * So the holder's next extension neither succeeds nor sets the key again, also where the key is missing or of another's
 * failed attempt. Waiters get the lock as after a release. A key without expiry, or of another type, is somebody's
 * data, and stays as it is.
 *
 * - KEYS[1] is the node's hash or its last number.
 * - KEYS[2] is the lock.
 * - ARGV[1] is the life of the note in ms.
 * - ARGV[2] is the life of a reservation in ms.
 * - ARGV[3] is '1' where PUBLISH counts every subscriber.
 * - ARGV[4] is how far a grant may be ahead of the node's time, in µs.
 * - ARGV[5] is the register in the hash, or '' if the node numbers the grants.
 */
import { defineScript, type NodeScript } from "../rules/script.ts";
import { handOver } from "./hand-over.lua.ts";
import { fenceOf, lineOf } from "./side-keys.lua.ts";

export const forceReleaseScript: NodeScript = defineScript(
  "force-release",
  [
    /* lua */ `
local call = redis.call
local noteTtl, grantTtl, countsReceivers, aheadUs, register = ARGV[1], ARGV[2], ARGV[3] == '1', ARGV[4], ARGV[5]
local waiterTtl, isWaiting = 0, nil
local waitersOf, fenceOf = ${lineOf}, ${fenceOf}
`,
    handOver,
    /* lua */ `
local value = valueOf(KEYS[2])
if call('PTTL', KEYS[2]) == -1 or string.match(value or '', '^WRONGTYPE') then return 0 end
local time, largest = call('TIME'), nil
if register == '' then largest = call('GET', KEYS[1]) else largest = call('HMGET', KEYS[1], register)[1] end
local largestUs = time[1] * 1000000 + time[2] + tonumber(aheadUs)
local raised = string.format('%016.0f', math.max(tonumber(largest or nil) or 0, largestUs) + 1)
if register == '' then call('SET', KEYS[1], raised) else call('HSET', KEYS[1], register, raised) end
call('SET', fenceOf(KEYS[2]), raised, 'PX', noteTtl)
if not value or reservedFor(value) then return 0 end
call('DEL', KEYS[2])
handOver(2)
return 1
`,
  ].join(""),
);
