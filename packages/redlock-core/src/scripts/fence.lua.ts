/**
 * Claims keys for a fencing token, or runs a user's script while the keys are claimed for the token. KEYS are the
 * claimed keys, followed by the user's keys. ARGV contains the following, followed by the user's arguments:
 * - 1: number of claims.
 * - 2: fencing token.
 * - 3: lifetime of a claim in ms, '' for no limit.
 * - 4: '1' to claim.
 *
 * To claim, the stored token must not be above the token. To run without claiming, the stored token must be equal,
 * because a holder whose claim is gone cannot know which holders have followed. Replies the result of the user's
 * script, or the error `FENCEDOFF <index of the claim> <stored token, if any>`.
 */

/** Wraps the user's script, which has its own KEYS and ARGV, and its own line numbers in errors. */
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
