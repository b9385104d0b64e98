/**
 * Interrupts a running job when a newer job with one of its keys is waiting (`whenBusy: "interrupt"`). The two jobs may
 * be in different processes.
 *
 * The lane stores a note with the older job and publishes the note. A message may be lost, or arrive before its job's
 * run starts. The IDs from the latest messages are therefore kept for runs that start later. The notes are also read
 * with each renewal of the jobs' locks.
 */
import type { Redlock } from "@x/redlock-core";
import { protocolOf } from "@x/redlock-core/protocol";
import { parsePin } from "../rules/entity-key.ts";

interface Superseded {
  readonly jobId: string;
  readonly key: string;
  readonly by: string;
}

interface InterruptsParts {
  /** A `Redlock` on the queue's own Redis. Closed together with this object, unless it is shared. */
  readonly redlock: Redlock;
  readonly isShared: boolean;
  readonly channel: string;
  /** Resolves with the note of each job, and with '' for a job without a note. */
  readonly readNotes: (jobIds: readonly string[]) => Promise<readonly string[]>;
  /** Interrupts the job's run. Returns whether the job is running in this process. */
  readonly onSuperseded: (superseded: Superseded) => boolean;
  readonly onError: (error: Error) => void;
}

/** Maximum number of job IDs that are kept for runs that have not started. */
const MAX_EARLY_IDS = 1_000;

export class Interrupts {
  readonly #parts: InterruptsParts;
  /**
   * IDs of superseded jobs that were not running in this process when the message arrived, but may start soon.
   */
  readonly #earlyIds = new Set<string>();
  readonly #subscribed: Promise<() => void>;
  #isStopped = false;

  constructor(parts: InterruptsParts) {
    this.#parts = parts;
    this.#subscribed = protocolOf(parts.redlock).subscribe(parts.channel, (message) => this.#onMessage(message));
    this.#subscribed.catch((error: Error) => {
      if (!this.#isStopped) parts.onError(error);
    });
  }

  /** Checks a job whose run starts, because a newer job may have superseded it since its fetch. */
  onRunStarted(jobId: string): void {
    if (this.#earlyIds.delete(jobId)) this.checkNotes([jobId]);
  }

  checkNotes(jobIds: readonly string[]): void {
    this.#readNotes(jobIds).catch((error: Error) => {
      if (!this.#isStopped) this.#parts.onError(error);
    });
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    const unsubscribe = await this.#subscribed.catch(() => undefined);
    unsubscribe?.();
    if (!this.#parts.isShared) await this.#parts.redlock.close();
  }

  async #readNotes(jobIds: readonly string[]): Promise<void> {
    const notes = await this.#parts.readNotes(jobIds);
    for (const [index, jobId] of jobIds.entries()) this.#interruptIfSuperseded(jobId, notes[index] ?? "");
  }

  #onMessage(message: string): void {
    const end = message.indexOf("\u001f");
    const jobId = message.slice(0, end);
    if (this.#interruptIfSuperseded(jobId, message.slice(end + 1))) return;
    this.#earlyIds.add(jobId);
    const [oldest] = this.#earlyIds;
    if (this.#earlyIds.size > MAX_EARLY_IDS && oldest !== undefined) this.#earlyIds.delete(oldest);
  }

  /** Interrupts the job if the note says that it is superseded. Returns whether the job is running in this process. */
  #interruptIfSuperseded(jobId: string, note: string): boolean {
    const pin = parsePin(note);
    return pin.kind === "dropped" && this.#parts.onSuperseded({ jobId, key: pin.key, by: pin.by });
  }
}
