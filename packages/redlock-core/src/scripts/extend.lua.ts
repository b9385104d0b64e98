/**
 * Defines `extend(first, count, ttl, ballot, token)`: prolongs the holder's lease, all resources or none.
 *
 * KEYS as in acquire; `ttl` in ms; `ballot`: the fencing token of the grant.
 *
 * Replies
 *   1              every key still held the token; it lives for at least ttl from now, and the stored fencing token as after a grant
 *   2              repaired: a key was missing and nothing newer had been granted here, so it was set again. The caller must
 *                  not count this as a vote: the gap may have been somebody else's turn. In quarantine what was granted here
 *                  since counts for nobody, so contenders' attempts do not keep a node that restarted from being repaired
 *   {0, index}     the index-th resource is somebody else's, or something newer was granted
 *   {0, index, 1}  the same, by force: an operator took the lock away (scripts/force-release.lua.ts)
 */
export const extend: string = /* lua */ `
local function mayRepair(value, fenceKey, ballot, forced)
  if value and not (quarantineLeftMs > 0 and reservedFor(value)) then return false end
  if (tonumber(call('GET', fenceKey)) or 0) <= ballot then return true end
  return quarantineLeftMs > 0 and forced < ballot
end

local function extend(first, count, ttlText, ballotText, token)
  local ttl, ballot, missing = tonumber(ttlText), tonumber(ballotText), false
  local lost = {}
  for i = 0, count - 1 do
    local value, fenceKey = valueOf(KEYS[first + 3 * i]), KEYS[first + 3 * i + 1]
    if value ~= token then
      local forced = tonumber(call('GET', fenceKey .. ':forced')) or 0
      if not mayRepair(value, fenceKey, ballot, forced) then
        if forced >= ballot then return {0, i, 1} end
        return {0, i}
      end
      missing, lost[i] = true, true
    end
  end
  for i = 0, count - 1 do
    local key, fenceKey = KEYS[first + 3 * i], KEYS[first + 3 * i + 1]
    if lost[i] then
      call('SET', key, token, 'PX', ttl)
      if (tonumber(call('GET', fenceKey)) or 0) < ballot then call('SET', fenceKey, ballotText, 'PX', fenceTtl) end
    elseif call('PTTL', key) < ttl then
      call('PEXPIRE', key, ttl)
    end
    call('PEXPIRE', fenceKey, fenceTtl)
  end
  return missing and 2 or 1
end
`;
