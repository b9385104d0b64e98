/**
 * Pure: the differences between two states, and a state with its differences. A state of some kilobytes changes little
 * from look to look, so a stream sends the whole state once, and afterwards only the changes.
 *
 * The states are JSON values. A field that is undefined counts as absent.
 */

type Path = readonly (string | number)[];

/** One difference, at a path of field names and positions. */
export type StateChange =
  /** The value there is now `value`. Without `value` the field is absent. */
  | { readonly path: Path; readonly value?: unknown }
  /** The list there begins with `first`, followed by what it had before, and has `length` entries. */
  | { readonly path: Path; readonly first: readonly unknown[]; readonly length: number };

/** The most new entries at the beginning of a list that are recognized. */
const MOST_NEW = 4;

/** Returns the changes that make `after` of `before`. Empty if they are equal. */
export function changesOf(before: unknown, after: unknown, path: Path = []): readonly StateChange[] {
  if (before === after) return [];
  if (Array.isArray(before) && Array.isArray(after)) return changesOfLists(before, after, path);
  if (isRecord(before) && isRecord(after)) {
    const names = new Set([...Object.keys(before), ...Object.keys(after)]);
    return [...names].flatMap((name) => changesOf(own(before, name), own(after, name), [...path, name]));
  }
  return [after === undefined ? { path } : { path, value: after }];
}

function changesOfLists(before: readonly unknown[], after: readonly unknown[], path: Path): readonly StateChange[] {
  for (let added = 1; added <= Math.min(MOST_NEW, after.length - 1); added += 1) {
    const kept = after.slice(added);
    if (kept.length > before.length || kept.length < 2) break;
    const isShifted = kept.every((each, at) => changesOf(before[at], each).length === 0);
    const isUnmoved = after.slice(0, added).every((each, at) => changesOf(before[at], each).length === 0);
    if (isShifted && !isUnmoved) return [{ path, first: after.slice(0, added), length: after.length }];
  }
  if (before.length !== after.length) return [{ path, value: after }];
  return after.flatMap((each, at) => changesOf(before[at], each, [...path, at]));
}

/** Returns `before` with the changes. Unchanged parts are the same objects, so that a browser can compare them. */
export function withChanges<Value>(before: Value, changes: readonly StateChange[]): Value {
  let value: unknown = before;
  for (const change of changes) value = changedAt(value, change.path, change);
  return value as Value;
}

function changedAt(before: unknown, path: Path, change: StateChange): unknown {
  const [name, ...rest] = path;
  if (name === undefined) {
    if (!("first" in change)) return change.value;
    return [...change.first, ...(before as readonly unknown[])].slice(0, change.length);
  }
  if (Array.isArray(before)) return before.map((each, at) => (at === name ? changedAt(each, rest, change) : each));
  const record = isRecord(before) ? before : {};
  const value = changedAt(own(record, String(name)), rest, change);
  if (value !== undefined) return { ...record, [name]: value };
  return Object.fromEntries(Object.entries(record).filter(([other]) => other !== name));
}

/** Names of fields come from Redis, and may be those of the prototype. */
function own(record: Readonly<Record<string, unknown>>, name: string): unknown {
  return Object.hasOwn(record, name) ? record[name] : undefined;
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
