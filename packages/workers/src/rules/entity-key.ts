/**
 * Pure: what may be an entity key, how a job's keys travel to and from Redis, and the path that finds them in
 * `job.data`.
 */
import { type Check, textLike } from "@x/redlock-core/protocol";

/**
 * The limit is in bytes of UTF-8. It is long enough for any id or URL-like name; each busy key is stored in every one
 * of its jobs.
 */
export const MAX_KEY_BYTES = 512;
/** The number of keys is limited, because each costs the job a place in line and a lock. */
export const MAX_KEYS = 16;

/** Why something cannot be a key. The scripts have these texts from here. */
export const KEY_FAULTS: Readonly<
  Record<"empty" | "tooLong" | "control" | "notSafe" | "notText" | "noList" | "tooMany", string>
> = {
  empty: "is empty",
  tooLong: `is longer than ${MAX_KEY_BYTES} bytes`,
  control: "has control characters",
  notSafe: "is not a safe integer",
  notText: "must be a string or an integer",
  noList: "must be a string, an integer, or a non-empty array of them",
  tooMany: `has more than ${MAX_KEYS} elements`,
};

/** What operators and producers may give as a key. */
export const KEY: Check<string> = textLike(
  `a string of 1 to ${MAX_KEY_BYTES} bytes without control characters`,
  (key) => keyFault(key) === undefined,
);

const SEPARATOR = "\u001f";
const FAULT = "\u001e";
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const CONTROL = /[\u0000-\u001f\u007f]/; // oxlint-disable-line eslint/no-control-regex

/**
 * Returns what stands behind a key in the name of a slot's lock, of a key with several slots. The first slot has the
 * key's own name. The text has the separator in it, which no key has.
 */
export function slotSuffix(slot: number | undefined): string {
  return slot === undefined || slot === 0 ? "" : `${SEPARATOR}${slot}`;
}

/** Why a job that waited, or came, does not run. */
export type DroppedAs = "backlog" | "superseded" | "busy";

/** A pin is what is known of a job's keys when it is taken. */
export type Pin =
  | { readonly kind: "none" }
  | { readonly kind: "keys"; readonly keys: readonly string[] }
  | { readonly kind: "fault"; readonly fault: string }
  /** Its line is full: the job does not run. `by` is the job for which it gave way, or that has the key. */
  | { readonly kind: "dropped"; readonly as: DroppedAs; readonly key: string; readonly by: string };

const NONE: Pin = { kind: "none" };

/** Reads the text in which the scripts keep a job's keys. */
export function parsePin(text: string): Pin {
  if (text === "") return NONE;
  if (text.startsWith(FAULT + FAULT)) {
    const [as = "", key = "", by = ""] = text.slice(2 * FAULT.length).split(SEPARATOR);
    return { kind: "dropped", as: as as DroppedAs, key, by };
  }
  if (text.startsWith(FAULT)) return { kind: "fault", fault: text.slice(FAULT.length) };
  return { kind: "keys", keys: text.includes(SEPARATOR) ? text.split(SEPARATOR) : [text] };
}

export function formatPin(pin: Pin): string {
  switch (pin.kind) {
    case "none":
      return "";
    case "fault":
      return `${FAULT}${pin.fault}`;
    case "dropped":
      return `${FAULT}${FAULT}${[pin.as, pin.key, pin.by].join(SEPARATOR)}`;
    case "keys":
      return pin.keys.join(SEPARATOR);
  }
}

/**
 * Returns the pin for what a key function returned: sorted, unique keys, or what is wrong with them. The Lua library
 * does the same for a path.
 */
