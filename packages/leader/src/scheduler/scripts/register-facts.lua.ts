/**
 * Lua text at the beginning of the scripts that read or write a register. The text reads the register's own fields.
 *
 * - `seen`: `:promised`, `:term`, `:step` and `:run`, as they are stored.
 * - `promised`, `hereTerm`, `hereStep`: their numbers, 0 if the field is missing. A value that is not a whole number,
 *   or that a double cannot hold exactly, cannot be from a leader and counts as 0. If the value counted, the node would
 *   refuse each later leader.
 * - `wrong`: the fields with such a value, as text for people. Empty if there are none.
 * - `asText(number)`: a number in decimal digits. `nowMs()`: the node's clock in ms.
 */
export const REGISTER_FACTS = /* lua */ `
local call = redis.call
local seen = call('HMGET', KEYS[1], ':promised', ':term', ':step', ':run')
local wrong = ''
local function asText(number) return string.format('%.0f', number) end
local function nowMs()
  local time = call('TIME')
  return asText(time[1] * 1000 + math.floor(time[2] / 1000))
end
local function numberOf(index, field)
  local value = seen[index]
  if not value then return 0 end
  local number = tonumber(string.match(value, '^%d+$') or nil)
  if number and number <= 9007199254740991 then return number end
  wrong = wrong .. field .. ' ' .. string.sub(value, 1, 40) .. ' '
  return 0
end
local promised, hereTerm, hereStep = numberOf(1, ':promised'), numberOf(2, ':term'), numberOf(3, ':step')
`;
