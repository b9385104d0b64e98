/**
 * Pure: the operations that a client asks of a node, as scripts/batch.lua.ts reads them. An operation is one text: its
 * letter, followed by its fields. A field that may be any text comes last.
 */
import { FENCE, NOTE, WAITERS } from "./keys.ts";
import { TOKEN_LENGTH } from "./token.ts";

/** A target is the resources that are locked together, and where they are on each node. */
export interface Target {
  readonly resources: readonly string[];
  /** The lock key of each resource. */
  readonly keys: readonly string[];
  /** The key of each resource's line. Computed for each request if left out. */
  readonly lines?: readonly string[];
  /** The fencing register of each resource in a node's hash. It is undefined if a single node numbers the grants. */
  readonly registers: readonly string[] | undefined;
  /** The slot of all keys in a Cluster, otherwise 0. */
  readonly slot: number;
}

/** The letters of operations. Those about one resource are the frequent ones, and have fields of fixed width. */
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

const LINE = [WAITERS];
const LINE_AND_NOTE = [WAITERS, NOTE];
const FENCED = [FENCE];

/**
 * Returns the names of the side keys of an operation. A request declares the lock keys of all resources of the
 * operation. Their side keys by the first name follow, then those by the second name.
 */
export function sideKeyNamesOf(text: string): readonly string[] {
  switch (text[0]) {
    case LETTER.extendOne:
    case LETTER.extend:
    case LETTER.repair:
      return FENCED;
    case LETTER.acquireNoted:
      return LINE_AND_NOTE;
    default:
      return LINE;
  }
}

/** The modes of a request, see scripts/batch.lua.ts. */
export const MODE = { alone: "1", aloneQuarantined: "Q", several: "N", releases: "R" } as const;

/** Returns the character code of a letter or mode, which Lua compares faster than a text. */
export function codeOf(letter: string): number {
  return letter.charCodeAt(0);
}

/** Numbers of microseconds have this many digits until 2286. */
const DIGITS = 16;
const REGISTER_DIGITS = 5;

/**
 * The first and the last character of each field, counted from 1 as in Lua. A field without a last character is the
 * rest of the text.
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

const LAST = Number.MAX_SAFE_INTEGER;

/**
 * Writes the request for a lock. `ballot` is 0 where the node numbers the grants.
 *
 * `place` is where in the line; undefined puts the request behind all that are there. `member` is the name under
 * which a refused attempt is enrolled in the line; if it is undefined, the attempt is not enrolled. `note` is a text
 * that the nodes keep beside the lock from the grant on.
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
  const { ttlMs, ballot, place, member = "", note = "" } = facts;
  if (count === 1 && place === undefined && note === "" && token.length === TOKEN_LENGTH) {
    return `${LETTER.acquireOne}${token}${digits(ballot)}${ttlMs}`;
  }
  const fields = `${count} ${token} ${digits(ballot)} ${place ?? LAST} ${ttlMs} ${member}`;
  return note === "" ? `${LETTER.acquire}${fields}` : `${LETTER.acquireNoted}${fields} ${note}`;
}

/** What is asked of a node to extend a lease, or to repair it. */
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

export function waitText(count: number, place: number, member: string): string {
  return `${LETTER.wait}${count} ${place} ${member}`;
}

function registersOf({ keys, registers }: Target): string {
  if (registers === undefined) return "0".repeat(REGISTER_DIGITS * keys.length);
  return registers.map((register) => register.padStart(REGISTER_DIGITS, "0")).join("");
}

/** Tells whether a node may have given a grant this number. */
export function isNumber(text: string): boolean {
  return text.length === DIGITS && Number.isSafeInteger(Number(text));
}

const ZERO = "0".repeat(DIGITS);

/** Writes a number with a fixed width, because numbers are compared as text. */
export function digits(value: number): string {
  if (value === 0) return ZERO;
  return value >= 1e15 ? `${value}` : `${value}`.padStart(DIGITS, "0");
}
