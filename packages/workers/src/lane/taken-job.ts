/**
 * A `TakenJob` is what this worker knows of a job that a script has handed out to it. It is made of the reply that
 * brings the job, and leaves with the command that ends it.
 *
 * It has the lock that came with the job, its run, and what the end of the job is to do. Of each of these it has one at
 * most. The lane finds it by the id of its job, and everybody else by the job.
 */
import type { Lock } from "@x/redlock-core";
import type { Instant } from "@x/redlock-core/protocol";
import type { Run } from "../job-run/run.ts";
import { type Pin, parsePin, slotSuffix } from "../rules/entity-key.ts";
import { JobReply } from "../scripts/command-replies.ts";

/** An ending is what the script that ends the job is to do with the lock of its key. */
export interface Ending {
  /** The token of the lock, which is to be released; empty if the script is to release none. */
  readonly token: string;
  /**
   * Is told whether the script released the lock; false if none did, or if that is not known. `next` is the job that
   * came with the end.
   */
  readonly answer: { settle(isReleased: boolean, next?: TakenJob): void };
}

/** What the locks of keys have asked for on behalf of a key's next job. It is the ending of the job before, too. */
export interface AskedAhead extends Ending {
  /** Returns the lock to the one who asks first, and null to all others, or if somebody else has it. */
  claim(): Promise<Lock | null>;
  /** Gives up the lock, which nobody needs. Resolves when it is released. */
  drop(): Promise<void>;
}

/** A job has under this symbol as what it was taken. */
const TAKEN = Symbol("taken");
type Known = object & { [TAKEN]?: TakenJob };

/** Returns as what the job was taken, if that is known. */
export function takenAs(job: object): TakenJob | undefined {
  return (job as Known)[TAKEN];
}

export class TakenJob extends JobReply {
  readonly pin: Pin;
  /** When the command was sent that set BullMQ's lock of the job. */
  readonly sent: Instant;
  /** The lock that was asked for ahead, when the job before it ended. */
  ahead: AskedAhead | undefined;
  run: Run | undefined;
  ending: Ending | undefined;
  /** The token of the lock that the script took with the job; empty if it took none, or somebody has that. */
  #lockToken: string;

  constructor(raw: readonly unknown[], sent: Instant, lockToken: string) {
    super(raw);
    this.pin = parsePin(this.pinText);
    this.sent = sent;
    this.#lockToken = lockToken;
  }

  /** Its key, if it has one, and its slot of it, as they stand in the name of the lock. */
  get lockName(): string {
    return this.pinText + slotSuffix(this.slots?.[0]);
  }

  /**
   * Its keys for the script that ends it, so that no read that fails keeps them from the next job. It is empty if the
   * script has to read them. The job may not have run, and bytes that are no UTF-8 come here as other ones.
   */
  get toldKeys(): string {
    const runs = (this.pin.kind === "keys" || this.pin.kind === "none") && this.outcome === undefined;
    return runs && !this.pinText.includes("\ufffd") ? `=${this.pinText}` : "";
  }

  /** Ties this to the job, for `takenAs`. */
  is(job: object): void {
    (job as Known)[TAKEN] = this;
  }

  /** Tells whether the job was taken with this token. Before its run begins, that is not known, and it is true. */
  isOf(token: string): boolean {
    return this.run === undefined || this.run.token === token;
  }

  /** Returns the token of the lock that came with the job to the one who asks first, and "" to all others. */
  claimLock(): string {
    const token = this.#lockToken;
    this.#lockToken = "";
    return token;
  }
}
