/** The calls `acquire`, `tryAcquire` and `using` of semaphores and of both sides of a read-write lock. */
import { type Lock, LockHeldError, ReentrancyError } from "@x/redlock-core";
import { nextOuter, type OuterCall, outerCall, runInside } from "@x/redlock-core/kit";
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
   * Acquires the permits or the side of the lock, and waits up to `timeout`. Waiters are served first come, first
   * served. Nobody overtakes a waiting writer or a caller that waits for many permits.
   *
   * Rejects with `LockHeldError` if the permits were not free in time, with `QuorumUnreachableError` if too few nodes
   * answered, and with `signal.reason` if the caller cancels.
   */
  async acquire(options: Options = {} as Options): Promise<Lock> {
    return await acquirePermits(this.#pool, this.#request(options, "wait"));
  }

  /**
   * Makes one attempt without waiting. Resolves with null if the permits are held, or if other callers wait for
   * permits. Rejects with `QuorumUnreachableError` if too few nodes answered.
   */
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
   * Acquires a lock, calls `routine` with the lock, and releases the lock even if `routine` fails. The lock is extended
   * while `routine` runs, unless the call passes `autoExtend: false`. If the lock is lost, `lock.signal` aborts.
   *
   * Rejects with `ReentrancyError` inside a `using` of the same semaphore, or of either side of the same read-write
   * lock. Otherwise the call might wait for its own caller. With `reentrancy: "wait"` in the `Redlock` the call waits.
   */
  async using<Result>(
    routine: (lock: Lock) => Result | PromiseLike<Result>,
    options: Options = {} as Options,
  ): Promise<Result> {
    ROUTINE.of("routine", routine);
    return await use(this.#pool, this.#request(options, "use"), routine);
  }
}

/** One call of `using`. */
class Use implements OuterCall {
  readonly pool: Pool;
  readonly lock: Lock;
  outer: OuterCall | undefined;
  isOver = false;

  constructor(pool: Pool, lock: Lock, outer: OuterCall | undefined) {
    this.pool = pool;
    this.lock = lock;
    this.outer = outer;
  }
}

/**
 * Throws if a surrounding call of `using` holds the same semaphore or read-write lock. The inner call might wait
 * forever: nobody overtakes a waiter that wants more permits than are free, and this waiter waits for the outer call.
 */
function refuseReentry(inner: OuterCall | undefined, pool: Pool): void {
  for (let call = inner; call !== undefined; call = nextOuter(call)) {
    if (!(call instanceof Use && call.pool.isSameAs(pool) && call.lock.isHeld())) continue;
    throw new ReentrancyError([pool.name], [pool.name], {
      what: pool.what,
      advice: "pass its lock along, or ask for all of it in the outer call",
    });
  }
}

/** Acquires a lock, calls `routine`, and releases the lock even if `routine` fails. */
async function use<Result>(
  pool: Pool,
  request: PermitRequest,
  routine: (lock: Lock) => Result | PromiseLike<Result>,
): Promise<Result> {
  const isKnown = pool.redlock.options.reentrancy !== "wait";
  const outer = isKnown ? outerCall() : undefined;
  refuseReentry(outer, pool);
  const lock = await acquirePermits(pool, request);
  const own = new Use(pool, lock, outer);
  try {
    return await (isKnown ? runInside(own, routine, lock) : routine(lock));
  } finally {
    own.isOver = true;
    await lock.release();
  }
}
