/** Pure: pieces of Lua text. */

/** KEYS and ARGV become the function's parameters, so a script's text runs as it is. */
export function asFunction(name: string, lua: string): string {
  return `local function ${name}(KEYS, ARGV)\n${lua}\nend`;
}

/** A Lua string literal of any text: every byte that is not a letter or digit is escaped. */
export function luaString(text: string): string {
  const bytes = [...Buffer.from(text)];
  const escaped = bytes.map((byte) => {
    const char = String.fromCharCode(byte);
    return /[A-Za-z0-9_]/.test(char) ? char : `\\${String(byte).padStart(3, "0")}`;
  });
  return `"${escaped.join("")}"`;
}
