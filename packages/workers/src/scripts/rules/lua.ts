/** Pure: pieces of Lua text. */

/** KEYS and ARGV become the function's parameters, so a script's text runs as it is. */
export function asFunction(name: string, lua: string): string {
  return `local function ${name}(KEYS, ARGV)\n${lua}\nend`;
}

/**
 * Makes what `asFunction` makes, for a script that is called often. The functions that the text defines before it reads
 * its parameters are made once. Making those of BullMQ's `moveToFinished` is a tenth of what an end of a job costs
 * Redis. `between` stands behind them: it may put others in their place.
 */
export function asRepeatedFunction(name: string, lua: string, between: string): string {
  const start = startOf(lua);
  return `local ${name}\ndo\n${lua.slice(0, start)}\n${between}\n${name} = function(KEYS, ARGV)\n${lua.slice(start)}\nend\nend`;
}

/**
 * Returns where a script first reads its parameters outside its functions and comments, in which every line that does
 * is indented.
 */
export function startOf(lua: string): number {
  return Math.max(lua.search(/^\S.*\b(?:KEYS|ARGV)\b/m), 0);
}

/** Returns a Lua string literal of any text: every byte that is not a letter or digit is escaped. */
export function luaString(text: string): string {
  const bytes = [...Buffer.from(text)];
  const escaped = bytes.map((byte) => {
    const char = String.fromCharCode(byte);
    return /[A-Za-z0-9_]/.test(char) ? char : `\\${String(byte).padStart(3, "0")}`;
  });
  return `"${escaped.join("")}"`;
}
