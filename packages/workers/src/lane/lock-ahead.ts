/**
 * The lock of a key's next job, asked for in the same turn as the lock of the one before is released, while BullMQ is told that
 * this one has ended. If the answer brings the next job of the key, its lock is there already: no round trip between two jobs
 * of a key but BullMQ's own.
 *
 * Guaranteed: it is an ordinary grant with a fencing token of its own, for which everybody who waited goes first; and a lock that
 * no job claims is released.
 */
import type { Clock, Lock } from "@x/redlock-core";

/** BullMQ hands a fetched job to its processor at once; a worker that is being closed may not. */
const UNCLAIMED_MS = 2_000;

export class LockAhead {
  readonly key: string;
  /** Resolves when it is claimed, or released. */
  readonly settled: Promise<void>;
  readonly #lock: Promise<Lock | null>;
  readonly #cancelTimer: () => void;
  #settle: () => void = () => {};
  #isDone = false;

  /** `lock` never rejects: null if somebody else has it. */
  constructor(key: string, lock: Promise<Lock | null>, clock: Clock) {
    this.key = key;
    this.#lock = lock;
    this.settled = new Promise((resolve) => {
      this.#settle = resolve;
    });
    this.#cancelTimer = clock.schedule(UNCLAIMED_MS, () => void this.drop());
  }

  /** The lock, for the one who asks first. */
  async claim(): Promise<Lock | null> {
    if (this.#isDone) return null;
    this.#end();
    this.#settle();
    return await this.#lock;
  }

  /** Nobody needs it; resolves when it is released. */
  async drop(): Promise<void> {
    if (this.#isDone) return;
    this.#end();
    await (await this.#lock)?.release();
    this.#settle();
  }

  #end(): void {
    this.#isDone = true;
    this.#cancelTimer();
  }
}
