/**
 * Defines three operations.
 *
 * - `release(first, count, token)` deletes the lock keys that hold the token. It replies how many did.
 * - `leave(first, count, member)` takes a waiter out, with the reservation that it may have. It replies 1.
 * - `wait(first, count, place, member)` enrols a waiter that attempts nothing itself. It replies when to ask again if
 *   no hint comes, in ms (-1: unknown).
 */
export const release: string = /* lua */ `
local function release(first, count, token)
  local deleted = 0
  for i = first, first + count - 1 do
    if valueOf(KEYS[i]) == token then
      deleted = deleted + call('DEL', KEYS[i])
      freed[#freed + 1] = i
    end
  end
  return deleted
end

local function wait(first, count, placeText, member)
  for i = first, first + count - 1 do
    enrol(waitersOf(KEYS[i]), tonumber(placeText), member, call('PTTL', KEYS[i]))
    freed[#freed + 1] = i
  end
  return askAgainMs(first, call('PTTL', KEYS[first]))
end

local function leave(first, count, member)
  for i = first, first + count - 1 do withdraw(i, member) end
  return 1
end
`;
