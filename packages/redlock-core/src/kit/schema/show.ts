/**
 * Pure: what a message says of a value. It never throws, is short whatever it is given, and shows nothing that may be
 * a secret.
 */

/** The largest number of characters of a text that is shown. */
const LONGEST_TEXT = 40;
const LONGEST_NAME = 100;

/** URLs, `user:password`, `key=value` and encoded text may have a secret in them. */
const MAY_BE_SECRET = /[:=%\\]|\/\/|.@/s;

const CLASS_NAME = /^[A-Z][\w$]{0,39}$/;

/** Shows a value that was refused. */
export function show(value: unknown): string {
  if (typeof value === "string" && value.length <= LONGEST_TEXT && !MAY_BE_SECRET.test(value)) {
    return JSON.stringify(value);
  }
  return kindOf(value);
}

/** Shows a value that was refused where a connection may stand, so that each text may be a URL or a password. */
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
 * Shows a name that users give, such as a resource. It is shown as it is, but not all of a long one, and no URL that
 * may have a password.
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
