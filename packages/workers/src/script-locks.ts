/**
 * The locks of keys on the queue's own Redis: the lane's scripts take one with its job and release it with the job's end, so it costs no
 * request. Whatever a script does not do (the lock is held or waited for, a job has several keys, fails, or is moved back) is
 * left to the ordinary requests for locks.
 *
 * Guaranteed: the lock is an ordinary one, see `EmbeddedLocks` of `@x/redlock-core`; it is held from before the processor is called
 * until after it has settled; a lock that no run claims is released with its job's end, or ends with its lease.
 */
import type { Clock, EmbeddedGrant, EmbeddedLock, EmbeddedLocks, Lock, Redlock } from "@x/redlock-core";
import type { LockRules } from "./compose.ts";

/** The command that ends a job follows its run in the same turn; a run that is not followed by one was not. */
const SAME_TURN_MS = 5;

/** What a script granted with a job. */
export type KeyGrant = Omit<EmbeddedGrant, "resource"> & { readonly key: string };

/** A lock to be released by the script that ends its job. */
export interface Ending {
  readonly token: string;
  /** Told once, when the script was run: whether it released the lock. */
  readonly settle: (isReleased: boolean) => void;
}

export class ScriptLocks {
  readonly rules: LockRules;
  readonly #embedded: EmbeddedLocks;
  readonly #clock: Clock;
  readonly #unclaimed = new Map<string, EmbeddedGrant>();
  readonly #endings = new Map<string, Ending>();
  #isStopped = false;
  #isWatching = false;

  /** Undefined where a script cannot take locks: these are on several nodes or in a Cluster, or JavaScript makes their names. */
  static on(
    redlock: Redlock,
    options: { readonly resourcePrefix: string | undefined; readonly lockTtl: number },
  ): ScriptLocks | undefined {
    const { embedded, clock } = redlock;
    const { resourcePrefix: prefix, lockTtl: ttlMs } = options;
    if (embedded === undefined || prefix === undefined) return undefined;
    return new ScriptLocks(embedded, clock, { lua: embedded.lua, prefix, ttlMs, fenceTtlMs: redlock.options.fenceTtl });
  }

  constructor(embedded: EmbeddedLocks, clock: Clock, rules: LockRules) {
    this.#embedded = embedded;
    this.#clock = clock;
    this.rules = rules;
  }

  /** From now on jobs are fetched by hand: nobody would claim the locks that came with them. */
  stop(): void {
    this.#isStopped = true;
  }

  /** For a script that may fetch a job: the token for the lock of its key; '' if none is to be taken. */
  newToken(): string {
    return this.#isStopped ? "" : this.#embedded.newToken();
  }

  /** A script took the lock with this job. */
  granted(jobId: string, { key, token, fencingToken, asked }: KeyGrant): void {
    this.#unclaimed.set(jobId, { resource: this.rules.prefix + key, token, fencingToken, asked });
  }

  /** The lock that came with the job, once; undefined if none did, or its lease is over. */
  claim(jobId: string): ScriptLock | undefined {
    const grant = this.#unclaimed.get(jobId);
    if (grant === undefined) return undefined;
    this.#unclaimed.delete(jobId);
    const adopted = this.#embedded.adopt(grant, this.rules.ttlMs);
    return adopted === undefined ? undefined : new ScriptLock(this, jobId, adopted);
  }

  /** The end of this job, which follows at once, releases the lock with this token. */
  expectEnd(jobId: string, ending: Ending): void {
    this.#endings.get(jobId)?.settle(false);
    this.#endings.set(jobId, ending);
    if (this.#isWatching) return;
    this.#isWatching = true;
    this.#clock.schedule(SAME_TURN_MS, () => {
      this.#isWatching = false;
      for (const { settle } of this.#endings.values()) settle(false);
      this.#endings.clear();
    });
  }

  /** What is to be released with this command that leaves the job, once. */
  endingOf(jobId: string): Ending | undefined {
    const ending = this.#endings.get(jobId);
    if (ending !== undefined) {
      this.#endings.delete(jobId);
      return ending;
    }
    const unclaimed = this.#unclaimed.get(jobId);
    if (unclaimed === undefined) return undefined;
    // BullMQ ends the job without having run it.
    const settle = (isReleased: boolean): void => {
      if (isReleased) this.#unclaimed.delete(jobId);
      else void this.claim(jobId)?.lock.release();
    };
    return { token: unclaimed.token, settle };
  }
}

/** A lock that came with its job, and was claimed by its run. */
export class ScriptLock {
  readonly #locks: ScriptLocks;
  readonly #jobId: string;
  readonly #embedded: EmbeddedLock;

  constructor(locks: ScriptLocks, jobId: string, embedded: EmbeddedLock) {
    this.#locks = locks;
    this.#jobId = jobId;
    this.#embedded = embedded;
  }

  get lock(): Lock {
    return this.#embedded.lock;
  }

  /** The run has settled well, and BullMQ is about to be told that its job has ended. Resolves as `lock.release()`. */
  releaseWithEnd(): Promise<boolean> {
    const { token } = this.lock;
    return this.#embedded.releaseBy((settle) => this.#locks.expectEnd(this.#jobId, { token, settle }));
  }
}
