import type { NodeScript } from "@x/redlock-core";
import { defineScript } from "@x/redlock-core/protocol";

/**
 * Reads one node's knowledge of an election. Replies {lock value, pttl, {term, revision, token, record, ended},
 * records, note}.
 *
 * - KEYS are the lock, the leader, the terms and the note of the lock.
 * - ARGV[1] is a term. Only later terms are returned.
 * - ARGV[2] is the greatest number of terms, the newest.
 */
export const READ_RECORD: NodeScript = defineScript(
  "leader-read-record",
  /* lua */ `
local call = redis.call
local leader = call('HMGET', KEYS[2], 'term', 'revision', 'token', 'record', 'ended')
for i = 1, 5 do leader[i] = leader[i] or '' end
local terms = call('ZREVRANGEBYSCORE', KEYS[3], '+inf', '(' .. ARGV[1], 'LIMIT', 0, ARGV[2])
return {call('GET', KEYS[1]) or '', call('PTTL', KEYS[1]), leader, terms, call('GET', KEYS[4]) or ''}
`,
);
