/**
 * Defines `extend` and `repair`, both with (first, count, ttl, ballot, registers, token). `registers` has five digits
 * for each resource, its register in the node's hash; they are zeros where a node votes alone.
 *
 * `extend` prolongs the holder's lease, of all resources or none. It replies:
 * - 1: every key still held the token, and lives for at least ttl from now.
 * - 2: repaired. A key was missing, and nothing newer can have been granted for it here, so it was set again. The
 *   caller must not count this as a vote, because the gap may have been somebody else's turn. In quarantine, what was
 *   granted here since counts for nobody.
 * - 3: a key is missing or only reserved, and something newer was granted here, perhaps for another resource of the
 *   same register. Nothing was changed, see `repair`.
 * - {0, index}: the index-th resource is somebody else's.
 * - {0, index, 1}: the same, because an operator took the lock away (scripts/force-release.lua.ts).
 *
 * `repair` sets again what is missing, whatever was granted here meanwhile. It is for a holder who knows that nobody
 * else can have got the lock. It replies 1, or 0 where somebody else has a key or an operator took the lock away.
 */
export const extend: string = /* lua */ `
local function isForced(i, ballot)
  return (tonumber(call('GET', fenceOf(KEYS[i])) or nil) or 0) >= ballot
end

local function isFree(value) return not value or reservedFor(value) end

local function nameOf(registers, i) return tostring(tonumber(sub(registers, 5 * i + 1, 5 * i + 5))) end

-- The largest ballot granted here for any resource of the register, or the last number of a node alone.
local function largestGrant(registers, i)
  local largest
  if several then
    local name = nameOf(registers, i)
    largest = raised[name] or call('HMGET', KEYS[2], name)[1]
  else
    largest = top or call('GET', topKey)
  end
  return tonumber(largest or nil) or 0
end

local function mayRepair(value, registers, i, ballot)
  if quarantineLeftMs > 0 then return true end
  return not value and largestGrant(registers, i) <= ballot
end

local function setAgain(key, token, ttl, registers, i, ballot)
  call('SET', key, token, 'PX', ttl)
  if largestGrant(registers, i) >= ballot then return end
  if several then raise(nameOf(registers, i), string.format('%016.0f', ballot))
  elseif top then top = ballot
  else call('SET', topKey, string.format('%016.0f', ballot)) end
end

local function extend(first, count, ttlText, ballotText, registers, token)
  local ttl, ballot, missing, refused = tonumber(ttlText), tonumber(ballotText), nil, false
  for i = 0, count - 1 do
    local value = valueOf(KEYS[first + i])
    if value ~= token then
      if isForced(first + i, ballot) then return {0, i, 1} end
      if not isFree(value) then return {0, i} end
      missing = missing or {}
      missing[i] = true
      refused = refused or not mayRepair(value, registers, i, ballot)
    end
  end
  if refused then return 3 end
  for i = 0, count - 1 do
    local key = KEYS[first + i]
    if missing and missing[i] then setAgain(key, token, ttl, registers, i, ballot)
    elseif call('PTTL', key) < ttl then call('PEXPIRE', key, ttl) end
  end
  return missing and 2 or 1
end

local function repair(first, count, ttl, ballotText, registers, token)
  local ballot = tonumber(ballotText)
  for i = first, first + count - 1 do
    local value = valueOf(KEYS[i])
    if value ~= token and (not isFree(value) or isForced(i, ballot)) then return 0 end
  end
  for i = 0, count - 1 do
    local key = KEYS[first + i]
    if valueOf(key) ~= token then setAgain(key, token, ttl, registers, i, ballot) end
  end
  return 1
end
`;
