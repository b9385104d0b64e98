/** Pure: Lua patterns, translated to regular expressions. Balanced matches, frontiers and back references throw. */

const CLASSES: Readonly<Record<string, string>> = {
  a: "A-Za-z",
  c: "\\0-\\x1f\\x7f",
  d: "0-9",
  l: "a-z",
  u: "A-Z",
  w: "A-Za-z0-9",
  x: "A-Fa-f0-9",
  s: "\\s",
};

const translated = new Map<string, RegExp>();

/** Matches like `string.match`. Returns the captures, or the whole match if the pattern has no captures, or nil. */
export function matchPattern(subject: string, pattern: string): (string | undefined)[] {
  const match = execute(subject, pattern);
  if (match === null) return [undefined];
  return match.length > 1 ? match.slice(1) : [match[0]];
}

/** Searches like `string.find`, for a pattern without captures. Returns the first and the last position. */
export function findPattern(subject: string, pattern: string): readonly [number, number] | undefined {
  const match = execute(subject, pattern);
  if (match === null) return undefined;
  if (match.length > 1) throw new TypeError("string.find with captures is not implemented");
  return [match.index + 1, match.index + match[0].length];
}

function execute(subject: string, pattern: string): RegExpExecArray | null {
  let expression = translated.get(pattern);
  if (expression === undefined) {
    expression = new RegExp(translatePattern(pattern));
    translated.set(pattern, expression);
  }
  return expression.exec(subject);
}

/** Translates a Lua pattern to the source of a regular expression. */
export function translatePattern(pattern: string): string {
  let source = "";
  for (let at = 0; at < pattern.length; at += 1) {
    const char = pattern[at] ?? "";
    if (char === "%") {
      at += 1;
      source += escaped(pattern[at], false);
    } else if (char === "[") {
      const end = endOfSet(pattern, at);
      source += set(pattern.slice(at + 1, end));
      at = end;
    } else if (char === ".") source += "[\\s\\S]";
    else if (char === "-") source += "*?";
    else if (char === "^") source += at === 0 ? "^" : "\\^";
    else if (char === "$") source += at === pattern.length - 1 ? "$" : "\\$";
    else if ("()*+?".includes(char)) source += char;
    else source += char.replace(/[{}|\\/]/, "\\$&");
  }
  return source;
}

function escaped(char: string | undefined, inSet: boolean): string {
  if (char === undefined || char === "b" || char === "f" || /\d/.test(char)) {
    throw new TypeError(`Lua pattern: %${char ?? ""} is not implemented`);
  }
  const members = CLASSES[char];
  if (members !== undefined) return inSet ? members : `[${members}]`;
  const inverted = CLASSES[char.toLowerCase()];
  if (inverted !== undefined && !inSet) return `[^${inverted}]`;
  if (/[A-Za-z]/.test(char)) throw new TypeError(`Lua pattern: %${char} is not implemented`);
  return `\\${char}`;
}

function endOfSet(pattern: string, start: number): number {
  for (let at = start + 2; at < pattern.length; at += 1) {
    if (pattern[at] === "%") at += 1;
    else if (pattern[at] === "]") return at;
  }
  throw new TypeError(`Lua pattern: unfinished set in ${pattern}`);
}

function set(members: string): string {
  const inverted = members.startsWith("^");
  let source = "";
  for (let at = inverted ? 1 : 0; at < members.length; at += 1) {
    const char = members[at] ?? "";
    if (char === "%") {
      at += 1;
      source += escaped(members[at], true);
    } else source += char.replace(/[\\\]^]/, "\\$&");
  }
  return `[${inverted ? "^" : ""}${source}]`;
}
