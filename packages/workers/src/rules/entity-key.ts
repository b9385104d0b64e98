/** Pure: which values can be entity keys, how a job's keys are stored in Redis, and the path to them in `job.data`. */
import { type Check, textLike } from "@x/redlock-core/kit";

/**
 * Maximum length of a key in bytes of UTF-8, which is enough for any ID or URL-like name. A busy key is stored with
 * every one of its jobs.
 */
export const MAX_KEY_BYTES = 512;
/** Maximum number of keys of a job. Each key costs the job a place in line and a lock. */
export const MAX_KEYS = 16;

/** Why a value cannot be a key. The Lua scripts use the same texts. */
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

/** Check of the keys that operators and producers pass. */
export const KEY: Check<string> = textLike(
  `a string of 1 to ${MAX_KEY_BYTES} bytes without control characters`,
  (key) => keyFault(key) === undefined,
);

const SEPARATOR = "\u001f";
const FAULT = "\u001e";
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const CONTROL = /[\u0000-\u001f\u007f]/; // oxlint-disable-line eslint/no-control-regex

/**
 * Returns the suffix of a key in the name of a slot's lock. The first slot has no suffix. The suffix begins with the
 * separator, which no key contains.
 */
export function slotSuffix(slot: number | undefined): string {
  return slot === undefined || slot === 0 ? "" : `${SEPARATOR}${slot}`;
}

/** Why a job is dropped from a line, or not admitted to it. */
export type DropReason = "backlog" | "superseded" | "busy";

/** The keys of a job as they are known when the job is taken. */
export type Pin =
  | { readonly kind: "none" }
  | { readonly kind: "keys"; readonly keys: readonly string[] }
  | { readonly kind: "fault"; readonly fault: string }
  /**
   * The line of the key is full, so the job does not run. `by` is the job for which it was dropped, or the job that has
   * the key.
   */
  | { readonly kind: "dropped"; readonly as: DropReason; readonly key: string; readonly by: string }
  /** The job was cancelled, so it does not run or must stop. */
  | { readonly kind: "cancelled"; readonly cancellation: Cancellation };

/** Who cancelled a job, why and when. */
export interface Cancellation {
  readonly reason: string;
  /** The process that called `cancel` or `cancelKey`, as `host:pid`. */
  readonly by: string;
  /** When the job was cancelled, in ms since the epoch, by the clock of this process. */
  readonly atMs: number;
}

const NONE: Pin = { kind: "none" };

/** The first word of the refusal of a cancelled job. The scripts use the same word. */
export const CANCELLED = "cancelled";

/** Parses the text with which the scripts store a job's keys. */
export function parsePin(text: string): Pin {
  if (text === "") return NONE;
  if (text.startsWith(FAULT + FAULT)) {
    const [as = "", key = "", by = ""] = text.slice(2 * FAULT.length).split(SEPARATOR);
    if (as === CANCELLED) return { kind: "cancelled", cancellation: JSON.parse(key) as Cancellation };
    return { kind: "dropped", as: as as DropReason, key, by };
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
    case "cancelled":
      return `${FAULT}${FAULT}${CANCELLED}${SEPARATOR}${JSON.stringify(pin.cancellation)}`;
    case "keys":
      return pin.keys.join(SEPARATOR);
  }
}

/**
 * Returns the pin for the value of a key function: sorted, unique keys, or the reason why the value is invalid. The Lua
 * library computes the same pin for a path.
 */
export function pinOfValue(value: unknown): Pin {
  if (value === undefined || value === null) return NONE;
  if (value instanceof Promise) {
    // The caller does not await this promise, and an unhandled rejection would end the process.
    value.catch(() => {});
    return { kind: "fault", fault: "function returned a promise, but must be synchronous" };
  }
  // An object and an empty array are treated alike, because Lua cannot distinguish them.
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

/** Returns why this text cannot be a key. Undefined if it can. */
export function keyFault(key: string): string | undefined {
  if (key === "") return KEY_FAULTS.empty;
  if (Buffer.byteLength(key) > MAX_KEY_BYTES) return KEY_FAULTS.tooLong;
  return CONTROL.test(key) ? KEY_FAULTS.control : undefined;
}

function numberFault(key: unknown): string | undefined {
  if (typeof key !== "number") return KEY_FAULTS.notText;
  return Number.isSafeInteger(key) ? undefined : KEY_FAULTS.notSafe;
}

/** Returns the fields of a path such as `account.id`. Undefined if the text is not a path. */
export function parsePath(path: string): readonly string[] | undefined {
  const fields = path.split(".");
  return fields.every((field) => field !== "" && !CONTROL.test(field)) ? fields : undefined;
}

/** Returns the array index that a field names, counted from 0. Undefined if it names none. */
export function indexOf(field: string): number | undefined {
  const index = /^(0|[1-9]\d*)$/.test(field) ? Number(field) : undefined;
  return Number.isSafeInteger(index) ? index : undefined;
}

/** Returns the value at the path in a job's data. The Lua library does the same if it can read the data. */
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
 * Compares strings like Lua's `table.sort` in the C locale. A path and a function therefore sort the keys, and the
 * locks, in the same order.
 */
function compareBytes(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

// Only types from here: the paths in a job's data at which a key can be.

type IsUnknown<Value> = unknown extends Value ? true : false;

/**
 * Whether a value can be a key. With `null` or `undefined` a job has no key. With a boolean or an object the job fails.
 */
type MayBeKey<Value> = Extract<Value, string | number | readonly (string | number)[]> extends never ? false : true;

/**
 * With `"all"`, fields of fields are checked as well. Deeper fields may have any name, which keeps wide types cheap.
 */
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
 * The paths in `Data` at which a key can be, or any string if `Data` does not declare its fields. Cast a path that is
 * only known at run time to this type.
 */
export type KeyPath<Data> = [Data] extends [never]
  ? string
  : IsUnknown<Data> extends true
    ? string
    : Data extends object
      ? FieldsOf<Data, "all">
      : never;
