/**
 * Pure: the names, rules and defaults of one function's options. Each option is read exactly once, and an unknown name
 * is an error. Relations between two options are checked next to the schema.
 */
import type { Option } from "./check.ts";
import { kindOf, show } from "./show.ts";

type Shape = Readonly<Record<string, Option<unknown>>>;

/**
 * The shape for a documented interface of options. The compiler finds missing names, superfluous names and wrong types.
 */
export type ShapeOf<Options> = { readonly [Name in keyof Options]-?: Option<Options[Name]> };

/** Options after checking, with defaults filled in. */
export type Resolved<Of extends Shape> = {
  readonly [Name in keyof Of]: Of[Name] extends Option<infer Value> ? Value : never;
};

/** Options that are all present. Only the options named in `Unset` may be undefined, because they have no default. */
export type Complete<Options, Unset extends keyof Options = never> = {
  readonly [Name in Exclude<keyof Options, Unset>]: NonNullable<Options[Name]>;
} & { readonly [Name in Unset]: Options[Name] | undefined };

export class Schema<Of extends Shape> {
  readonly shape: Of;
  readonly names: readonly (keyof Of & string)[];
  readonly #hint: (name: string) => string | undefined;

  /** `hint` returns a helpful message for a name that is unknown here but valid elsewhere. */
  constructor(shape: Of, hint: (name: string) => string | undefined = () => undefined) {
    this.shape = Object.freeze(Object.assign(Object.create(null) as Of, shape));
    this.names = Object.keys(shape);
    this.#hint = hint;
  }

  /**
   * Returns all options with their defaults, as a frozen object. `path` names the option that contains these options.
   * Throws `TypeError` or `RangeError` with name, rule and value.
   */
  resolve(given: unknown, path = ""): Resolved<Of> {
    this.checkNames(given, path);
    return this.pick(given, path);
  }

  /** Returns the options of this schema from an object that may contain further options. */
  pick(given: object, path = ""): Resolved<Of> {
    const resolved: Record<string, unknown> = {};
    for (const name of this.names) resolved[name] = this.#read(given, name, path);
    return Object.freeze(resolved) as Resolved<Of>;
  }

  /** Returns this schema as an option of another schema. The option may be left out; the inner defaults then apply. */
  inside(): Option<Resolved<Of>> {
    const of = (name: string, given: unknown): Resolved<Of> => this.resolve(given === undefined ? {} : given, name);
    return { rule: "an object", fallback: undefined, of };
  }

  /**
   * Checks the names only. Together with `get` this method serves calls on hot paths: neither allocates memory if the
   * options are valid.
   */
  checkNames(given: unknown, path = ""): asserts given is object {
    const unknown = this.#unknownIn(given, path);
    if (unknown === undefined) return;
    const own = path === "" ? "" : `${path}.`;
    const near = nearestName(unknown, this.names);
    const known = this.names.map((name) => own + name).join(", ");
    const otherwise = near === undefined ? `known are ${known}` : `did you mean "${own}${near}"?`;
    throw new TypeError(`unknown option ${show(own + unknown)}: ${this.#hint(unknown) ?? otherwise}`);
  }

  get<Name extends keyof Of & string>(given: object, name: Name, path = ""): Resolved<Of>[Name] {
    return this.#read(given, name, path) as Resolved<Of>[Name];
  }

  #unknownIn(given: unknown, path: string): string | undefined {
    const what = path === "" ? "options" : path;
    try {
      // Arrays, URLs and signals usually have no own names that would reveal the mistake, so only plain objects are
      // accepted.
      if (Object.prototype.toString.call(given) === "[object Object]") {
        const options = given as object;
        for (const name in options) if (!(name in this.shape) && Object.hasOwn(options, name)) return name;
        return undefined;
      }
    } catch (error) {
      throw unreadable(what, error);
    }
    throw new TypeError(`${what} must be an object, got ${kindOf(given)}`);
  }

  #read(given: object, name: string, path: string): unknown {
    const fullName = path === "" ? name : `${path}.${name}`;
    let value: unknown;
    try {
      value = (given as Readonly<Record<string, unknown>>)[name];
    } catch (error) {
      throw unreadable(fullName, error);
    }
    return this.shape[name]?.of(fullName, value);
  }
}

function unreadable(name: string, cause: unknown): TypeError {
  return new TypeError(`${name} must be readable, got one that throws when it is read`, { cause });
}

/**
 * Returns the name most similar to `name`, ignoring case. Undefined if all names differ in more than a third of their
 * letters.
 */
export function nearestName(name: string, names: readonly string[]): string | undefined {
  const [best] = names
    .filter((known) => Math.abs(known.length - name.length) <= tolerance(known))
    .map((known) => ({ known, distance: distance(name.toLowerCase(), known.toLowerCase()) }))
    .filter((each) => each.distance <= tolerance(each.known))
    .toSorted((a, b) => a.distance - b.distance);
  return best?.known;
}

function tolerance(known: string): number {
  return Math.max(1, Math.floor(known.length / 3));
}

/** Returns the number of letters to add, remove or replace (Levenshtein distance). */
function distance(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let index = 0; index < from.length; index += 1) {
    const next = [index + 1];
    for (let at = 1; at <= to.length; at += 1) {
      const changed = (row[at - 1] ?? 0) + (from[index] === to[at - 1] ? 0 : 1);
      next.push(Math.min(changed, (row[at] ?? 0) + 1, (next[at - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[to.length] ?? 0;
}
