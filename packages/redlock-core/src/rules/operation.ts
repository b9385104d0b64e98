/**
 * Pure: encodes the operations that a client sends to a node, as scripts/batch.lua.ts reads them. An operation is a
 * text of a letter followed by fields. A field with arbitrary text comes last.
 */
import { FENCE, NOTE } from "./keys.ts";
import { TOKEN_LENGTH } from "./token.ts";

/** Resources that are locked together, with their keys on each node. */
export interface Target {
  readonly resources: readonly string[];
  /** Lock key of each resource. */
  readonly keys: readonly string[];
  /**
   * Fencing register of each resource in a node's hash. Undefined if there is a single node, which numbers its grants
   * itself.
   */
  readonly registers: readonly string[] | undefined;
  /** Hash slot of all keys in a Cluster, otherwise 0. */
  readonly slot: number;
}

/** Kind of an operation. */
export type OperationKind = "acquire" | "acquireNoted" | "extend" | "repair" | "release" | "leave" | "wait";

/** Reports whether a grant of the operation has a number. */
export function isAcquisition(kind: OperationKind): boolean {
  return kind === "acquire" || kind === "acquireNoted";
}

/** Returns the kind of an acquisition. An acquisition with a `note` also stores this text. */
export function acquisitionKind(note: string | undefined): OperationKind {
  return note === undefined || note === "" ? "acquire" : "acquireNoted";
}

/**
 * Letters of the operations. The first three are for a single resource; they are the most frequent, and their fields
 * have a fixed width.
 */
export const LETTER = {
  acquireOne: "a",
  extendOne: "e",
  releaseOne: "r",
  acquire: "A",
  acquireNoted: "N",
  extend: "E",
  repair: "P",
  release: "R",
  leave: "L",
  wait: "W",
} as const;

/** Letters of each kind of operation. */
export const LETTERS: Readonly<Record<OperationKind, readonly string[]>> = {
  acquire: [LETTER.acquireOne, LETTER.acquire],
  acquireNoted: [LETTER.acquireNoted],
  extend: [LETTER.extendOne, LETTER.extend],
  repair: [LETTER.repair],
  release: [LETTER.releaseOne, LETTER.release],
  leave: [LETTER.leave],
  wait: [LETTER.wait],
};

/**
 * Names of the side keys. A request declares the lock keys of all resources of the operation, followed by their side
 * keys. Other operations need only the lock keys.
 */
export const SIDE_KEYS: Readonly<Record<OperationKind, string | undefined>> = {
  acquire: undefined,
  acquireNoted: NOTE,
  extend: FENCE,
  repair: FENCE,
  release: undefined,
  leave: undefined,
  wait: undefined,
};

/**
 * How long a freed lock is reserved for the waiter whose turn it is. A frozen waiter delays the others by this time.
 */
export const GRANT_TTL_MS = 1_000;

/** How long a line of waiters outlives the last lease that its waiters wait for. */
export const WAITER_TTL_MS = 60_000;

/** Modes of a request, see scripts/batch.lua.ts. */
export const MODE = { alone: "1", aloneQuarantined: "Q", several: "N", releases: "R" } as const;

/** Returns the character code of a letter or mode. Lua compares codes faster than strings. */
export function codeOf(letter: string): number {
  return letter.charCodeAt(0);
}

/** Microseconds since the epoch have this number of digits until 2286. */
export const DIGITS = 16;
const REGISTER_DIGITS = 5;

/**
 * First and last character of each field, counted from 1 as in Lua. A field without a last character extends to the end
 * of the text.
 */
export const FIELDS: Readonly<
  Record<
    "token" | "ballot" | "acquireTtl" | "extendRegister" | "extendTtl" | "releasedToken",
    readonly [from: number, to?: number]
  >
