/**
 * A job that runs is told when a newer one of its keys waits (`whenBusy: "interrupt"`), in whatever process.
 *
 * The lane notes it with the job, and publishes it. A message may be lost, or come before the run that it is about. So
 * what came lately is kept for runs that begin, and the notes are looked at with every renewal of the jobs' locks.
 */
import type { Redlock } from "@x/redlock-core";
import { protocolOf } from "@x/redlock-core/protocol";
import { parsePin } from "../rules/entity-key.ts";

/** One that has given way to a newer job. */
interface Superseded {
  readonly jobId: string;
  readonly key: string;
  readonly by: string;
}

interface InterruptsParts {
  /** The `Redlock` is on the queue's own Redis. It is closed with this, unless it is shared. */
  readonly redlock: Redlock;
  readonly isShared: boolean;
  readonly channel: string;
  /** Resolves with the note of each job, or ''. */
  readonly ask: (jobIds: readonly string[]) => Promise<readonly string[]>;
  /** Returns whether the job runs here. */
  readonly onSuperseded: (superseded: Superseded) => boolean;
  readonly onError: (error: Error) => void;
}

/** The most ids that are kept for runs that have not begun. */
const MOST_KEPT = 1_000;

export class Interrupts {
  readonly #parts: InterruptsParts;
  /** Ids of jobs that did not run here when they were superseded: they may be about to. */
  readonly #kept = new Set<string>();
  readonly #subscribed: Promise<() => void>;
  #isStopped = false;

  constructor(parts: InterruptsParts) {
    this.#parts = parts;
    this.#subscribed = protocolOf(parts.redlock).subscribe(parts.channel, (message) => this.#hear(message));
    this.#subscribed.catch((error: Error) => {
      if (!this.#isStopped) parts.onError(error);
    });
  }

  /** Notes that a run of this job begins, which may have been superseded since its fetch. */
  begins(jobId: string): void {
    if (this.#kept.delete(jobId)) this.lookAt([jobId]);
  }

  /** Looks at the notes of jobs that run. */
  lookAt(jobIds: readonly string[]): void {
    this.#look(jobIds).catch((error: Error) => {
      if (!this.#isStopped) this.#parts.onError(error);
    });
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    const unsubscribe = await this.#subscribed.catch(() => undefined);
    unsubscribe?.();
    if (!this.#parts.isShared) await this.#parts.redlock.close();
  }

  async #look(jobIds: readonly string[]): Promise<void> {
    const notes = await this.#parts.ask(jobIds);
    for (const [index, jobId] of jobIds.entries()) this.#note(jobId, notes[index] ?? "");
  }

  #hear(message: string): void {
    const end = message.indexOf("\u001f");
    const jobId = message.slice(0, end);
    if (this.#note(jobId, message.slice(end + 1))) return;
    this.#kept.add(jobId);
    const [oldest] = this.#kept;
    if (this.#kept.size > MOST_KEPT && oldest !== undefined) this.#kept.delete(oldest);
  }

  /** Returns whether the job runs here. */
  #note(jobId: string, note: string): boolean {
    const pin = parsePin(note);
    return pin.kind === "dropped" && this.#parts.onSuperseded({ jobId, key: pin.key, by: pin.by });
  }
}
