/**
 * Pure: what is asked of a node about some resources, as scripts/batch.lua.ts reads it: one text, a letter and what it says of it.
 * Small letters are what is asked most often, about one resource, with fields of fixed width. What may be any text comes last.
 */
import { TOKEN_LENGTH } from "./token.ts";

/** Resources that are locked together, and where they are on each node. */
export interface Target {
  readonly resources: readonly string[];
  /** The lock key of each. */
  readonly keys: readonly string[];
  /** The fencing register of each in the hash of a node; undefined: one node alone numbers the grants. */
  readonly registers: readonly string[] | undefined;
  /** In a Cluster: the slot of all keys; else 0. */
  readonly slot: number;
}

/** Numbers of µs have as many digits until 2286. */
const DIGITS = 16;
const REGISTER_DIGITS = 5;

/** The first and the last character of each field, counted from 1 as in Lua; without a last one it is the rest. */
export const FIELDS: Readonly<
  Record<"token" | "ballot" | "acquireTtl" | "extendRegister" | "extendTtl", readonly [from: number, to?: number]>
> = {
  token: [2, TOKEN_LENGTH + 1],
  ballot: [TOKEN_LENGTH + 2, TOKEN_LENGTH + 1 + DIGITS],
  acquireTtl: [TOKEN_LENGTH + 2 + DIGITS],
  extendRegister: [TOKEN_LENGTH + 2 + DIGITS, TOKEN_LENGTH + 1 + DIGITS + REGISTER_DIGITS],
  extendTtl: [TOKEN_LENGTH + 2 + DIGITS + REGISTER_DIGITS],
};

const LAST = Number.MAX_SAFE_INTEGER;

/**
 * `ballot`: 0 where the node numbers the grants. `order`: the place in the queue; undefined: behind all that are there. `member`: the name
 * under which a refused attempt is enrolled in the queue; undefined: it is not.
 */
export function acquireText(
  count: number,
  token: string,
  facts: {
    readonly ttlMs: number;
    readonly ballot: number;
    readonly order?: number | undefined;
    readonly member?: string | undefined;
  },
): string {
  const { ttlMs, ballot, order, member } = facts;
  if (count === 1 && order === undefined && token.length === TOKEN_LENGTH) return `a${token}${digits(ballot)}${ttlMs}`;
  return `A${count} ${token} ${digits(ballot)} ${order ?? LAST} ${ttlMs} ${member ?? ""}`;
}

export interface Lease {
  readonly target: Target;
  readonly token: string;
  readonly ttlMs: number;
  readonly fencingToken: number;
}

export function extendText({ target, token, ttlMs, fencingToken }: Lease): string {
  const count = target.keys.length;
  if (count === 1 && fencingToken >= 0 && token.length === TOKEN_LENGTH) {
    return `e${token}${digits(fencingToken)}${registersOf(target)}${ttlMs}`;
  }
  return `E${count} ${ttlMs} ${fencingToken} ${registersOf(target)} ${token}`;
}

export function repairText({ target, token, ttlMs, fencingToken }: Lease): string {
  return `P${target.keys.length} ${ttlMs} ${fencingToken} ${registersOf(target)} ${token}`;
}

export function releaseText(count: number, token: string): string {
  return count === 1 ? `r${token}` : `R${count} ${token}`;
}

export function leaveText(count: number, member: string): string {
  return `L${count} ${member}`;
}

export function waitText(count: number, order: number, member: string): string {
  return `W${count} ${order} ${member}`;
}

function registersOf({ keys, registers }: Target): string {
  if (registers === undefined) return "0".repeat(REGISTER_DIGITS * keys.length);
  return registers.map((register) => register.padStart(REGISTER_DIGITS, "0")).join("");
}

/** Of one width: what is compared as text. */
export function digits(value: number): string {
  return value >= 1e15 ? `${value}` : `${value}`.padStart(DIGITS, "0");
}
