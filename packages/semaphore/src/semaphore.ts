/**
 * This file has the class `Semaphore`: at most so many holders at a time, in all processes together.
 *
 * permits/pool.ts says what is guaranteed, and what is not. A permit is a lock of `@x/redlock-core` in every respect:
 * it expires, is extended, has a fencing token, and its signal aborts when it is lost.
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

/** What a semaphore looks like at one moment. */
export interface SemaphoreState {
  readonly permits: number;
  /** The permits that are held. */
  readonly used: number;
  /** The processes with callers that wait. A process that died is counted until its turn. */
  readonly waiting: number;
  /** The last fencing token; undefined before the first grant. */
  readonly fencingToken: number | undefined;
  readonly holders: readonly { readonly permits: number; readonly remainingMs: number }[];
}

export class Semaphore extends Access<PermitOptions> {
  readonly name: string;
  /** How many permits there are. */
  readonly permits: number;
  readonly #pool: Pool;

  /**
   * Makes a semaphore of `permits` permits on the node of the `Redlock`. Semaphores of one name on one node are one,
   * in whatever process they are.
   * @throws RangeError for a `Redlock` of several independent nodes; a Cluster is one.
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

  /** Reports who holds permits and how many wait. The call changes nothing. */
  async inspect(): Promise<SemaphoreState> {
    const { permits } = this;
    return Object.freeze({ permits, ...(await this.#pool.inspect()) });
  }
}