export function pinOfValue(value: unknown): Pin {
  if (value === undefined || value === null) return NONE;
  if (value instanceof Promise) {
    // Nobody awaits it, and a rejection that nobody handles would end the process.
    value.catch(() => {});
    return { kind: "fault", fault: "function returned a promise, but must be synchronous" };
  }
  // Lua cannot tell an object from an empty array.
  const single = typeof value === "object" ? [] : [value];
  const values: readonly unknown[] = Array.isArray(value) ? value : single;
  if (values.length === 0) return { kind: "fault", fault: KEY_FAULTS.noList };
  if (values.length > MAX_KEYS) return { kind: "fault", fault: KEY_FAULTS.tooMany };
  const keys = new Set<string>();
  for (const element of values) {
    const fault = typeof element === "string" ? keyFault(element) : numberFault(element);
    if (fault !== undefined) return { kind: "fault", fault };
    keys.add(String(element));
  }
  return { kind: "keys", keys: [...keys].sort(compareBytes) };
}

/** Returns why this text cannot be a key, or undefined if it can. */
export function keyFault(key: string): string | undefined {
  if (key === "") return KEY_FAULTS.empty;
  if (Buffer.byteLength(key) > MAX_KEY_BYTES) return KEY_FAULTS.tooLong;
  return CONTROL.test(key) ? KEY_FAULTS.control : undefined;
}

function numberFault(key: unknown): string | undefined {
  if (typeof key !== "number") return KEY_FAULTS.notText;
  return Number.isSafeInteger(key) ? undefined : KEY_FAULTS.notSafe;
}

/** Returns the fields of a path such as `account.id`, or undefined if it is none. */
export function parsePath(path: string): readonly string[] | undefined {
  const fields = path.split(".");
  return fields.every((field) => field !== "" && !CONTROL.test(field)) ? fields : undefined;
}

/** Returns the index that a field names in an array, counted from 0, or undefined if it names none. */
export function indexOf(field: string): number | undefined {
  const index = /^(0|[1-9]\d*)$/.test(field) ? Number(field) : undefined;
  return Number.isSafeInteger(index) ? index : undefined;
}

/** Returns what the path leads to in a job's data. The Lua library does the same, where it can read the data. */
export function valueAt(data: unknown, path: readonly string[]): unknown {
  let value = data;
  for (const field of path) {
    if (typeof value !== "object" || value === null) return undefined;
    if (Array.isArray(value)) value = (value as readonly unknown[])[indexOf(field) ?? -1];
    else value = Object.hasOwn(value, field) ? (value as Readonly<Record<string, unknown>>)[field] : undefined;
  }
  return value;
}

/**
 * Compares as Lua's `table.sort` does with strings in the C locale, so that a path and a function agree on the order of
 * locks.
 */
function compareBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

// Types alone: the paths into a job's data at which a key may stand.

type IsUnknown<Value> = unknown extends Value ? true : false;

/** Whether a value may be a key. With `null` and `undefined` a job has no key; with a boolean or an object it fails. */
type MayBeKey<Value> = Extract<Value, string | number | readonly (string | number)[]> extends never ? false : true;

/** `"all"` checks the fields of the fields, too; what is deeper may be any text, so that wide types stay cheap. */
type FieldsOf<Data, Depth extends "all" | "first"> = Data extends readonly unknown[]
  ? `${number}` | `${number}.${string}`
  : {
      [Name in keyof Data & string]-?:
        | (IsUnknown<Data[Name]> extends true ? Name : MayBeKey<Data[Name]> extends true ? Name : never)
        | `${Name}.${Below<Data[Name], Depth>}`;
    }[keyof Data & string];

type Below<Value, Depth extends "all" | "first"> =
  IsUnknown<Value> extends true
    ? string
    : Extract<Value, object> extends never
      ? never
      : Depth extends "first"
        ? string
        : FieldsOf<Extract<Value, object>, "first">;

/**
 * The paths into `Data` at which a key may stand. It is any text where `Data` does not say what is in it. For a path
 * that is known at run time only, cast it to this type.
 */
export type KeyPath<Data> = [Data] extends [never]
  ? string
  : IsUnknown<Data> extends true
    ? string
    : Data extends object
      ? FieldsOf<Data, "all">
      : never;
