/**
 * `extend` and `repair`, both with (first, count, ttl, ballot, registers, token).
 *
 * - `first`: index in KEYS of the first lock. The other locks follow, then their fences (force-release.lua.ts).
 * - `ballot`: fencing token of the holder.
 * - `registers`: five digits for each resource, its register in the node's hash. Zeros on a node alone.
 *
 * `extend` prolongs the holder's lease, of all resources or none. Replies:
 * - 1: extended. Every key still had the token, and lives for at least `ttl` ms from now.
 * - 2: repaired. A key was missing, and the node has granted nothing newer for the resource, so the key was set again.
 *   The caller must not count this reply as a vote, because another holder may have had the resource in between. In
 *   quarantine, a newer grant does not prevent the repair, because it did not count.
 * - 3: a key is missing or only reserved, and the node has granted something newer, perhaps for another resource of the
 *   same register. Nothing was changed, see `repair`.
 * - {0, index}: the resource of this index has another holder.
 * - {0, index, 1}: an operator has taken the resource from its holder.
 *
 * `repair` sets missing keys again, regardless of newer grants on this node. A holder calls `repair` if no other client
 * can have acquired the lock. Replies 1, or 0 if a key has another holder or an operator has taken the resource.
 */

/** What a node replies to `extend`, see above. */
export type ExtensionReply = "extended" | "repaired" | "missing" | "taken" | "forced" | "unknown";

export function parseExtension(value: unknown): ExtensionReply {
  if (value === 1) return "extended";
  if (value === 2) return "repaired";
  if (value === 3) return "missing";
  if (!Array.isArray(value)) return "unknown";
  const [, , isForced] = value as readonly unknown[];
  return isForced === 1 ? "forced" : "taken";
}

export const extend: string = /* lua */ `
local function isForced(fence, ballot)
  return (tonumber(call('GET', fence) or nil) or 0) >= ballot
end

local function isFree(value) return not value or reservedFor(value) end

local function nameOf(registers, i) return tostring(tonumber(sub(registers, 5 * i + 1, 5 * i + 5))) end

-- Returns the largest ballot granted here for any resource of the register, or the last number of a node alone.
local function largestGrant(registers, i)
  local largest
  if several then
    local name = nameOf(registers, i)
    largest = raised[name] or call('HMGET', KEYS[3], name)[1]
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
      if isForced(KEYS[first + i + count], ballot) then return {0, i, 1} end
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
    if value ~= token and (not isFree(value) or isForced(KEYS[i + count], ballot)) then return 0 end
  end
  for i = 0, count - 1 do
    local key = KEYS[first + i]
    if valueOf(key) ~= token then setAgain(key, token, ttl, registers, i, ballot) end
  end
  return 1
end
`;
