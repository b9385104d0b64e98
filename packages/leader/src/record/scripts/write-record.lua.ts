import type { NodeScript } from "@x/redlock-core";
import { defineScript } from "@x/redlock-core/protocol";

/**
 * Writes the record of a term. A node never replaces the record of a newer term. The leader repeats its record once per
 * lease, so a node that lost its data receives the record again.
 *
 * - KEYS are the leader (hash), the terms (zset: record by term) and the request.
 * - ARGV[1] to ARGV[4] are the term, the revision, the lock token and the record, whose JSON is opaque here.
 * - ARGV[5] is 1 if the term ended with a clean resignation.
 * - ARGV[6] is the lifetime of the record, in ms.
 * - ARGV[7] is the greatest number of records in `terms`.
 * - ARGV[8] is the channel.
 *
 * Replies {'stale'} if the node knows a newer term, otherwise {'ok', 0|1}. 1 means that the term was asked to resign. A
 * stored term or revision that a double cannot hold exactly cannot be from a leader, and counts as 0.
 */
export const WRITE_RECORD: NodeScript = defineScript(
  "leader-write-record",
  /* lua */ `
local call = redis.call
local stored = call('HMGET', KEYS[1], 'term', 'revision', 'ended')
local function countOf(text)
  local count = tonumber(string.match(text or '', '^%d+$') or nil) or 0
  return count <= 9007199254740991 and count or 0
end
local storedTerm, term = countOf(stored[1]), tonumber(ARGV[1])
if storedTerm > term then return {'stale'} end
local ended = ARGV[5]
local same = storedTerm == term
if same and stored[3] == '1' then ended = '1' end
local newer = not same or countOf(stored[2]) < tonumber(ARGV[2])
if newer then
  call('HSET', KEYS[1], 'term', ARGV[1], 'revision', ARGV[2], 'token', ARGV[3], 'record', ARGV[4])
  call('ZREMRANGEBYSCORE', KEYS[2], ARGV[1], ARGV[1])
  call('ZADD', KEYS[2], ARGV[1], ARGV[4])
  call('ZREMRANGEBYRANK', KEYS[2], 0, -1 - tonumber(ARGV[7]))
end
if not same or stored[3] ~= ended then call('HSET', KEYS[1], 'ended', ended) newer = true end
call('PEXPIRE', KEYS[1], ARGV[6])
call('PEXPIRE', KEYS[2], ARGV[6])
if newer then call('PUBLISH', ARGV[8], 'leader') end
return {'ok', call('GET', KEYS[3]) == ARGV[1] and 1 or 0}
`,
);
