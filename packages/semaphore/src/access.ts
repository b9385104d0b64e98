/** What semaphores and both sides of a read-write lock have in common: to acquire, to try, to use. */
import { AsyncLocalStorage } from "node:async_hooks";
import { type Lock, LockHeldError, ReentrancyError } from "@x/redlock-core";
import { acquirePermits } from "./permits/acquisition.ts";
import type { PermitRequest, Pool } from "./permits/pool.ts";

/** Acquires without waiting; null if it was refused. */
export async function attempt(pool: Pool, request: PermitRequest): Promise<Lock | null> {
  try {
    return await acquirePermits(pool, request);
  } catch (error) {
    if (error instanceof LockHeldError && error !== request.signal?.reason) return null;
    throw error;
  }
}

/** One call of `using`. What its routine calls, however deep, knows of it by its asynchronous context. */
interface Use {
  readonly pool: Pool;
  readonly lock: Lock;
  readonly outer: Use | undefined;
  isOver: boolean;
}

/** It costs nothing before the first `run`. */
const uses = new AsyncLocalStorage<Use>();

/** Returns the innermost call around the code that runs now, from `inner` on, that has not ended. */
function openUse(inner: Use | undefined): Use | undefined {
  let open = inner;
  while (open?.isOver === true) open = open.outer;
  return open;
}

/**
 * Throws for a call inside one of the same semaphore or read-write lock. It might wait for its own caller: a waiter
 * that wants more than is free is overtaken by nobody, so it is between the two.
 */
function refuseReentry(inner: Use | undefined, pool: Pool): void {
  for (let use = inner; use !== undefined; use = openUse(use.outer)) {
    if (!use.pool.isSameAs(pool) || !use.lock.isHeld()) continue;
    throw new ReentrancyError([pool.name], [pool.name], {
      what: pool.what,
      advice: "pass its lock along, or ask for all of it in the outer call",
    });
  }
}

/** Acquires, calls `routine`, and releases whatever happens. */
export async function use<Result>(
  pool: Pool,
  request: PermitRequest,
  routine: (lock: Lock) => Result | PromiseLike<Result>,
): Promise<Result> {
  const isKnown = pool.redlock.options.reentrancy !== "wait";
  const outer = isKnown ? openUse(uses.getStore()) : undefined;
  refuseReentry(outer, pool);
  const lock = await acquirePermits(pool, { ...request, autoExtend: true });
  const own: Use = { pool, lock, outer, isOver: false };
  try {
    return await (isKnown ? uses.run(own, routine, lock) : routine(lock));
  } finally {
    own.isOver = true;
    await lock.release();
  }
}
