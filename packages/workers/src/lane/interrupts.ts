/**
 * Interrupts a running job that was cancelled, or whose key a newer job waits for (`whenBusy: "interrupt"`). The call
 * of `cancel` and the newer job may be in other processes.
 *
 * The lane stores a note with the running job and publishes the note. A message may be lost, or arrive before its job's
 * run starts. The IDs from the latest messages are therefore kept for runs that start later. The notes are also read
 * with each renewal of the jobs' locks. The channel is subscribed when the first run starts, because a worker without
 * jobs needs no connection for it.
 */
import { type Pin, parsePin } from "../rules/entity-key.ts";

/** Why a running job must stop. */
type Note = Pin & { readonly kind: "dropped" | "cancelled" };

interface InterruptsParts {
  /** Subscribes to the notes of the queue. Resolves with a function that ends the subscription. */
  readonly subscribe: (onMessage: (message: string) => void) => Promise<() => Promise<void>>;
  /** Resolves with the note of each job, and with '' for a job without a note. */
  readonly readNotes: (jobIds: readonly string[]) => Promise<readonly string[]>;
  /** Interrupts the job's run. Returns whether the job is running in this process. */
  readonly onNote: (jobId: string, note: Note) => boolean;
  readonly onError: (error: Error) => void;
}

/** Maximum number of job IDs that are kept. */
const MAX_UNCHECKED_IDS = 1_000;

export class Interrupts {
  readonly #parts: InterruptsParts;
  /**
   * IDs of jobs with a note that were not running in this process when the message arrived, but may start soon. Until
   * the channel is subscribed, IDs of the jobs that run.
   */
  readonly #uncheckedIds = new Set<string>();
  #subscription: Promise<() => Promise<void>> | undefined;
  #isSubscribed = false;
  #isStopped = false;

  constructor(parts: InterruptsParts) {
    this.#parts = parts;
  }

  /** Checks a job whose run starts, because it may have received a note since its fetch. */
  onRunStarted(jobId: string): void {
    this.#subscription ??= this.#subscribe();
    if (!this.#isSubscribed) this.#keep(jobId);
    else if (this.#uncheckedIds.delete(jobId)) this.checkNotes([jobId]);
  }

  checkNotes(jobIds: readonly string[]): void {
    this.#readNotes(jobIds).catch((error: Error) => {
      if (!this.#isStopped) this.#parts.onError(error);
    });
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    const unsubscribe = await this.#subscription?.catch(() => undefined);
    await unsubscribe?.();
  }

  #subscribe(): Promise<() => Promise<void>> {
    const { subscribe, onError } = this.#parts;
    const subscription = subscribe((message) => this.#onMessage(message));
    subscription.then(
      () => {
        this.#isSubscribed = true;
        this.checkNotes([...this.#uncheckedIds]);
        this.#uncheckedIds.clear();
      },
      (error: Error) => {
        if (!this.#isStopped) onError(error);
      },
    );
    return subscription;
  }

  async #readNotes(jobIds: readonly string[]): Promise<void> {
    const notes = await this.#parts.readNotes(jobIds);
    for (const [index, jobId] of jobIds.entries()) this.#interrupt(jobId, notes[index] ?? "");
  }

  #onMessage(message: string): void {
    const end = message.indexOf("\u001f");
    const jobId = message.slice(0, end);
    if (this.#interrupt(jobId, message.slice(end + 1))) return;
    this.#keep(jobId);
  }

  #keep(jobId: string): void {
    this.#uncheckedIds.add(jobId);
    const [oldest] = this.#uncheckedIds;
    if (this.#uncheckedIds.size > MAX_UNCHECKED_IDS && oldest !== undefined) this.#uncheckedIds.delete(oldest);
  }

  /** Interrupts the job if the text is a note. Returns whether the job is running in this process. */
  #interrupt(jobId: string, text: string): boolean {
    const note = parsePin(text);
    return (note.kind === "dropped" || note.kind === "cancelled") && this.#parts.onNote(jobId, note);
  }
}
