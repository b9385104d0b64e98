/**
 * Writes the outcomes of one term's ticks to the lock nodes, next to the register. The leader keeps no history in
 * memory, so a history survives its leader, and ten thousand histories need no memory.
 *
 * Guaranteed: ticks do not wait for the recorder. Each node gets one request a second, or one for each `MOST_LINES`
 * ticks. After a second without a write, the next line is written immediately. The history therefore shows the
 * beginning of a rare tick even if the process dies in the handler.
 *
 * Not guaranteed: that every line is written. If a process dies, the lines of its last second are lost. A term that is
 * over still writes its lines, because they describe the past.
 */
import type { Clock } from "@x/redlock-core";
import type { Emitter } from "@x/redlock-core/kit";
import type { SchedulerEvents } from "./events.ts";
import { Outage } from "./outage.ts";
import type { RegisterStore } from "./register-store.ts";
import { errorText, keyOf, lineOf, type PastTick } from "./rules/history.ts";
import { type Tick, tickId } from "./tick.ts";

interface RecorderParts {
  readonly store: RegisterStore;
  readonly clock: Clock;
  readonly events: Emitter<SchedulerEvents>;
  readonly term: number;
  /** The greatest number of ticks in the history of each schedule. */
  readonly kept: number;
  /** Returns the time of a schedule's next tick. Undefined if the time is not known. */
  readonly nextOf: (name: string) => number | undefined;
}

const EVERY_MS = 1_000;
/** The greatest number of lines in one request. Each line blocks a node for about 8 µs. */
const MOST_LINES = 100;
/** The greatest number of lines that wait while no quorum answers. Older lines are dropped. */
const MOST_PENDING = 10_000;

interface Pending {
  readonly name: string;
  readonly pastTick: PastTick;
}

export class Recorder {
  readonly #parts: RecorderParts;
  readonly #unsubscribe: readonly (() => void)[];
  /** Lines to write, in the order of the events. The end of a tick replaces its beginning. */
  #pending = new Map<string, Pending>();
  #nextMs = 0;
  #cancel: (() => void) | undefined;
  #writing: Promise<void> | undefined;
  #isOver = false;
  readonly #outage: Outage;

  constructor(parts: RecorderParts) {
    this.#parts = parts;
    const { events, clock, term } = parts;
    this.#outage = new Outage((error) => events.emit("error", error));
    const about = (tick: Tick): Omit<PastTick, "outcome"> => ({
      suffix: tick.id.slice(tickId(tick.schedule, tick.scheduledAt.getTime()).length + 1),
      scheduledAtMs: tick.scheduledAt.getTime(),
      lateMs: tick.firedAt.getTime() - tick.scheduledAt.getTime(),
      attempt: tick.attempt,
      term,
    });
    this.#unsubscribe = [
      events.on("tickStarted", (tick) => this.#add(tick.schedule, { ...about(tick), outcome: "running" })),
      events.on("tickCompleted", ({ tick, tookMs }) =>
        this.#add(tick.schedule, { ...about(tick), outcome: "run", tookMs: Math.round(tookMs) }),
      ),
      events.on("tickFailed", ({ tick, tookMs, error }) =>
        this.#add(tick.schedule, {
          ...about(tick),
          outcome: "failed",
          tookMs: Math.round(tookMs),
          error: errorText(error),
        }),
      ),
      events.on("tickSkipped", ({ schedule, scheduledAt, reason }) =>
        this.#add(schedule, { outcome: "skipped", scheduledAtMs: scheduledAt.getTime(), term, reason }),
      ),
      events.on("ticksMissed", ({ schedule, count }) =>
        this.#add(schedule, { outcome: "missed", scheduledAtMs: Math.floor(clock.wallMs()), term, count }),
      ),
    ];
  }

  /** Writes the waiting lines, with one attempt for each batch. Never rejects. */
  async end(): Promise<void> {
    for (const each of this.#unsubscribe) each();
    await this.#writing;
    this.#isOver = true;
    this.#cancel?.();
    while (this.#pending.size > 0) if (!(await this.#write())) return;
  }

  #add(name: string, pastTick: PastTick): void {
    // The time is part of the key here: two skipped ticks may have a run between them, which only the nodes' order
    // shows.
    const key = `${name}:${keyOf(pastTick)}:${pastTick.scheduledAtMs}`;
    this.#pending.delete(key);
    this.#pending.set(key, { name, pastTick });
    if (this.#pending.size > MOST_PENDING) this.#pending.delete(this.#pending.keys().next().value ?? "");
    this.#plan();
  }

  #plan(): void {
    if (this.#isOver || this.#cancel !== undefined || this.#writing !== undefined || this.#pending.size === 0) return;
    const { clock } = this.#parts;
    this.#cancel = clock.schedule(Math.max(0, this.#nextMs - clock.monotonicMs()), () => {
      this.#cancel = undefined;
      this.#nextMs = clock.monotonicMs() + EVERY_MS;
      this.#writing = this.#write().then((isWritten) => {
        this.#writing = undefined;
        if (isWritten && this.#pending.size >= MOST_LINES) this.#nextMs = 0;
        this.#plan();
      });
    });
  }

  /** Resolves with false if too few nodes answered. Never rejects. */
  async #write(): Promise<boolean> {
    const { store, kept, nextOf } = this.#parts;
    const batch = [...this.#pending].slice(0, MOST_LINES);
    for (const [key] of batch) this.#pending.delete(key);
    try {
      await store.record(
        batch.map(([, { name, pastTick }]) => ({
          name,
          key: keyOf(pastTick),
          line: lineOf(pastTick, nextOf(name)),
        })),
        kept,
      );
      this.#outage.ended();
      return true;
    } catch (error) {
      this.#pending = new Map([...batch.filter(([key]) => !this.#pending.has(key)), ...this.#pending]);
      this.#outage.failed(error);
      return false;
    }
  }
}
