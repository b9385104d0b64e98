/**
 * Defines `release(first, count, a)` and `leave(first, count, a)`.
 *
 * release: ARGV a: token. Deletes the lock keys that hold the token; replies how many did.
 * leave:   ARGV a: member. Takes a waiter out, with the reservation that it may have; replies 1.
 */
export const release: string = /* lua */ `
local function release(first, count, a)
  local deleted = 0
  for i = 0, count - 1 do
    if call('GET', KEYS[first + 3 * i]) == ARGV[a] then
      deleted = deleted + call('DEL', KEYS[first + 3 * i])
      freed[#freed + 1] = first + 3 * i
    end
  end
  return deleted
end

local function leave(first, count, a)
  for i = 0, count - 1 do withdraw(first + 3 * i, ARGV[a]) end
  return 1
end
`;
