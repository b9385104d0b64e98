/**
 * A Lua function as an expression. Returns the common prefix of a lock's side keys, like `sideKeyOf` of keys.ts. Only
 * scripts of a queue need this function, because BullMQ's scripts build key names themselves. All other scripts receive
 * the names in KEYS.
 */
export const besideLock: string = /* lua */ `function(key)
  if string.find(key, '{', 1, true) and string.find(key, '^[^{]*{[^}]+}') then return key end
  return '{' .. key .. '}'
end`;
