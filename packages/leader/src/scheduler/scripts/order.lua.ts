import type { NodeScript } from "@x/redlock-core";
import { defineScript } from "@x/redlock-core/protocol";

/**
 * Adds an operator's order to the mailbox: to pause, resume or trigger a schedule. A line begins with a
 * number. The line with the highest stays, here and in the register, and of two with one number the greater. A number
 * that a double cannot hold exactly loses against each other number.
 *
 * KEYS 1 register (hash) · 2 mailbox (hash)
 * ARGV 1 field · 2 line, '' to ask only · 3 keep in ms · 4 channel
 *
 * Replies the line that stays, or ''
 */
export const ORDER: NodeScript = defineScript(
  "leader-order",
  /* lua */ `
local call = redis.call
local function versionOf(line)
  local version = tonumber(string.match(line, '^%d+') or -1)
  return version <= 9007199254740991 and version or -1
end
local function isLater(a, b)
  local x, y = versionOf(a), versionOf(b)
  return x > y or (x == y and a > b)
end
local known, done = call('HGET', KEYS[2], ARGV[1]) or '', call('HGET', KEYS[1], ARGV[1]) or ''
if isLater(done, known) then known = done end
if not isLater(ARGV[2], known) then return known end
call('HSET', KEYS[2], ARGV[1], ARGV[2])
call('PEXPIRE', KEYS[2], ARGV[3])
call('PUBLISH', ARGV[4], 'schedules')
return ARGV[2]
`,
);
