/**
 * Lets the lane's scripts acquire a key's lock together with its job and release it with the job's end. This requires
 * that the locks are on the queue's own Redis, and costs no additional request.
 *
 * The requests of `KeyLocks` handle the other cases. They acquire a lock that is held or has waiters, and the locks of
 * several keys. They release the lock of a job that has several keys, fails, or is moved back. Until a mark that the
 * lane has set is found on the locks' Redis, requests handle all cases.
 *
 * The lock is an ordinary one (see `EmbeddedLocks` of `@x/redlock-core`). A run holds the lock from before the
 * processor is called until the processor has settled. A lock that no run claims is released with its job's end, or
 * expires.
 */
import { type Clock, type Lock, type Redlock, RedlockClosedError, RedlockError } from "@x/redlock-core";
import { sleep } from "@x/redlock-core/kit";
import { defineScript, type EmbeddedLocks, protocolOf } from "@x/redlock-core/protocol";
import type { Run } from "../job-run/run.ts";
import type { TakenJob } from "../lane/taken-job.ts";
import type { LockRules } from "../scripts/key-lock.lua.ts";
import { KeyLocks, type KeyLocksParts } from "./key-locks.ts";

const PROOF_RETRY_MS = 500;

const takeMark = defineScript("take-mark", "return redis.call('DEL', KEYS[1])");

export class ScriptLocks extends KeyLocks {
  /** Options for the lock in the lane's scripts. */
  readonly rules: LockRules;
  readonly #redlock: Redlock;
  readonly #embedded: EmbeddedLocks;
  readonly #clock: Clock;
  #isProven = false;
  #isStopped = false;

  /**
   * Returns undefined if scripts cannot acquire the locks. The reason is that the locks are on several nodes or in a
   * Cluster, or that a function computes their names.
   */
  static create(
    parts: KeyLocksParts,
    names: { readonly resourcePrefix: string | undefined; readonly reserved: string },
  ): ScriptLocks | undefined {
    const { embedded } = protocolOf(parts.redlock);
    const { resourcePrefix: prefix, reserved } = names;
    if (embedded === undefined || prefix === undefined) return undefined;
    return new ScriptLocks(parts, embedded, { prefix, reserved });
  }

  private constructor(
    parts: KeyLocksParts,
    embedded: EmbeddedLocks,
    names: { readonly prefix: string; readonly reserved: string },
  ) {
    super(parts);
    this.#redlock = parts.redlock;
    this.#embedded = embedded;
    this.#clock = protocolOf(parts.redlock).clock;
    this.rules = { ...names, ttlMs: parts.ttl, lua: embedded.lua };
  }

  /**
   * Finds out whether the lane's scripts run on the Redis of the locks. The scripts acquire no locks until this is
   * certain.
   *
   * `leaveMark` makes the lane set a mark with this name, and resolves with the mark's key. This call never rejects.
   */
  async proveSameRedis(leaveMark: (name: string) => Promise<unknown>): Promise<void> {
    while (!this.#isStopped) {
      try {
        const key = String(await leaveMark(this.#embedded.newToken()));
        const [reply] = await protocolOf(this.#redlock).run(takeMark, { keys: [key], args: [] });
        if (reply?.ok === true) {
          this.#isProven = reply.value === 1;
          return;
        }
      } catch (error) {
        if (error instanceof RedlockClosedError) return;
      }
      await sleep(this.#clock, PROOF_RETRY_MS);
    }
  }

  override stopScriptLocks(): void {
    this.#isStopped = true;
  }

  override newToken(): string {
    return this.#isProven && !this.#isStopped ? this.#embedded.newToken() : "";
  }

  override claim(taken: TakenJob): Lock | undefined {
    const token = taken.claimLock();
    if (token === "" || taken.fencingToken === undefined) return undefined;
    const { fencingToken, sent: asked } = taken;
    try {
      return this.#embedded.adopt(
        { resource: this.rules.prefix + taken.lockName, token, fencingToken, asked },
        this.rules.ttlMs,
      );
    } catch (error) {
      // The user has closed the `Redlock`. The request for the lock that follows reports this.
      if (error instanceof RedlockError) return undefined;
      throw error;
    }
  }

  override releaseWithEnd(run: Run, lock: Lock, taken: TakenJob): Promise<boolean> {
    // A worker that is closed by force does not end its jobs.
    if (this.#isStopped) return lock.release();
    if (!this.#isProven || taken.isFollowed || run.keys.length > 1) return super.releaseWithEnd(run, lock, taken);
    return protocolOf(lock).releaseBy((answer) => {
      const onReply = (isReleased: boolean): void => answer.settle(isReleased);
      taken.leaveLockInstruction({ kind: "release-held", token: lock.token, onReply });
    });
  }

  override dropUnclaimed(lockName: string, token: string): void {
    void this.#embedded.drop({ resource: this.rules.prefix + lockName, token }, this.rules.ttlMs);
  }
}
