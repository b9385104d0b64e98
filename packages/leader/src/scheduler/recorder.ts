/**
 * Writes down what becomes of the ticks of one term, on the lock nodes, beside the register. The leader keeps none of
 * it: a history survives its leader, and ten thousand of them take no memory of a process.
 *
 * Guaranteed: nothing waits for it, and it costs each node one request a second, or one for each `MOST_LINES` ticks.
 * What is told after a quiet second is written at once. So the beginning of a rare tick is known though the process
 * dies in its handler.
 *
 * Not guaranteed: that everything is written. A process that dies takes the last second with it. A term that is over
 * writes, too: what it tells has happened.
 */
import type { Clock } from "@x/redlock-core";
import type { Emitter } from "@x/redlock-core/protocol";
import type { SchedulerEvents } from "./events.ts";
import { Outage } from "./outage.ts";
import { errorText, type Happening, keyOf, lineOf } from "./rules/history.ts";
import type { Store } from "./store.ts";
import { type Tick, tickId } from "./tick.ts";

interface RecorderParts {
  readonly store: Store;
  readonly clock: Clock;
  readonly events: Emitter<SchedulerEvents>;
  readonly term: number;
  /** The number of ticks of each schedule that are kept. */
  readonly kept: number;
  /** Returns when a schedule is due next, as far as that is known. */
  readonly nextOf: (name: string) => number | undefined;
}

const EVERY_MS = 1_000;
/** One request has so many lines, each of which blocks a node for about 8 µs. */
const MOST_LINES = 100;
/** The most lines that wait while no quorum answers; older ones are forgotten. */
const MOST_PENDING = 10_000;

interface Pending {
  readonly name: string;
  readonly happening: Happening;
}

export class Recorder {
  readonly #parts: RecorderParts;
  readonly #unsubscribe: readonly (() => void)[];
  /** The lines wait in the order in which they happened; the end of a tick replaces its beginning. */
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
    const about = (tick: Tick): Omit<Happening, "outcome"> => ({
      suffix: tick.id.slice(tickId(tick.schedule, tick.scheduledAt.getTime()).length + 1),
      scheduledAtMs: tick.scheduledAt.getTime(),
      lateMs: tick.firedAt.getTime() - tick.scheduledAt.getTime(),
      attempt: tick.attempt,
      term,
    });
    this.#unsubscribe = [
      events.on("tick", (tick) => this.#add(tick.schedule, { ...about(tick), outcome: "running" })),
      events.on("tickDone", ({ tick, tookMs }) =>
        this.#add(tick.schedule, { ...about(tick), outcome: "run", tookMs: Math.round(tookMs) }),
      ),
      events.on("tickError", ({ tick, tookMs, error }) =>
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
      events.on("missed", ({ schedule, count }) =>
        this.#add(schedule, { outcome: "missed", scheduledAtMs: Math.floor(clock.wallMs()), term, count }),
      ),
    ];
  }

  /** Writes what is left, once. Never rejects. */
  async end(): Promise<void> {
    for (const each of this.#unsubscribe) each();
    await this.#writing;
    this.#isOver = true;
    this.#cancel?.();
    while (this.#pending.size > 0) if (!(await this.#write())) return;
  }

  #add(name: string, happening: Happening): void {
    // The nodes make one line of those in a row that are alike; between these here, a tick may have run.
    const key = `${name}:${keyOf(happening)}:${happening.scheduledAtMs}`;
    this.#pending.delete(key);
    this.#pending.set(key, { name, happening });
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

  /** Resolves false if too few nodes answered, and never rejects. */
  async #write(): Promise<boolean> {
    const { store, kept, nextOf } = this.#parts;
    const batch = [...this.#pending].slice(0, MOST_LINES);
    for (const [key] of batch) this.#pending.delete(key);
    try {
      await store.record(
        batch.map(([, { name, happening }]) => ({
          name,
          key: keyOf(happening),
          line: lineOf(happening, nextOf(name)),
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
