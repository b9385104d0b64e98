/**
 * This file has the class `Semaphore`: at most so many holders at a time, in all processes together.
 *
 * permits/pool.ts says what is guaranteed, and what is not. A permit is a lock of `@x/redlock-core` in every respect:
 * it expires, is extended, has a fencing token, and its signal aborts when it is lost.
 */
import type { Lock, Redlock } from "@x/redlock-core";
import { attempt, use } from "./access.ts";
import {
  checkSinglePlace,
  type Manner,
  type PermitOptions,
  type ResolvedLease,
  ROUTINE,
  resolvePermits,
  resolveSemaphoreOptions,
  type SemaphoreOptions,
} from "./options.ts";
import { acquirePermits } from "./permits/acquisition.ts";
import { type PermitRequest, Pool } from "./permits/pool.ts";
import type { Figures } from "./permits/rules/answer.ts";

/** What a semaphore looks like at one moment. */
export interface SemaphoreState {
  readonly permits: number;
  /** The permits that are held. */
  readonly used: number;
  /** The callers that wait. A waiter that died is counted until its turn. */
  readonly waiting: number;
  /** The last fencing token; undefined before the first grant. */
  readonly fencingToken: number | undefined;
  readonly holders: readonly { readonly permits: number; readonly remainingMs: number }[];
}

export class Semaphore {
  readonly name: string;
  /** How many permits there are. */
  readonly permits: number;
  readonly #pool: Pool;
  readonly #defaults: ResolvedLease & { readonly permits: number };

  /**
   * Makes a semaphore of `permits` permits on the node of the `Redlock`. Semaphores of one name on one node are one,
   * in whatever process they are.
   * @throws RangeError for a `Redlock` of several independent nodes; a Cluster is one.
   */
  constructor(redlock: Redlock, name: string, options: SemaphoreOptions) {
    checkSinglePlace(redlock, name);
    this.#defaults = resolveSemaphoreOptions(options, redlock);
    this.name = name;
    this.permits = this.#defaults.permits;
    this.#pool = new Pool({ redlock, name, keys: "semaphore", capacity: this.permits, what: "semaphore" });
  }

  /**
   * Acquires permits, and waits up to `timeout` for them; waiters are served first come, first served. Nobody
   * overtakes a waiter that wants many.
   *
   * The call rejects with `LockHeldError` if they were not free in time, and with `QuorumUnreachableError` if the node
   * did not answer. If the caller cancels, it rejects with `signal.reason`.
   */
  async acquire(options: PermitOptions = {}): Promise<Lock> {
    return await acquirePermits(this.#pool, this.#request(options, "wait"));
  }

  /** Asks once, without waiting: resolves with null if the permits are held, or others wait for them. */
  async tryAcquire(options: Omit<PermitOptions, "timeout"> = {}): Promise<Lock | null> {
    return await attempt(this.#pool, this.#request(options, "try"));
  }

  /**
   * Acquires permits, calls `routine` with them, and releases them whatever happens. They are extended while it runs;
   * if they are lost, `lock.signal` aborts.
   *
   * Inside a `using` of the same semaphore the call might wait for its own caller. So it rejects with
   * `ReentrancyError`, unless the `Redlock` has `reentrancy: "wait"`.
   */
  async using<Result>(
    routine: (lock: Lock) => Result | PromiseLike<Result>,
    options: PermitOptions = {},
  ): Promise<Result> {
    ROUTINE.of("routine", routine);
    return await use(this.#pool, this.#request(options, "wait"), routine);
  }

  /** Reports who holds permits and how many wait. The call changes nothing. */
  async inspect(): Promise<SemaphoreState> {
    const { permits } = this;
    return Object.freeze({ permits, ...(await this.#pool.inspect()) });
  }

  #request(options: PermitOptions, manner: Manner): PermitRequest {
    const resolved = resolvePermits(options, manner, this.#defaults, this.#pool.redlock);
    const { permits } = resolved;
    const wanted = permits === 1 ? "no permit was free" : `${permits} permits were not free`;
    const refusal = ({ used, waiting }: Figures): string =>
      `semaphore "${this.name}": ${wanted}: ${used} of ${this.permits} are held, ${waiting} callers wait`;
    return { ...resolved, refusal };
  }
}
