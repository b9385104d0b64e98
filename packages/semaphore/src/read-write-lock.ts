/**
 * This file has the class `ReadWriteLock`: many readers at a time, or one writer.
 *
 * It is a semaphore whose readers take one permit and whose writer takes all. A writer that waits is not overtaken, so
 * readers cannot starve it; and readers that came before the next writer are not starved either. Fencing tokens order
 * readers and writers alike: what a writer does has a greater token than what readers did before it.
 *
 * On several nodes a writer needs a quorum of them alone, and a reader a quorum on which nobody writes. Any two quorums
 * share a node, so there is never a writer beside anybody. permits/pool.ts says what differs there.
 */
import type { Lock, Redlock } from "@x/redlock-core";
import { attempt, use } from "./access.ts";
import {
  type AccessOptions,
  checkPlace,
  type LeaseOptions,
  MAX_PERMITS,
  type Manner,
  type ResolvedLease,
  ROUTINE,
  resolveAccess,
  resolveLockOptions,
} from "./options.ts";
import { acquirePermits } from "./permits/acquisition.ts";
import { type PermitRequest, Pool } from "./permits/pool.ts";
import type { Figures } from "./permits/rules/answer.ts";

/** What a read-write lock looks like at one moment. */
export interface ReadWriteLockState {
  readonly readers: number;
  readonly isWriting: boolean;
  /** The callers that wait. A waiter that died is counted until its turn. */
  readonly waiting: number;
  /** The greatest fencing token that any node remembers; undefined before the first grant. */
  readonly fencingToken: number | undefined;
}

export class ReadWriteLock {
  readonly name: string;
  /** Shared access: any number of readers, while nobody writes. */
  readonly read: Access;
  /** Exclusive access: one writer, and no reader beside it. */
  readonly write: Access;
  readonly #pool: Pool;

  /**
   * Makes a read-write lock on the nodes of the `Redlock`, of which a quorum grants it. Those of one name on the same
   * nodes are one, in whatever process they are. It is another one than the `Redlock`'s lock and the semaphore of that
   * name.
   */
  constructor(redlock: Redlock, name: string, options: LeaseOptions = {}) {
    checkPlace(redlock, name);
    const defaults = resolveLockOptions(options, redlock);
    this.name = name;
    this.#pool = new Pool({ redlock, name, keys: "readwrite", capacity: MAX_PERMITS, what: "read-write lock" });
    this.read = new Access(this.#pool, { defaults, permits: 1, verb: "read" });
    this.write = new Access(this.#pool, { defaults, permits: MAX_PERMITS, verb: "write" });
  }

  /** Reports who reads or writes, and how many wait. The call changes nothing. */
  async inspect(): Promise<ReadWriteLockState> {
    const { used, waiting, fencingToken } = await this.#pool.inspect();
    const isWriting = used === MAX_PERMITS;
    return Object.freeze({ readers: isWriting ? 0 : used, isWriting, waiting, fencingToken });
  }
}

/** One side of a read-write lock. */
export class Access {
  readonly #pool: Pool;
  readonly #defaults: ResolvedLease;
  readonly #permits: number;
  readonly #verb: "read" | "write";

  /** Only `ReadWriteLock` calls the constructor. */
  constructor(
    pool: Pool,
    side: { readonly defaults: ResolvedLease; readonly permits: number; readonly verb: "read" | "write" },
  ) {
    this.#pool = pool;
    this.#defaults = side.defaults;
    this.#permits = side.permits;
    this.#verb = side.verb;
  }

  /**
   * Acquires the lock, and waits up to `timeout` for it; readers and writers are served first come, first served.
   *
   * The call rejects with `LockHeldError` if it was not free in time, and with `QuorumUnreachableError` if too few
   * nodes answered. If the caller cancels, it rejects with `signal.reason`.
   */
  async acquire(options: AccessOptions = {}): Promise<Lock> {
    return await acquirePermits(this.#pool, this.#request(options, "wait"));
  }

  /** Asks once, without waiting: resolves with null if the lock is held the other way, or others wait for it. */
  async tryAcquire(options: Omit<AccessOptions, "timeout"> = {}): Promise<Lock | null> {
    return await attempt(this.#pool, this.#request(options, "try"));
  }

  /**
   * Acquires the lock, calls `routine` with it, and releases it whatever happens. It is extended while that runs; if it
   * is lost, `lock.signal` aborts.
   *
   * Inside a `using` of either side of the same lock the call might wait for its own caller. So it rejects with
   * `ReentrancyError`, unless the `Redlock` has `reentrancy: "wait"`.
   */
  async using<Result>(
    routine: (lock: Lock) => Result | PromiseLike<Result>,
    options: AccessOptions = {},
  ): Promise<Result> {
    ROUTINE.of("routine", routine);
    return await use(this.#pool, this.#request(options, "wait"), routine);
  }

  #request(options: AccessOptions, manner: Manner): PermitRequest {
    const { name } = this.#pool;
    const refusal = ({ used, waiting }: Figures): string => {
      const held = used === MAX_PERMITS ? "somebody writes" : `${used} read`;
      return `read-write lock "${name}" was not free to ${this.#verb}: ${held}, ${waiting} callers wait`;
    };
    return { ...resolveAccess(options, manner, this.#defaults, this.#pool.redlock), permits: this.#permits, refusal };
  }
}
