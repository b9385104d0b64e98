/** Pure: the canonical JSON of data, so that equal data has equal texts. */
import { kindOf } from "@x/redlock-core/kit";

/** Data in a cycle would be deeper than any limit. */
const DEEPEST = 32;

/**
 * Returns the JSON of a value, with sorted names. A property that is undefined counts as absent.
 * @throws TypeError for a value that JSON cannot contain, RangeError for a number that JSON cannot contain, and for
 * data that is too deep
 */
export function canonicalJson(value: unknown, path: string, depth = 0): string {
  if (depth > DEEPEST) throw new RangeError(`${path} must be at most ${DEEPEST} levels deep, got more`);
  if (value === null || typeof value === "boolean" || typeof value === "string") return JSON.stringify(value);
  if (typeof value === "number") {
    if (Number.isFinite(value)) return JSON.stringify(value);
    throw new RangeError(`${path} must be a finite number, got ${value}`);
  }
  if (Array.isArray(value))
    return `[${value.map((each, index) => canonicalJson(each, `${path}[${index}]`, depth + 1)).join(",")}]`;
  if (!isPlain(value)) throw new TypeError(`${path} must be a JSON value, got ${kindOf(value)}`);
  const texts: string[] = [];
  for (const name of Object.keys(value).sort()) {
    const each = value[name];
    if (each !== undefined) texts.push(`${JSON.stringify(name)}:${canonicalJson(each, `${path}.${name}`, depth + 1)}`);
  }
  return `{${texts.join(",")}}`;
}

function isPlain(value: unknown): value is Readonly<Record<string, unknown>> {
  if (typeof value !== "object" || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  // An object of another realm has another `Object.prototype`, whose own prototype is null.
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}
