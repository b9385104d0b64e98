/**
 * The one script of the lock protocol: all operations that a client issued to a node in one turn of its event loop, in the
 * order of issue. An operation that fails (a key of another type, out of memory) fails alone.
 *
 * KEYS  the node's hash if ARGV[1] > 0, then three per resource and operation: lock, fence, waiters
 * ARGV  1 quarantine in ms, or 0   2 life of a stored fencing token in ms   3 clamp in µs   4 life of a reservation in ms
 *       5 '1' where PUBLISH counts every subscriber of the node   6 life of an idle queue of waiters in ms
 *       then per operation: its letter (A acquire, E extend, R release, L leave, W wait), its count of resources, its arguments
 *
 * Replies {seconds, microseconds, quarantineLeftMs, reply of operation 1, 2, …}: the node's time, and per operation what its
 * file says, or {-1, message} for an error.
 */
import { defineScript, type NodeScript } from "../node.ts";
import { acquire } from "./acquire.lua.ts";
import { extend } from "./extend.lua.ts";
import { handOver } from "./hand-over.lua.ts";
import { quarantine } from "./quarantine.lua.ts";
import { release } from "./release.lua.ts";

const header = /* lua */ `
local call = redis.call
local fenceTtl, clampUs, grantTtl, countsReceivers, waiterTtl = ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5] == '1', tonumber(ARGV[6])
`;

const dispatch = /* lua */ `
local operations = {A = {acquire, 5}, E = {extend, 3}, R = {release, 1}, L = {leave, 1}, W = {wait, 2}}
local replies = {time[1], time[2], quarantineLeftMs}
local first, a = quarantineMs > 0 and 2 or 1, 7
while ARGV[a] do
  local operation, count = operations[ARGV[a]], tonumber(ARGV[a + 1])
  local ok, reply = pcall(operation[1], first, count, a + 2)
  if not ok then reply = {-1, type(reply) == 'table' and reply.err or tostring(reply)} end
  replies[#replies + 1] = reply
  first = first + 3 * count
  a = a + 2 + operation[2]
end
handOverFreed()
return replies
`;

export const batchScript: NodeScript = defineScript(
  "batch",
  [header, quarantine, handOver, acquire, extend, release, dispatch].join(""),
);
