/**
 * Three operations. The locks are KEYS[first], KEYS[first + 1] and so on.
 *
 * - `release(first, count, token)` deletes the lock keys that hold the token. Replies how many it deleted.
 * - `wait(first, count, member)` enrols a waiter without an attempt. Replies after how many ms to ask again if
 *   no message arrives (-1: unknown).
 * - `leave(first, count, member)` removes a waiter from the lines, and ends its reservations. Replies 1.
 */
export const release: string = /* lua */ `
local function release(first, count, token)
  local deleted = 0
  for i = first, first + count - 1 do
    if valueOf(KEYS[i]) == token then
      deleted = deleted + call('DEL', KEYS[i])
      freed[#freed + 1] = KEYS[i]
    end
  end
  return deleted
end

local function wait(first, count, member)
  for i = first, first + count - 1 do
    enrol(KEYS[i], member, call('PTTL', KEYS[i]))
    freed[#freed + 1] = KEYS[i]
  end
  return askAgainMs(KEYS[first], call('PTTL', KEYS[first]))
end

local function leave(first, count, member)
  for i = first, first + count - 1 do withdraw(KEYS[i], member) end
  return 1
end
`;
