/**
 * Takes a lock away from its holder. Replies 1 if the lock had a holder, otherwise 0.
 *
 * The script raises the lock's register, or the last number of a node alone, above every fencing token that any node
 * may have granted. The fence of the lock then contains this number. So the holder's next extension neither succeeds
 * nor sets the key again, even if the key is missing or belongs to another holder's failed attempt. The first waiter
 * gets the lock as after a release. A key without expiry, or of another type, is not a lock, so the script does not
 * change it.
 *
 * - KEYS[1] is the node's hash or its last number.
 * - KEYS[2] is the lock.
 * - KEYS[3] is the fence of the lock.
 * - KEYS[4] and KEYS[5] are the lines of waiters and their ends.
 * - ARGV[1] is the life of the fence in ms.
 * - ARGV[2] is the life of a reservation in ms.
 * - ARGV[3] is '1' if PUBLISH counts every subscriber.
 * - ARGV[4] is how far a grant may be ahead of the node's time, in µs.
 * - ARGV[5] is the register in the hash, or '' if the node numbers the grants.
 */
import { defineScript, type NodeScript } from "../rules/script.ts";
import { handOver } from "./hand-over.lua.ts";

export const forceReleaseScript: NodeScript = defineScript(
  "force-release",
  [
    /* lua */ `
local call = redis.call
local numbers, lock, fence, lines, lineEnds = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local fenceTtl, grantTtl, countsReceivers, aheadUs, register = ARGV[1], ARGV[2], ARGV[3] == '1', ARGV[4], ARGV[5]
`,
    handOver,
    /* lua */ `
local value = valueOf(lock)
if call('PTTL', lock) == -1 or string.match(value or '', '^WRONGTYPE') then return 0 end
local time, largest = call('TIME'), nil
if register == '' then largest = call('GET', numbers) else largest = call('HMGET', numbers, register)[1] end
local largestUs = time[1] * 1000000 + time[2] + tonumber(aheadUs)
local raised = string.format('%016.0f', math.max(tonumber(largest or nil) or 0, largestUs) + 1)
if register == '' then call('SET', numbers, raised) else call('HSET', numbers, register, raised) end
call('SET', fence, raised, 'PX', fenceTtl)
if not value or reservedFor(value) then return 0 end
call('DEL', lock)
handOver(lock)
return 1
`,
  ].join(""),
);
