/**
 * Defines `release(first, count, a)`, `leave(first, count, a)` and `wait(first, count, a)`.
 *
 * release: ARGV a: token. Deletes the lock keys that hold the token; replies how many did.
 * leave:   ARGV a: member. Takes a waiter out, with the reservation that it may have; replies 1.
 * wait:    ARGV a: member, order. Enrols a waiter that attempts nothing itself; replies when to ask again if no hint comes, in ms
 *          (-1: unknown).
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

local function wait(first, count, a)
  for i = 0, count - 1 do
    enrol(first + 3 * i, tonumber(ARGV[a + 1]), ARGV[a], call('PTTL', KEYS[first + 3 * i]))
    freed[#freed + 1] = first + 3 * i
  end
  return askAgainMs(first, call('PTTL', KEYS[first]))
end

local function leave(first, count, a)
  for i = 0, count - 1 do withdraw(first + 3 * i, ARGV[a]) end
  return 1
end
`;
