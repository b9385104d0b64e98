/** What semaphores and both sides of a read-write lock have in common: to acquire, to try, to use. */
import { AsyncLocalStorage } from "node:async_hooks";
import { type Lock, LockHeldError, ReentrancyError } from "@x/redlock-core";
import { type AccessOptions, type Manner, ROUTINE } from "./options.ts";
import { acquirePermits } from "./permits/acquisition.ts";
import type { PermitRequest, Pool } from "./permits/pool.ts";

/** Permits of a semaphore, or one side of a read-write lock. */
export class Access<Options extends AccessOptions = AccessOptions> {
  readonly #pool: Pool;
  readonly #request: (options: Options, manner: Manner) => PermitRequest;

  /** Only `Semaphore` and `ReadWriteLock` call the constructor. */
  constructor(pool: Pool, request: (options: Options, manner: Manner) => PermitRequest) {
    this.#pool = pool;
    this.#request = request;
  }

  /**
   * Acquires what is asked for, and waits up to `timeout` for it. Waiters are served first come, first served; nobody
   * overtakes one that wants many permits, or a writer.
   *
   * The call rejects with `LockHeldError` if it was not free in time, and with `QuorumUnreachableError` if too few
   * nodes answered. If the caller cancels, it rejects with `signal.reason`.
   */
  async acquire(options: Options = {} as Options): Promise<Lock> {
    return await acquirePermits(this.#pool, this.#request(options, "wait"));
  }

  /** Asks once, without waiting: resolves with null if what is asked for is held, or others wait for it. */
  async tryAcquire(options: Omit<Options, "timeout"> = {} as Options): Promise<Lock | null> {
    const request = this.#request(options as Options, "try");
    try {
      return await acquirePermits(this.#pool, request);
    } catch (error) {
      if (error instanceof LockHeldError && error !== request.signal?.reason) return null;
      throw error;
    }
  }

  /**
   * Acquires, calls `routine` with the lock, and releases it whatever happens. It is extended while that runs, unless
   * the call says `autoExtend: false`. If it is lost, `lock.signal` aborts.
   *
   * Inside a `using` of the same semaphore, or of either side of the same read-write lock, the call might wait for its
   * own caller. So it rejects with `ReentrancyError`, unless the `Redlock` has `reentrancy: "wait"`.
   */
  async using<Result>(
    routine: (lock: Lock) => Result | PromiseLike<Result>,
    options: Options = {} as Options,
  ): Promise<Result> {
    ROUTINE.of("routine", routine);
    return await use(this.#pool, this.#request(options, "use"), routine);
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
async function use<Result>(
  pool: Pool,
  request: PermitRequest,
  routine: (lock: Lock) => Result | PromiseLike<Result>,
): Promise<Result> {
  const isKnown = pool.redlock.options.reentrancy !== "wait";
  const outer = isKnown ? openUse(uses.getStore()) : undefined;
  refuseReentry(outer, pool);
  const lock = await acquirePermits(pool, request);
  const own: Use = { pool, lock, outer, isOver: false };
  try {
    return await (isKnown ? uses.run(own, routine, lock) : routine(lock));
  } finally {
    own.isOver = true;
    await lock.release();
  }
}
