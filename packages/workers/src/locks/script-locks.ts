/**
 * The lane's scripts take a key's lock with its job, if the locks are on the queue's own Redis. They release it with
 * the job's end. Such a lock costs no request.
 *
 * Some things no script does: a lock is held or waited for, or a job has several keys, fails, or is moved back. They
 * are left to the requests of `KeyLocks`. Everything is, until a mark that the lane left was found where the locks
 * are.
 *
 * The lock is an ordinary one (see `EmbeddedLocks` of `@x/redlock-core`). It is held from before the processor is
 * called until after it has settled. A lock that no run claims is released with its job's end, or ends with its lease.
 */
import { type Clock, type Lock, type Redlock, RedlockClosedError, RedlockError } from "@x/redlock-core";
import { defineScript, type EmbeddedLocks, protocolOf, sleep } from "@x/redlock-core/protocol";
import type { Run } from "../job-run/run.ts";
import { type LockInstruction, settle, type TakenJob } from "../lane/taken-job.ts";
import type { LockRules } from "../scripts/key-lock.lua.ts";
import { KeyLocks, type KeyLocksParts } from "./key-locks.ts";

/**
 * The command that ends a job follows its run within this time, in the same turn of the event loop. A run that is not
 * followed by one was not ended so.
 */
const SAME_TURN_MS = 5;
const PROVE_AGAIN_MS = 500;

const takeMark = defineScript("take-mark", "return redis.call('DEL', KEYS[1])");

export class ScriptLocks extends KeyLocks {
  /** What the lane's scripts are composed with. */
  readonly rules: LockRules;
  readonly #redlock: Redlock;
  readonly #embedded: EmbeddedLocks;
  readonly #clock: Clock;
  /** Jobs that are about to be ended. */
  #ending: TakenJob[] = [];
  #isProven = false;
  #isStopped = false;

  /**
   * Returns undefined where a script cannot take locks: they are on several nodes or in a Cluster, or JavaScript makes
   * their names.
   */
  static on(
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
   * Finds out whether the lane's scripts run where the locks are. Until it is known that they do, they take none.
   *
   * `leaveMark` has the lane leave a mark of this name, and resolves with its key. The call never rejects.
   */
  async prove(leaveMark: (name: string) => Promise<unknown>): Promise<void> {
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
      await sleep(this.#clock, PROVE_AGAIN_MS);
    }
  }

  override stop(): void {
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
      return this.#embedded.adopt({ resource: this.#nameOf(taken), token, fencingToken, asked }, this.rules.ttlMs);
    } catch (error) {
      // The Redlock was closed by its user: who asks it for a lock is told.
      if (error instanceof RedlockError) return undefined;
      throw error;
    }
  }

  override releaseWithEnd(run: Run, lock: Lock, taken: TakenJob): Promise<boolean> {
    if (!this.#isProven || taken.isFollowed || run.keys.length > 1) return super.releaseWithEnd(run, lock, taken);
    return protocolOf(lock).releaseBy((answer) => {
      const onReply = (isReleased: boolean): void => answer.settle(isReleased);
      this.#expectEnd(taken, { kind: "release-held", token: lock.token, onReply });
    });
  }

  override takeLockInstruction(taken: TakenJob | undefined): LockInstruction | undefined {
    const instruction = super.takeLockInstruction(taken);
    if (taken === undefined || instruction !== undefined) return instruction;
    const token = taken.claimLock();
    return token === "" ? undefined : this.#releaseUnclaimed(taken, token);
  }

  /** A lock that the script does not release is released by a request. */
  #releaseUnclaimed(taken: TakenJob, token: string): LockInstruction {
    const onReply = (isReleased: boolean): void => {
      if (!isReleased) void this.#embedded.drop({ resource: this.#nameOf(taken), token }, this.rules.ttlMs);
    };
    return { kind: "release-unclaimed", token, onReply };
  }

  #expectEnd(taken: TakenJob, instruction: LockInstruction): void {
    settle(taken.lockInstruction, false);
    taken.lockInstruction = instruction;
    this.#ending.push(taken);
    if (this.#ending.length === 1) this.#clock.schedule(SAME_TURN_MS, this.#giveUp);
  }

  /** Gives up the jobs that nobody has ended in time. */
  readonly #giveUp = (): void => {
    const late = this.#ending;
    this.#ending = [];
    for (const taken of late) {
      const { lockInstruction } = taken;
      taken.lockInstruction = undefined;
      settle(lockInstruction, false);
    }
  };

  #nameOf(taken: TakenJob): string {
    return this.rules.prefix + taken.lockName;
  }
}
