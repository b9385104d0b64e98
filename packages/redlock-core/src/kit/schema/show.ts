/**
 * Pure: formats values for error messages. These functions never throw, return short texts, and show nothing that may
 * be a secret.
 */

/** Longest text that is shown, in UTF-16 units. */
const LONGEST_TEXT = 40;
const LONGEST_NAME = 100;

/** Matches URLs, `user:password`, `key=value` and encoded text, all of which may contain a secret. */
const MAY_BE_SECRET = /[:=%\\]|\/\/|.@/s;

const CLASS_NAME = /^[A-Z][\w$]{0,39}$/;

/** Formats a refused value. */
export function show(value: unknown): string {
  if (typeof value === "string" && value.length <= LONGEST_TEXT && !MAY_BE_SECRET.test(value)) {
    return JSON.stringify(value);
  }
  return kindOf(value);
}

/**
 * Formats a refused value that may be a connection. Strings are not shown, because any of them may be a URL or a
 * password.
 */
export function kindOf(value: unknown): string {
  switch (typeof value) {
    case "string":
      return `a string of ${value.length} characters`;
    case "number":
      return Object.is(value, -0) ? "-0" : `${value}`;
    case "boolean":
    case "undefined":
      return `${value}`;
    case "bigint":
    case "symbol":
    case "function":
      return `a ${typeof value}`;
    default:
      return value === null ? "null" : kindOfObject(value as object);
  }
}

/**
 * Formats a name given by users, such as a resource. Long names are shortened. A name that looks like a URL with a
 * password is not shown.
 */
export function quote(name: string): string {
  const colon = name.indexOf(":");
  if (name.includes("://") || (colon !== -1 && name.includes("@", colon))) return kindOf(name);
  const isLong = name.length > LONGEST_NAME;
  return JSON.stringify(isLong ? `${name.slice(0, LONGEST_NAME - 1)}…` : name);
}

function kindOfObject(value: object): string {
  try {
    if (Array.isArray(value)) return "an array";
    const prototype = Object.getPrototypeOf(value) as { readonly constructor?: { readonly name?: unknown } } | null;
    const name = prototype?.constructor?.name;
    const isNamed = typeof name === "string" && name !== "Object" && CLASS_NAME.test(name);
    return isNamed ? `an instance of ${name}` : "an object";
  } catch {
    return "an object";
  }
}
