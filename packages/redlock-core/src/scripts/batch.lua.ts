/**
 * The one script of the lock protocol: all operations that a client issued to a node in one turn of its event loop, in the
 * order of issue. An operation that fails (a key of another type, out of memory, a text that is none) fails alone.
 *
 * KEYS  the node's hash if quarantine > 0, then three per resource and operation: lock, fence, waiters
 * ARGV  1: "<quarantine in ms, or 0> <life of a stored fencing token in ms> <clamp in µs> <life of a reservation in ms>
 *       <1 where PUBLISH counts every subscriber of the node, or 0> <life of an idle queue of waiters in ms>"
 *       then one per operation, as operation.ts writes it: its letter (A acquire, E extend, R release, L leave, W wait), its count
 *       of resources, and what its file says. One argument per operation rather than up to seven: what a client and a node
 *       spend on a request grows with its arguments.
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
import { shortWay } from "./short-way.lua.ts";

const header = /* lua */ `
local call, match = redis.call, string.match
local quarantineMs, fenceTtl, clampUs, others = match(ARGV[1], '^(%d+) (%d+) (%d+) (.*)$')
local time = call('TIME')
`;

const otherOptions = /* lua */ `
local grantTtl, receivers, waiterTtl = match(others, '^(%d+) ([01]) (%d+)$')
local nowUs = time[1] * 1000000 + time[2]
local countsReceivers = receivers == '1'
clampUs, waiterTtl = tonumber(clampUs), tonumber(waiterTtl)
`;

const dispatch = /* lua */ `
local operations = {
  A = {acquire, '^A(%d+) (%x+) (%d+) (%d+) (%d+) (.*)$'},
  E = {extend, '^E(%d+) (%d+) (%-?%d+) (.*)$'},
  R = {release, '^R(%d+) (.*)$'},
  L = {leave, '^L(%d+) (.*)$'},
  W = {wait, '^W(%d+) (%d+) (.*)$'},
}
for n = n, #ARGV do
  local operation = operations[string.sub(ARGV[n], 1, 1)]
  local countText, a, b, c, d, e = match(ARGV[n], operation[2])
  local count = tonumber(countText or match(ARGV[n], '^.(%d+)'))
  local ok, reply
  if countText then ok, reply = pcall(operation[1], first, count, a, b, c, d, e)
  else reply = 'ERR operation ' .. string.sub(ARGV[n], 1, 1) .. ' cannot be read' end
  if not ok then reply = {-1, type(reply) == 'table' and reply.err or tostring(reply)} end
  replies[n + 2] = reply
  first = first + 3 * count
end
handOverFreed()
return replies
`;

export const batchScript: NodeScript = defineScript(
  "batch",
  [header, quarantine, shortWay, otherOptions, handOver, acquire, extend, release, dispatch].join(""),
);
