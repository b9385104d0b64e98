import type { NodeScript } from "@x/redlock-core";
import { defineScript } from "@x/redlock-core/protocol";

/**
 * Reads what one node knows of an election.
 *
 * KEYS 1 lock · 2 leader · 3 terms · 4 request · 5 candidates (hash: instance → "until-by-node-time priority id")
 * ARGV 1 only terms above this · 2 at most so many of them, the newest
 *
 * Replies {lock value, pttl, {term, revision, token, record, ended}, {request term, preferred}, records ascending, candidates, node's time in ms}
 */
export const READ_RECORD: NodeScript = defineScript(
  "leader-read-record",
  /* lua */ `
local call = redis.call
local leader = call('HMGET', KEYS[2], 'term', 'revision', 'token', 'record', 'ended')
local request = call('HMGET', KEYS[4], 'term', 'preferred')
for i = 1, 5 do leader[i] = leader[i] or '' end
for i = 1, 2 do request[i] = request[i] or '' end
local terms = call('ZREVRANGEBYSCORE', KEYS[3], '+inf', '(' .. ARGV[1], 'LIMIT', 0, ARGV[2])
local time = call('TIME')
return {call('GET', KEYS[1]) or '', call('PTTL', KEYS[1]), leader, request, terms, call('HVALS', KEYS[5]),
  time[1] * 1000 + math.floor(time[2] / 1000)}
`,
);