> = {
  token: [2, TOKEN_LENGTH + 1],
  ballot: [TOKEN_LENGTH + 2, TOKEN_LENGTH + 1 + DIGITS],
  acquireTtl: [TOKEN_LENGTH + 2 + DIGITS],
  extendRegister: [TOKEN_LENGTH + 2 + DIGITS, TOKEN_LENGTH + 1 + DIGITS + REGISTER_DIGITS],
  extendTtl: [TOKEN_LENGTH + 2 + DIGITS + REGISTER_DIGITS],
  releasedToken: [2],
};

/** The place behind all waiters. */
export const LAST_PLACE: string = digits(Number.MAX_SAFE_INTEGER);

/**
 * Names a waiter in the lines of the nodes. `id` contains the channel by which its process is woken
 * (scripts/hand-over.lua.ts).
 */
export function memberOf(place: number, id: string): string {
  return `${digits(place)}:${id}`;
}

/**
 * Encodes the request to acquire a lock. `ballot` is 0 if the node numbers its grants itself.
 *
 * `member` is the waiter that is added to its line if the attempt is refused. An attempt without a waiter may have a
 * `place` in the line; undefined puts the request behind all waiters. `note` is a text that the nodes store next to the
 * lock when they grant it.
 */
export function acquireText(
  count: number,
  token: string,
  facts: {
    readonly ttlMs: number;
    readonly ballot: number;
    readonly place?: number | undefined;
    readonly member?: string | undefined;
    readonly note?: string | undefined;
  },
): string {
  const { ttlMs, ballot, place, note = "" } = facts;
  const isNoted = acquisitionKind(note) === "acquireNoted";
  const waiter = facts.member ?? (place === undefined ? undefined : digits(place));
  if (count === 1 && waiter === undefined && !isNoted && token.length === TOKEN_LENGTH) {
    return `${LETTER.acquireOne}${token}${digits(ballot)}${ttlMs}`;
  }
  const fields = `${count} ${token} ${digits(ballot)} ${waiter ?? LAST_PLACE} ${ttlMs}`;
  return isNoted ? `${LETTER.acquireNoted}${fields} ${note}` : `${LETTER.acquire}${fields}`;
}

/** Data of a request to extend or repair a lease. */
export interface Extension {
  readonly target: Target;
  readonly token: string;
  readonly ttlMs: number;
  readonly fencingToken: number;
}

export function extendText({ target, token, ttlMs, fencingToken }: Extension): string {
  const count = target.keys.length;
  if (count === 1 && fencingToken >= 0 && token.length === TOKEN_LENGTH) {
    return `${LETTER.extendOne}${token}${digits(fencingToken)}${registersOf(target)}${ttlMs}`;
  }
  return `${LETTER.extend}${count} ${ttlMs} ${fencingToken} ${registersOf(target)} ${token}`;
}

export function repairText({ target, token, ttlMs, fencingToken }: Extension): string {
  return `${LETTER.repair}${target.keys.length} ${ttlMs} ${fencingToken} ${registersOf(target)} ${token}`;
}

export function releaseText(count: number, token: string): string {
  return count === 1 ? `${LETTER.releaseOne}${token}` : `${LETTER.release}${count} ${token}`;
}

export function leaveText(count: number, member: string): string {
  return `${LETTER.leave}${count} ${member}`;
}

export function waitText(count: number, member: string): string {
  return `${LETTER.wait}${count} ${member}`;
}

function registersOf({ keys, registers }: Target): string {
  if (registers === undefined) return "0".repeat(REGISTER_DIGITS * keys.length);
  return registers.map((register) => register.padStart(REGISTER_DIGITS, "0")).join("");
}

/** Reports whether the text has the form of a number that a node gives to its grants. */
export function isNumber(text: string): boolean {
  return text.length === DIGITS && Number.isSafeInteger(Number(text));
}

const ZERO = "0".repeat(DIGITS);

/** Formats a number with a fixed width, because numbers are compared as strings. */
export function digits(value: number): string {
  if (value === 0) return ZERO;
  return value >= 1e15 ? `${value}` : `${value}`.padStart(DIGITS, "0");
}
