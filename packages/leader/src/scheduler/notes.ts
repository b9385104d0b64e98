/**
 * What the nodes note of at-least-once ticks: which of them are to run, so that a leader which follows runs them again, and which have
 * ended, so that it does not.
 *
 * Guaranteed: no note is taken away of a tick that may still run in this term. Not guaranteed: that a node which is away is told;
 * it is once its stray notes are seen (`tidy`).
 */
import type { Clock } from "@x/redlock-core";
import type { Audience, NamedTick } from "./report.ts";
import { type Claim, noteOf, type PendingTick, type RunningTick, type TickStore } from "./store.ts";

export interface NotesParts extends Audience {
  readonly store: TickStore;
  readonly clock: Clock;
}

export class Notes {
  readonly #parts: NotesParts;
  /** Ticks that are to run, here or, if this term ends before, in the next one: what else is noted as running is not. */
  readonly #live = new Map<string, PendingTick>();
  /** Ticks whose claim was sent: nodes may have noted them before it is known whether they run. */
  readonly #asked = new Map<string, PendingTick>();
  readonly #ended: NamedTick[] = [];
  #flushing: Promise<void> | undefined;

  constructor(parts: NotesParts) {
    this.#parts = parts;
  }

  /** Ticks have ended of which the nodes are not told yet. */
  get hasEnded(): boolean {
    return this.#ended.length > 0;
  }

  /** Ticks that are to run, whether any node has noted them or not. */
  live(): readonly PendingTick[] {
    return [...this.#live.values()];
  }

  mayRun(tick: NamedTick): boolean {
    const note = noteOf(tick);
    return this.#live.has(note) || this.#asked.has(note);
  }

  /** Called before the claims are sent. */
  ask(claims: readonly Claim[]): void {
    for (const claim of claims) if (claim.mode === "least") this.#asked.set(noteOf(claim), claim);
  }

  /** The tick is to run, after an earlier leader's attempt or session. */
  keep(tick: PendingTick): void {
    this.#live.set(noteOf(tick), tick);
  }

  /** The claim of the tick was granted. */
  claimed(tick: PendingTick): void {
    if (this.#asked.delete(noteOf(tick))) this.keep(tick);
  }

  /** Ticks that their schedule has left behind are not claimed again, and do not run. */
  settle(accountedMsOf: (name: string) => number | undefined): void {
    for (const [note, tick] of this.#asked) {
      if (tick.atMs > (accountedMsOf(tick.name) ?? tick.atMs)) continue;
      this.#asked.delete(note);
      this.end(tick);
    }
  }

  /** No leader is to run it any more. The nodes are told soon, with all that end in the same moment. */
  end({ name, atMs }: NamedTick): void {
    this.#live.delete(noteOf({ name, atMs }));
    this.#ended.push({ name, atMs });
    this.#parts.clock.defer(() => void this.flush().catch((error: unknown) => this.#parts.events.emit("error", error)));
  }

  /** Ends what `noted` has and cannot run: a node has missed the end of it, or of its claim, and a later leader would run it again. */
  tidy(noted: readonly RunningTick[], isOurs: (tick: RunningTick) => boolean): void {
    for (const tick of noted) if (!this.mayRun(tick) && isOurs(tick)) this.end(tick);
  }

  /** Tells the nodes what has ended, one request at a time. What fails is told with the next call. @throws QuorumUnreachableError */
  async flush(): Promise<void> {
    while (this.#flushing !== undefined) await this.#flushing;
    // What looked as if it had ended may have been claimed since.
    const batch = this.#ended.splice(0).filter((tick) => !this.mayRun(tick));
    if (batch.length === 0) return;
    const { term, store } = this.#parts;
    const flushing = store.finish(term.term, batch).then(() => undefined);
    this.#flushing = flushing.catch(() => undefined);
    try {
      await flushing;
    } catch (error) {
      this.#ended.push(...batch);
      throw error;
    } finally {
      this.#flushing = undefined;
    }
  }
}
