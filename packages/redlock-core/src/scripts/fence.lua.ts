/**
 * Claims keys for a fencing token, or runs a user's script while they are claimed for it. KEYS are the claims, then the
 * user's keys. ARGV has these, then the user's:
 * - 1 is the count of claims.
 * - 2 is the token.
 * - 3 is the life of a claim in ms, '' for ever.
 * - 4 is '1' to claim.
 *
 * To claim, the stored token must not be above ours. To run, it must be ours: a holder whose claim is gone does not
 * know who came since. Replies what the user's script returns, or the error
 * `FENCEDOFF <which claim> <token that has it, or nothing>`.
 */

/** The user's script has KEYS and ARGV of its own, and its own line numbers in errors. */
export function fenceScript(script: string): string {
  return /* lua */ `local function body(KEYS, ARGV) ${script}
end
local count, token, keepFor, isClaim = tonumber(ARGV[1]), ARGV[2], ARGV[3], ARGV[4] == '1'
for i = 1, count do
  local stored = redis.call('GET', KEYS[i])
  local isOurs = stored == token
  if isClaim then isOurs = not stored or (tonumber(stored) or math.huge) <= tonumber(token) end
  if not isOurs then return redis.error_reply('FENCEDOFF ' .. i .. ' ' .. (stored or '')) end
end
for i = 1, count do
  if isClaim then redis.call('SET', KEYS[i], token) end
  if keepFor ~= '' then redis.call('PEXPIRE', KEYS[i], keepFor) end
end
local keys, args = {}, {}
for i = count + 1, #KEYS do keys[i - count] = KEYS[i] end
for i = 5, #ARGV do args[i - 4] = ARGV[i] end
return body(keys, args)
`;
}
