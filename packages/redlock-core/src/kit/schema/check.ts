/**
 * Pure: what an option or an argument may be. A check states its rule once, for the message and the reference.
 * `undefined` means "left out"; null is a value like any other, which no check accepts.
 */
import { kindOf, show } from "./show.ts";

/** An option of a schema. A `Check` is an option that must be given. */
export interface Option<Value> {
  /** What the value must be, as the message says it: `an integer from 1 to 31 (ms)`. */
  readonly rule: string;
  /** The value that is taken for an option that is left out. */
  readonly fallback: Value | undefined;
  /** Returns the value or its default. Throws `TypeError` or `RangeError` with name, rule and value. */
  of(name: string, given: unknown): Value;
}

/** The kind of error that a value is refused with; undefined if it is accepted. */
export type Fault = "type" | "range" | undefined;

export interface CheckParts {
  readonly rule: string;
  /** Finds the fault of a value. It may throw what it likes for a hostile object, which is then of the wrong type. */
  readonly faultOf: (value: unknown) => Fault;
  /** Shows a value in the message. Default: the function `show`. */
  readonly show?: (value: unknown) => string;
}

export class Check<Value> implements Option<Value> {
  readonly rule: string;
  readonly fallback: undefined = undefined;
  readonly #faultOf: (value: unknown) => Fault;
  readonly #show: (value: unknown) => string;

  constructor(parts: CheckParts) {
    this.rule = parts.rule;
    this.#faultOf = parts.faultOf;
    this.#show = parts.show ?? show;
  }

  of(name: string, value: unknown): Value {
    const fault = this.#fault(value);
    if (fault === undefined) return value as Value;
    const message = `${name} must be ${this.rule}, got ${this.#show(value)}`;
    throw fault === "type" ? new TypeError(message) : new RangeError(message);
  }

  accepts(value: unknown): value is Value {
    return this.#fault(value) === undefined;
  }

  optional(): Option<Value | undefined> {
    return this.#or(undefined);
  }

  default(fallback: Value): Option<Value> {
    return this.#or(fallback);
  }

  #or<Fallback>(fallback: Fallback): Option<Value | Fallback> {
    const of = (name: string, given: unknown): Value | Fallback =>
      given === undefined ? fallback : this.of(name, given);
    return { rule: this.rule, fallback, of };
  }

  #fault(value: unknown): Fault {
    try {
      return this.#faultOf(value);
    } catch {
      return "type";
    }
  }
}

interface Range {
  readonly min: number;
  /** The largest value that is accepted. Default: no limit. */
  readonly max?: number;
  readonly unit?: string;
}

/**
 * Checks an integer. `unit` is "ms" by default; with "" the integer is a count. With `orInfinity` a caller can also
 * say "for ever".
 */
export function integer({
  unit = "ms",
  orInfinity = false,
  ...range
}: Range & { orInfinity?: boolean }): Check<number> {
  const rule = `an integer ${boundsOf({ ...range, unit })}${orInfinity ? " or Infinity" : ""}`;
  return primitive("number", rule, (value: number) => {
    if (value === Number.POSITIVE_INFINITY) return orInfinity;
    return Number.isSafeInteger(value) && isIn(value, range);
  });
}

export function number(range: Range): Check<number> {
  return primitive("number", `a number ${boundsOf(range)}`, (value: number) => isIn(value, range));
}

function boundsOf({ min, max, unit = "" }: Range): string {
  return `${max === undefined ? `>= ${min}` : `from ${min} to ${max}`}${unit === "" ? "" : ` (${unit})`}`;
}

function isIn(value: number, { min, max = Number.POSITIVE_INFINITY }: Range): boolean {
  return value >= min && value <= max;
}

/** Checks a text. `min` is 0 by default; both `min` and `max` count UTF-16 units. */
export function text({ min = 0, max }: { readonly min?: number; readonly max?: number } = {}): Check<string> {
  const rule =
    max === undefined ? `a ${min === 0 ? "" : "non-empty "}string` : `a string of ${min} to ${max} characters`;
  return textLike(rule, ({ length }) => isIn(length, max === undefined ? { min } : { min, max }));
}

/** Checks a text of some form; `rule` says which. */
export function textLike(rule: string, isRight: (text: string) => boolean): Check<string> {
  return primitive("string", rule, isRight);
}

export function choice<const Choice extends string>(choices: readonly Choice[]): Check<Choice> {
  const set = new Set<string>(choices);
  const quoted = choices.map((each) => `"${each}"`);
  return primitive("string", listed(quoted, "or"), (value: Choice) => set.has(value));
}

/** Checks a string or a number: one of the other type has the wrong type, and one that is not right the wrong value. */
function primitive<Value extends string | number>(
  type: "string" | "number",
  rule: string,
  isRight: (value: Value) => boolean,
): Check<Value> {
  return new Check({
    rule,
    faultOf: (value) => {
      if (typeof value !== type) return "type";
      return isRight(value as Value) ? undefined : "range";
    },
  });
}

export const boolean: Check<boolean> = ofType("a boolean", (value) => typeof value === "boolean");

/** Checks a function. What it takes and returns is not known before it is called. */
export function callback<Fn>(rule = "a function"): Check<Fn> {
  return ofType(rule, (value) => typeof value === "function");
}

/** Checks a value that either has the right type or has not. */
function ofType<Value>(rule: string, isRight: (value: unknown) => boolean, shown = show): Check<Value> {
  return new Check({ rule, faultOf: (value) => (isRight(value) ? undefined : "type"), show: shown });
}

/** Checks an object of the caller's own that has these functions. */
export function objectWith<Value extends object>(members: readonly (keyof Value & string)[]): Check<Value> {
  return shaped(`an object with the functions ${listed(members, "and")}`, (value) =>
    members.every((member) => typeof value[member] === "function"),
  );
}

/**
 * Checks an object that is known by what it has, because there may be two copies of a package in one program.
 * Messages show no more than its kind.
 */
export function shaped<Value>(
  rule: string,
  isRight: (value: Readonly<Record<string, unknown>>) => boolean,
): Check<Value> {
  const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
    (typeof value === "object" && value !== null) || typeof value === "function";
  return ofType(rule, (value) => isObject(value) && isRight(value), kindOf);
}

/** Checks an abort signal by reading it. A value that only inherits from `AbortSignal` throws then, and is refused. */
export const abortSignal: Check<AbortSignal> = ofType(
  "an AbortSignal",
  (value) => value instanceof AbortSignal && typeof value.aborted === "boolean",
);

/** Checks a list of values, which are not copied. */
export function listOf<Value>(rule: string, element: Check<Value>): Check<readonly Value[]> {
  return ofType(rule, (value) => Array.isArray(value) && value.every((each) => element.accepts(each)));
}

export const texts: Check<readonly string[]> = listOf("an array of strings", text());

export const textsAndNumbers: Check<readonly (string | number)[]> = listOf(
  "an array of strings and numbers",
  ofType("a string or a number", (value) => typeof value === "string" || typeof value === "number"),
);

/** Joins the items to a text such as `a, b and c`. */
function listed(items: readonly string[], word: "and" | "or"): string {
  return items.length < 2 ? items.join("") : `${items.slice(0, -1).join(", ")} ${word} ${items.at(-1)}`;
}
