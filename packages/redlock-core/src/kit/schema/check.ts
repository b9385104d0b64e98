/**
 * Pure: rules for the values of options and arguments. A check states its rule once, for both error messages and the
 * reference. `undefined` means that an option was left out. Null is an ordinary value, which no check accepts.
 */
import { kindOf, show } from "./show.ts";

/** An option of a schema. A `Check` itself is an option without a default that may not be left out. */
export interface Option<Value> {
  /** Describes the allowed values for error messages: `an integer from 1 to 31 (ms)`. */
  readonly rule: string;
  /** Value of an option that is left out. */
  readonly fallback: Value | undefined;
  /** Returns the value or its default. Throws `TypeError` or `RangeError` with name, rule and value. */
  of(name: string, given: unknown): Value;
}

/** Kind of error for a refused value. Undefined if the value is accepted. */
export type Fault = "type" | "range" | undefined;

export interface CheckParts {
  readonly rule: string;
  /**
   * Finds the fault of a value. If the function throws, as it may on a hostile object, the value counts as a wrong
   * type.
   */
  readonly faultOf: (value: unknown) => Fault;
  /** Formats a value for the message. Default: the function `show`. */
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
  /** Largest accepted value. Default: no limit. */
  readonly max?: number;
  readonly unit?: string;
}

/**
 * Checks an integer. `unit` is "ms" by default; "" means a count. With `orInfinity` the check also accepts Infinity.
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

/** Checks a string. Both `min` (default 0) and `max` count UTF-16 units. */
export function text({ min = 0, max }: { readonly min?: number; readonly max?: number } = {}): Check<string> {
  const rule =
    max === undefined ? `a ${min === 0 ? "" : "non-empty "}string` : `a string of ${min} to ${max} characters`;
  return textLike(rule, ({ length }) => isIn(length, max === undefined ? { min } : { min, max }));
}

/** Checks the form of a string. `rule` describes the form. */
export function textLike(rule: string, isRight: (text: string) => boolean): Check<string> {
  return primitive("string", rule, isRight);
}

/** Checks a property of a number. `rule` describes the property. */
export function numberLike(rule: string, isRight: (value: number) => boolean): Check<number> {
  return primitive("number", rule, isRight);
}

export function choice<const Choice extends string>(choices: readonly Choice[]): Check<Choice> {
  const set = new Set<string>(choices);
  const quoted = choices.map((each) => `"${each}"`);
  return primitive("string", listed(quoted, "or"), (value: Choice) => set.has(value));
}

/**
 * Checks a string or a number. A value of another type has a type fault; a value refused by `isRight` has a range
 * fault.
 */
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

/** Checks that a value is a function. Parameters and result cannot be checked before a call. */
export function callback<Fn>(rule = "a function"): Check<Fn> {
  return ofType(rule, (value) => typeof value === "function");
}

/** Checks a value whose only possible fault is its type. */
function ofType<Value>(rule: string, isRight: (value: unknown) => boolean, shown = show): Check<Value> {
  return new Check({ rule, faultOf: (value) => (isRight(value) ? undefined : "type"), show: shown });
}

/** Checks that a caller's object has these functions. */
export function objectWith<Value extends object>(members: readonly (keyof Value & string)[]): Check<Value> {
  return shaped(`an object with the functions ${listed(members, "and")}`, (value) =>
    members.every((member) => typeof value[member] === "function"),
  );
}

/**
 * Checks an object by its members instead of `instanceof`, because a program may contain two copies of a package. Error
 * messages only show the kind of the object.
 */
export function shaped<Value>(
  rule: string,
  isRight: (value: Readonly<Record<string, unknown>>) => boolean,
): Check<Value> {
  const isObject = (value: unknown): value is Readonly<Record<string, unknown>> =>
    (typeof value === "object" && value !== null) || typeof value === "function";
  return ofType(rule, (value) => isObject(value) && isRight(value), kindOf);
}

/**
 * Checks an abort signal by reading it. An object that only inherits from `AbortSignal` throws when read, and is
 * refused.
 */
export const abortSignal: Check<AbortSignal> = ofType(
  "an AbortSignal",
  (value) => value instanceof AbortSignal && typeof value.aborted === "boolean",
);

/** Checks an array by its elements. The array is not copied. */
export function listOf<Value>(rule: string, element: Check<Value>): Check<readonly Value[]> {
  return ofType(rule, (value) => Array.isArray(value) && value.every((each) => element.accepts(each)));
}

export const texts: Check<readonly string[]> = listOf("an array of strings", text());

export const textsAndNumbers: Check<readonly (string | number)[]> = listOf(
  "an array of strings and numbers",
  ofType("a string or a number", (value) => typeof value === "string" || typeof value === "number"),
);

/** Joins the items to a list such as `a, b and c`. */
function listed(items: readonly string[], word: "and" | "or"): string {
  return items.length < 2 ? items.join("") : `${items.slice(0, -1).join(", ")} ${word} ${items.at(-1)}`;
}
