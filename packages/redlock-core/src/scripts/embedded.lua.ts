/**
 * For a script of another package that runs on the one node of a `Redlock`, in the same atomic step as what the lock protects:
 *
 * lockIfFree(key, token, ttl, fenceTtl)   takes a lock that nobody has or waits for; returns its fencing token as text, or nil. Never
 *                                         one that a `Redlock` refuses to lock
 * passOnIfUnwanted(key, token, next, ttl, fenceTtl)   gives a lock that nobody waits for from this token to the next one; returns as
 *                                         lockIfFree
 * unlockIfUnwanted(key, token)            releases a lock that nobody waits for; true if it was the token's until now
 *
 * `key`: the lock's own key; `ttl`, `fenceTtl` in ms. What they do not do they leave as it was, for acquire.lua.ts and
 * release.lua.ts. They raise what Redis raises: call them with pcall. The fencing token is the node's own time (in µs), or one above the
 * stored one: where a single node votes, it need not be proposed. Side keys are named as in keys.ts.
 *
 * The script defines `call` before. Every name, string and call here is paid for by every job of somebody's queue.
 */
export const embedded: string = /* lua */ `
local function besideLock(key)
  if string.find(key, '{', 1, true) and string.find(key, '^[^{]*{[^}]+}') then return key end
  return '{' .. key .. '}'
end

local time
local function grantLock(key, beside, token, ttl, fenceTtl)
  time = time or call('TIME')
  local fence, fencingToken = beside .. ':fence', string.format('%s%06d', time[1], time[2])
  local before = call('SET', fence, fencingToken, 'PX', fenceTtl, 'GET')
  if before and tonumber(before) >= tonumber(fencingToken) then
    fencingToken = string.format('%.0f', before + 1)
    call('SET', fence, fencingToken, 'PX', fenceTtl)
  end
  call('SET', key, token, 'PX', ttl)
  return fencingToken
end

local function lockIfFree(key, token, ttl, fenceTtl)
  -- What keys.ts refuses: the key of something beside another lock, or one that has the same keys beside it.
  if string.find(key, '}', 1, true) then
    if besideLock(string.sub(key, 2, -2)) == besideLock(key) then return end
    for _, name in ipairs({'fence', 'fence:forced', 'waiters', 'node'}) do
      if string.find(key, '}.*:' .. name .. '$') then return end
    end
  end
  local beside = besideLock(key)
  if call('EXISTS', key, beside .. ':waiters') > 0 then return end
  return grantLock(key, beside, token, ttl, fenceTtl)
end

local function passOnIfUnwanted(key, token, next, ttl, fenceTtl)
  if call('GET', key) ~= token then return end
  local beside = besideLock(key)
  if call('EXISTS', beside .. ':waiters') > 0 then return end
  return grantLock(key, beside, next, ttl, fenceTtl)
end

local function unlockIfUnwanted(key, token)
  return call('GET', key) == token and call('EXISTS', besideLock(key) .. ':waiters') == 0 and call('DEL', key) == 1
end
`;
