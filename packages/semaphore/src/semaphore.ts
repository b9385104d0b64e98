/**
 * The class `Semaphore`: all processes together hold at most `permits` permits at a time.
 *
 * permits/pool.ts lists the guarantees. A permit is a lock of `@x/redlock-core` in every respect. A permit expires, is
 * extended, has a fencing token, and aborts its signal when it is lost.
 */
import type { Redlock } from "@x/redlock-core";
import { Access } from "./access.ts";
import {
  checkSinglePlace,
  type PermitOptions,
  resolvePermits,
  resolveSemaphoreOptions,
  type SemaphoreOptions,
} from "./options.ts";
import { Pool } from "./permits/pool.ts";
import type { Figures } from "./permits/rules/answer.ts";

/** State of a semaphore at one moment. */
export interface SemaphoreState {
  /** Number of permits of the semaphore. */
  readonly permits: number;
  /** Number of held permits. */
  readonly used: number;
  /** Number of processes with callers that wait. A process that died is counted until its turn. */
  readonly waiting: number;
  /** Last fencing token. Undefined before the first grant. */
  readonly fencingToken: number | undefined;
  /** Number of permits of each lease, and the milliseconds until the lease expires. */
  readonly holders: readonly { readonly permits: number; readonly remainingMs: number }[];
}

export class Semaphore extends Access<PermitOptions> {
  readonly name: string;
  /** Number of permits. */
  readonly permits: number;
  readonly #pool: Pool;

  /**
   * Makes a semaphore of `permits` permits on the node of the `Redlock`. All processes that use the same name on the
   * same node share the semaphore.
   * @throws RangeError for a `Redlock` of several independent nodes. A Cluster counts as one node.
   */
  constructor(redlock: Redlock, name: string, options: SemaphoreOptions) {
    checkSinglePlace(redlock, name);
    const defaults = resolveSemaphoreOptions(options, redlock);
    const pool = new Pool({ redlock, name, keys: "semaphore", capacity: defaults.permits, what: "semaphore" });
    super(pool, (given, manner) => {
      const request = resolvePermits(given, manner, defaults, redlock);
      const wanted = request.permits === 1 ? "no permit was free" : `${request.permits} permits were not free`;
      const refusal = ({ used, waiting }: Figures): string =>
        `semaphore "${name}": ${wanted}: ${used} of ${defaults.permits} are held, ${waiting} callers wait`;
      return { ...request, refusal };
    });
    this.name = name;
    this.permits = defaults.permits;
    this.#pool = pool;
  }

  /**
   * Reports the holders and the number of waiting processes. Changes nothing. Rejects with `QuorumUnreachableError` if
   * too few nodes answered.
   */
  async inspect(): Promise<SemaphoreState> {
    const { permits } = this;
    return Object.freeze({ permits, ...(await this.#pool.inspect()) });
  }
}
