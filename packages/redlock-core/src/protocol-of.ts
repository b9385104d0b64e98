import type { Lock } from "./lock/lock.ts";
import { type LockProtocol, PROTOCOL } from "./lock/protocol-symbol.ts";
import type { Redlock } from "./redlock.ts";
import type { RedlockProtocol } from "./redlock-protocol.ts";
import { type Check, shaped } from "./schema/check.ts";

/** Returns what a `Redlock`, or a `Lock`, does for the sibling packages. */
export function protocolOf(redlock: Redlock): RedlockProtocol;
export function protocolOf(lock: Lock): LockProtocol;
export function protocolOf(spoken: object): unknown {
  return (spoken as { readonly [PROTOCOL]: unknown })[PROTOCOL];
}

/**
 * Checks that a value is a `Redlock` as siblings need one. It is known by what is used of it, because there may be
 * two copies of this package in one program.
 */
export const redlock: Check<Redlock> = shaped<Redlock>("a Redlock (of @x/redlock-core)", (given) => {
  const { maxTtl } = (given["options"] ?? {}) as { readonly maxTtl?: unknown };
  const isWhole = ["acquire", "tryAcquire", "on"].every((method) => typeof given[method] === "function");
  return typeof maxTtl === "number" && isWhole && PROTOCOL in given;
});
