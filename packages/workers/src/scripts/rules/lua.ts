/** Pure: parts of Lua texts. */

/** Returns the definition of a function with a script's unchanged text. KEYS and ARGV are its parameters. */
export function asFunction(name: string, lua: string): string {
  return `local function ${name}(KEYS, ARGV)\n${lua}\nend`;
}

/**
 * Returns the definition of a function like `asFunction`, for a script that is called often. The functions that the
 * text defines before it reads its parameters are created once. Creating the functions of BullMQ's `moveToFinished` is
 * a tenth of the cost of a job's end in Redis. `between` follows these functions, and may replace them.
 */
export function asRepeatedFunction(name: string, lua: string, between: string): string {
  const start = startOf(lua);
  return `local ${name}\ndo\n${lua.slice(0, start)}\n${between}\n${name} = function(KEYS, ARGV)\n${lua.slice(start)}\nend\nend`;
}

/**
 * Returns where a script first reads its parameters outside functions and comments. Inside functions and comments,
 * every line that reads a parameter is indented.
 */
export function startOf(lua: string): number {
  return Math.max(lua.search(/^\S.*\b(?:KEYS|ARGV)\b/m), 0);
}

/** Returns a Lua string literal of any text. Every byte that is not a letter or digit is escaped. */
export function luaString(text: string): string {
  const bytes = [...Buffer.from(text)];
  const escaped = bytes.map((byte) => {
    const char = String.fromCharCode(byte);
    return /[A-Za-z0-9_]/.test(char) ? char : `\\${String(byte).padStart(3, "0")}`;
  });
  return `"${escaped.join("")}"`;
}
