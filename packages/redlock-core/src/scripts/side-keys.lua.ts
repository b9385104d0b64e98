/** These are Lua functions of a lock's key, as expressions. What they return is named as in keys.ts. */
const beside = (ending: string): string => /* lua */ `function(key)
  if string.find(key, '{', 1, true) and string.find(key, '^[^{]*{[^}]+}') then return key${ending} end
  return '{' .. key .. '}'${ending}
end`;

/** Returns what the names of all keys beside the lock begin with. */
export const besideLock: string = beside("");

/** Returns the key of the lock's line. */
export const lineOf: string = beside(" .. ':waiters'");

/** Returns the key of the text that the holder's attempt brought along, see acquire.lua.ts. */
export const noteOf: string = beside(" .. ':note'");

/** Returns the key of the note that an operator took the lock away, see force-release.lua.ts. */
export const fenceOf: string = beside(" .. ':fence'");
