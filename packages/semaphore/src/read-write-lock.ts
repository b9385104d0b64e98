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
import type { Redlock } from "@x/redlock-core";
import { Access } from "./access.ts";
import { checkPlace, type LeaseOptions, MAX_PERMITS, resolveAccess, resolveLockOptions } from "./options.ts";
import { Pool } from "./permits/pool.ts";
import type { Figures } from "./permits/rules/answer.ts";

/** What a read-write lock looks like at one moment. */
export interface ReadWriteLockState {
  readonly readers: number;
  readonly isWriting: boolean;
  /** The processes with callers that wait. A process that died is counted until its turn. */
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

  /** Reports who reads or writes, and how many wait. The call changes nothing. */
  async inspect(): Promise<ReadWriteLockState> {
    const { used, waiting, fencingToken } = await this.#pool.inspect();
    const isWriting = used === MAX_PERMITS;
    return Object.freeze({ readers: isWriting ? 0 : used, isWriting, waiting, fencingToken });
  }
}
