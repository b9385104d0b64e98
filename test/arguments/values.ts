/** Values that code without types, or with a mistake, may pass, and where each value is legal. */
import fc from "fast-check";

/** Part of every text in the values. No error may contain it. */
export const SECRET = "hunter2-wrong-place";
const URL_WITH_SECRET = `redis://user:${SECRET}@host:6379`;

function thrower(): never {
  throw new Error("of a hostile object");
}

function revoked(): object {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
}

function cyclic(): object {
  const value: { self?: unknown } = {};
  value.self = value;
  return value;
}

const traps = { get: thrower, has: thrower, ownKeys: thrower, getPrototypeOf: thrower };

/** Behind functions, because test runners print arguments. */
export const VALUES: Readonly<Record<string, () => unknown>> = {
  undefined: () => undefined,
  null: () => null,
  true: () => true,
  zero: () => 0,
  "minus zero": () => -0,
  "minus one": () => -1,
  five: () => 5,
  "one and a half": () => 1.5,
  NaN: () => Number.NaN,
  Infinity: () => Number.POSITIVE_INFINITY,
  "minus Infinity": () => Number.NEGATIVE_INFINITY,
  "2 ** 53": () => 2 ** 53,
  MAX_VALUE: () => Number.MAX_VALUE,
  bigint: () => 5n,
  symbol: () => Symbol("s"),
  "empty text": () => "",
  "a number as text": () => "5",
  "huge text": () => "x".repeat(1_000_000),
  "a lone surrogate": () => "\ud800",
  "a NUL": () => "a\u0000b",
  "a URL with a password": () => URL_WITH_SECRET,
  "a URL with a password alone": () => `redis://:${SECRET}`,
  "host:port:password": () => `host:6379:${SECRET}`,
  "a URL with a bad port": () => `redis://:${SECRET}@host:port`,
  "a URL object": () => new URL(URL_WITH_SECRET),
  "a list of URLs": () => [URL_WITH_SECRET, URL_WITH_SECRET],
  "connection options": () => ({ password: SECRET, url: URL_WITH_SECRET }),
  "an empty object": () => ({}),
  "an empty array": () => [],
  "an array of null": () => [null],
  "an array of objects": () => [{}],
  "an array of symbols": () => [Symbol("s")],
  "an array that throws": () => new Proxy(["a"], traps),
  "no prototype": () => Object.create(null),
  cyclic,
  "a revoked proxy": revoked,
  "a proxy that throws": () => new Proxy({}, traps),
  "a proxy that has all": () => new Proxy({}, { get: () => thrower, has: () => true }),
  "text that throws": () => ({ toString: thrower, valueOf: thrower, [Symbol.toPrimitive]: thrower, toJSON: thrower }),
  "a name that throws": () => Object.create(Object.defineProperty({}, "constructor", { get: thrower })),
  "a misspelt option": () => ({ tll: 5 }),
  "a function": () => () => undefined,
  "a Date": () => new Date(0),
  "an invalid Date": () => new Date(Number.NaN),
  "a Map": () => new Map(),
  "a promise": () => Promise.resolve(),
  "a signal": () => new AbortController().signal,
  "half a signal": () => Object.create(AbortSignal.prototype),
  "half a LockNode": () => ({ name: "n", state: "ready", eval: () => undefined }),
  "a port of letters": () => ({ host: "h", port: "abc", password: SECRET }),
  "a host of digits": () => ({ host: 5, password: SECRET }),
};

/** Any other value of JavaScript. */
export const anything: fc.Arbitrary<() => unknown> = fc.oneof(
  fc.constantFrom(...Object.values(VALUES)),
  fc
    .oneof(
      fc.anything({
        withBigInt: true,
        withDate: true,
        withMap: true,
        withSet: true,
        withNullPrototype: true,
        withSparseArray: true,
      }),
      fc.double(),
      fc.maxSafeInteger(),
      fc.string({ unit: "binary", maxLength: 20 }),
    )
    .map((value) => () => value),
);

/** Reports whether a value is legal for a parameter, without the code under test. */
export type Legal = (value: unknown) => boolean;

export const optional =
  (legal: Legal): Legal =>
  (value) =>
    value === undefined || legal(value);
export const text =
  (min = 0, max = Number.POSITIVE_INFINITY): Legal =>
  (value) =>
    typeof value === "string" && value.length >= min && value.length <= max;
export const integer =
  (min: number, max = Number.MAX_SAFE_INTEGER): Legal =>
  (value) =>
    typeof value === "number" && Number.isSafeInteger(value) && value >= min && value <= max;
export const orInfinity =
  (legal: Legal): Legal =>
  (value) =>
    value === Number.POSITIVE_INFINITY || legal(value);
export const number =
  (min: number, max = Number.POSITIVE_INFINITY): Legal =>
  (value) =>
    typeof value === "number" && value >= min && value <= max;
export const boolean: Legal = (value) => typeof value === "boolean";
export const callback: Legal = (value) => typeof value === "function";
export const oneOf =
  (...choices: readonly unknown[]): Legal =>
  (value) =>
    choices.includes(value);
/** An object of another library is accepted if it has these members. */
export const having =
  (...members: readonly string[]): Legal =>
  (value) =>
    members.every((member) => typeof (value as Readonly<Record<string, unknown>>)[member] === "function");
export const never: Legal = () => false;
export const date: Legal = (value) => value instanceof Date && !Number.isNaN(value.getTime());
export const signal: Legal = (value) => {
  try {
    return value instanceof AbortSignal && typeof value.aborted === "boolean";
  } catch {
    return false;
  }
};
export const texts: Legal = (value) => {
  try {
    return Array.isArray(value) && value.every((each) => typeof each === "string");
  } catch {
    return false;
  }
};
export const resourceName: Legal = (value) => text(1)(value) && Buffer.byteLength(value as string) <= 4_096;
export const resources: Legal = (value) => {
  if (typeof value === "string") return resourceName(value);
  return (
    texts(value) &&
    (value as string[]).length > 0 &&
    new Set(value as string[]).size === (value as string[]).length &&
    (value as string[]).every(resourceName)
  );
};
