/**
 * A Lua function as an expression: returns the text that the names of a lock's side keys begin with, as `sideKeyOf` of
 * keys.ts does. Only scripts of a queue need the function, because BullMQ's scripts build key names themselves. All
 * other scripts receive the names in KEYS.
 */
export const besideLock: string = /* lua */ `function(key)
  if string.find(key, '{', 1, true) and string.find(key, '^[^{]*{[^}]+}') then return key end
  return '{' .. key .. '}'
end`;
