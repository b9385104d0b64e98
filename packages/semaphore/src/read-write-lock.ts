/**
 * The class `ReadWriteLock`: many readers at a time, or one writer.
 *
 * A read-write lock is a pool: a reader takes one permit, and a writer takes all permits. Nobody overtakes a waiter, so
 * neither readers nor writers starve. A writer's fencing token is greater than the tokens of all earlier readers and
 * writers.
 *
 * On several nodes, a writer needs a quorum of nodes without other holders, and a reader a quorum without writers. Any
 * two quorums share a node, so a writer is always alone. permits/pool.ts lists the differences to a single node.
 */
import type { Redlock } from "@x/redlock-core";
import { Access } from "./access.ts";
import { checkPlace, type LeaseOptions, MAX_PERMITS, resolveAccess, resolveLockOptions } from "./options.ts";
import { Pool } from "./permits/pool.ts";
import type { Figures } from "./permits/rules/answer.ts";

/** State of a read-write lock at one moment. */
export interface ReadWriteLockState {
  readonly readers: number;
  readonly isWriting: boolean;
  /** Number of processes with callers that wait. A process that died is counted until its turn. */
  readonly waiting: number;
  /** Greatest fencing token on any node. Undefined before the first grant. */
  readonly fencingToken: number | undefined;
}

export class ReadWriteLock {
  readonly name: string;
  /** Shared access: any number of readers, while nobody writes. */
  readonly read: Access;
  /** Exclusive access: one writer and no readers. */
  readonly write: Access;
  readonly #pool: Pool;

  /**
   * Makes a read-write lock on the nodes of the `Redlock`. A quorum of nodes grants the lock. All processes that use
   * the same name on the same nodes share the lock. A lock of the `Redlock` and a semaphore with the same name are
   * independent.
   */
  constructor(redlock: Redlock, name: string, options: LeaseOptions = {}) {
    checkPlace(redlock, name);
    const defaults = resolveLockOptions(options, redlock);
    const pool = new Pool({ redlock, name, keys: "readwrite", capacity: MAX_PERMITS, what: "read-write lock" });
    const side = (verb: "read" | "write", permits: number): Access =>
      new Access(pool, (given, manner) => {
        const refusal = ({ used, waiting }: Figures): string => {
          const held = used === MAX_PERMITS ? "somebody writes" : `${used} read`;
          return `read-write lock "${name}" was not free to ${verb}: ${held}, ${waiting} callers wait`;
        };
        return { ...resolveAccess(given, manner, defaults, redlock), permits, refusal };
      });
    this.name = name;
    this.#pool = pool;
    this.read = side("read", 1);
    this.write = side("write", MAX_PERMITS);
  }

  /**
   * Reports the holders and the number of waiting processes. Changes nothing. Rejects with `QuorumUnreachableError` if
   * too few nodes answered.
   */
  async inspect(): Promise<ReadWriteLockState> {
    const { used, waiting, fencingToken } = await this.#pool.inspect();
    const isWriting = used === MAX_PERMITS;
    return Object.freeze({ readers: isWriting ? 0 : used, isWriting, waiting, fencingToken });
  }
}
