/**
 * A `TakenJob` is this worker's record of a job that one of the lane's scripts has handed out to it. The record is
 * created from the script's reply, and dropped when the worker sends the command that ends the job.
 *
 * A `TakenJob` has at most one lock, one run and one lock instruction. The lane looks it up by job ID; other modules
 * look it up by the BullMQ job.
 */
import type { Lock } from "@x/redlock-core";
import type { Instant } from "@x/redlock-core/kit";
import type { Run } from "../job-run/run.ts";
import { type Pin, parsePin, slotSuffix } from "../rules/entity-key.ts";
import { JobReply } from "../scripts/command-replies.ts";

/** Instruction for the command that ends a job: how to release the lock of the job's key. */
export type LockInstruction =
  /** The run has succeeded: the script releases the lock, and `onReply` passes the result to the run's `Lock`. */
  | { readonly kind: "release-held"; readonly token: string; readonly onReply: (isReleased: boolean) => void }
  /** BullMQ ends the job without a run: the script releases the lock that no run has claimed. */
  | { readonly kind: "release-unclaimed"; readonly token: string; readonly lockName: string }
  /** A request releases the lock, and asks for the lock of the key's next job. The script does nothing. */
  | { readonly kind: "requested-ahead"; readonly lock: RequestedLock };

/** The part of `KeyLocks` that the lane uses. */
export interface LaneLocks {
  /** Returns a token for the lock of the next job. Empty if the script must not acquire a lock. */
  newToken(): string;
  /** Releases a lock that no run has claimed, by a request. `lockName` is `TakenJob.lockName` of its job. */
  dropUnclaimed(lockName: string, token: string): void;
}

/** A lock requested for the next job of a key, in the turn of the event loop in which the current job releases it. */
export interface RequestedLock {
  /** Returns the lock to the first caller. Returns null to later callers, or if another process holds the lock. */
  claim(): Promise<Lock | null>;
  /** Keeps the lock for the job that came with the end of the current job, or drops it if the job has another key. */
  keepFor(next: TakenJob | undefined): void;
  /** Drops the request because no job needs the lock. Resolves when the lock is released. */
  drop(): Promise<void>;
}

/** Returns the token of the lock that the script is to release. Empty if the script is to release none. */
export function tokenToRelease(instruction: LockInstruction | undefined): string {
  return instruction === undefined || instruction.kind === "requested-ahead" ? "" : instruction.token;
}

/**
 * Settles an instruction when the command has been answered, or has failed. `isReleased` reports whether the script
 * released the lock; false if the reply was lost. `next` is the job that came in the same reply.
 */
export function settle(
  instruction: LockInstruction | undefined,
  isReleased: boolean,
  locks: Pick<LaneLocks, "dropUnclaimed">,
  next?: TakenJob,
): void {
  switch (instruction?.kind) {
    case "release-held":
      instruction.onReply(isReleased);
      break;
    case "release-unclaimed":
      if (!isReleased) locks.dropUnclaimed(instruction.lockName, instruction.token);
      break;
    case "requested-ahead":
      instruction.lock.keepFor(next);
      break;
    case undefined:
      break;
  }
}

/** Property of a BullMQ job that holds its `TakenJob`. */
const TAKEN_JOB = Symbol("taken job");
type MaybeTaken = object & { [TAKEN_JOB]?: TakenJob };

/** Returns the `TakenJob` that was attached to a BullMQ job, if any. */
export function takenJobOf(job: object): TakenJob | undefined {
  return (job as MaybeTaken)[TAKEN_JOB];
}

export class TakenJob extends JobReply {
  readonly pin: Pin;
  /** When the worker sent the command that set BullMQ's lock of the job. */
  readonly sent: Instant;
  /** Lock requested for this job when the previous job of its key ended. */
  requestedLock: RequestedLock | undefined;
  run: Run | undefined;
  #instruction: LockInstruction | undefined;
  /** Token of the lock that the script acquired together with the job. Empty if it acquired none, or once claimed. */
  #lockToken: string;

  constructor(raw: readonly unknown[], sent: Instant, lockToken: string) {
    super(raw);
    this.pin = parsePin(this.pinText);
    this.sent = sent;
    this.#lockToken = lockToken;
  }

  /** The lock's name without its prefix: the key, followed by the slot number unless the slot is the first. */
  get lockName(): string {
    return this.pinText + slotSuffix(this.slots?.[0]);
  }

  /**
   * The job's keys as an argument of the script that ends the job. With this argument the script passes the keys on
   * even if it cannot read them from the job. Empty if the script must read the keys itself. A script must do so for a
   * job that does not run, and for a key that decoding has changed, as invalid UTF-8.
   */
  get keysArgument(): string {
    const runs = (this.pin.kind === "keys" || this.pin.kind === "none") && this.outcome === undefined;
    return runs && !this.pinText.includes("\ufffd") ? `=${this.pinText}` : "";
  }

  /** Attaches this record to a BullMQ job, where `takenJobOf` finds it. */
  attachTo(job: object): void {
    (job as MaybeTaken)[TAKEN_JOB] = this;
  }

  /** Reports whether the job may have been taken with `token`. Any token is possible until the run has begun. */
  canHaveToken(token: string): boolean {
    return this.run === undefined || this.run.token === token;
  }

  /** Returns the token of the lock to the first caller, and "" to later callers. */
  claimLock(): string {
    const token = this.#lockToken;
    this.#lockToken = "";
    return token;
  }

  /** Leaves the instruction for the command that ends this job. The job has none yet. */
  leaveLockInstruction(instruction: LockInstruction): void {
    this.#instruction = instruction;
  }

  /** Removes and returns the instruction for the command that ends this job. */
  takeLockInstruction(): LockInstruction | undefined {
    const instruction = this.#instruction;
    const requested = this.requestedLock;
    this.#instruction = undefined;
    this.requestedLock = undefined;
    if (instruction !== undefined) {
      void requested?.drop();
      return instruction;
    }
    if (requested !== undefined) return { kind: "requested-ahead", lock: requested };
    const token = this.claimLock();
    return token === "" ? undefined : { kind: "release-unclaimed", token, lockName: this.lockName };
  }
}
