import { runIdIn } from "./run-id.lua.ts";

/**
 * Returns Lua that sets `quarantineLeftMs`: for how many milliseconds more this node may not vote. It may have
 * forgotten a lock that is still valid. The number is 0 if the node may vote.
 *
 * `hash` is the Lua of the node's hash, and `seen` has its run_id and since. `quarantineMs` is how long the quarantine
 * is, as text. The node's time is `now`, the text of its µs, and `nowUs`, the number.
 *
 * The process that answers is known by its `run_id`, which is read here, inside the script. Read at the handshake, it
 * misses the commands that a client library resends before (32 violations in 10,000 simulated schedules against 0).
 *
 * The node's hash remembers the run_id, and since when this data set has been in its hands. The time starts again in
 * these cases:
 * - The hash is missing: a restart without persistence, FLUSHALL, or an empty replica that was promoted.
 * - It names another process: a restart from a snapshot, or a failover to a stale replica.
 * - It lies in the future: the clock was set back.
 *
 * To look for the known run_id as plain text costs a lone request a fifth less than to read whatever is there by a
 * pattern. How long the quarantine is stays with it, for `check()`.
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

/** Sets `quarantineLeftMs` as the header of a batch asks. */
export const quarantine: string = /* lua */ `
if seen and byte(header, 18) ~= 48 then
  local quarantineMs, nowUs = string.match(sub(header, 18), '^%d+'), tonumber(now)
  ${quarantineIn("KEYS[2]")}
end
`;
