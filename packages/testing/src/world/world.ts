/**
 * The virtual world: true time, and the events in it. Machines, servers and the network are built on `at`.
 *
 * Events run one by one in the order of their time. After an event that runs client code, all due promise continuations
 * run before the next event, as in a turn of a real event loop.
 */
import { setImmediate } from "node:timers";
import { SeededRandom } from "./random.ts";

/** The start of the world's wall clocks: 2025-11-11T22:26:40Z. */
export const EPOCH_MS = 1_762_900_000_000;

interface Event {
  readonly atMs: number;
  readonly order: number;
  readonly run: () => void;
  cancelled: boolean;
}

export interface Violation {
  readonly invariant: string;
  readonly message: string;
  readonly atMs: number;
}

/** One line of the recorded run. */
export interface RecordedEvent {
  readonly atMs: number;
  /** A machine, a server, or "world". */
  readonly who: string;
  readonly kind: "fault" | "call" | "grant" | "loss" | "end" | "node" | "violation";
  readonly text: string;
}

export interface WorldOptions {
  readonly record: boolean;
  /** Default: a generator made from the seed. */
  readonly random?: SeededRandom;
  /** The time that wall clocks show at the start. Default `EPOCH_MS`. */
  readonly epochMs?: number;
}

export class World {
  readonly random: SeededRandom;
  /** The time that wall clocks show at the start, in ms since the Unix epoch. */
  readonly epochMs: number;
  /** Called when an event becomes due now while the world does not run. */
  onDue: (() => void) | undefined;
  readonly recordedEvents: RecordedEvent[] = [];
  readonly isRecording: boolean;
  #nowMs = 0;
  #order = 0;
  readonly #heap: Event[] = [];
  #ranClientCode = false;
  #violation: Violation | undefined;
  #isQuiet = false;
  #stalledMs = 0;
  #isRunning = false;
  #isStopped = false;
  eventCount = 0;

  constructor(seed: string, options: WorldOptions) {
    this.random = options.random ?? new SeededRandom(seed);
    this.isRecording = options.record;
    this.epochMs = options.epochMs ?? EPOCH_MS;
  }

  /** True time in ms since the start. */
  get nowMs(): number {
    return this.#nowMs;
  }

  get violation(): Violation | undefined {
    return this.#violation;
  }

  /** Whether no further faults occur. */
  get isQuiet(): boolean {
    return this.#isQuiet;
  }

  becomeQuiet(): void {
    this.#isQuiet = true;
  }

  /** Advances the time inside a handler, as between two readings of a clock. */
  pass(ms: number): void {
    this.#nowMs += ms;
  }

  /**
   * Advances the time as if the process froze in the middle of a handler. The actions of all others come after the
   * handler.
   */
  stall(ms: number): void {
    this.#nowMs += ms;
    this.#stalledMs += ms;
  }

  /** The total time of all stalls. */
  get stalledMs(): number {
    return this.#stalledMs;
  }

  /** Calls `run` at `atMs`, or now if this time is over. Returns a function that cancels the call. */
  at(atMs: number, run: () => void): () => void {
    const event: Event = { atMs: Math.max(atMs, this.#nowMs), order: this.#order, run, cancelled: false };
    this.#order += 1;
    this.#push(event);
    if (!this.#isRunning && event.atMs <= this.#nowMs) this.onDue?.();
    return () => {
      event.cancelled = true;
    };
  }

  /** Must be called before running code of a client. */
  noteClientCode(): void {
    this.#ranClientCode = true;
  }

  record(who: string, kind: RecordedEvent["kind"], text: () => string): void {
    if (this.isRecording) this.recordedEvents.push({ atMs: this.#nowMs, who, kind, text: text() });
  }

  violate(invariant: string, message: string): void {
    if (this.#violation !== undefined) return;
    this.#violation = { invariant, message, atMs: this.#nowMs };
    this.record("world", "violation", () => `${invariant}: ${message}`);
  }

  /**
   * Runs events until `endMs`, or until an invariant is violated. Calls `afterStep` after each event that ran client
   * code.
   */
  async run(endMs: number, afterStep: () => void): Promise<void> {
    this.#isRunning = true;
    this.#isStopped = false;
    try {
      await this.#runEvents(endMs, afterStep);
    } finally {
      this.#isRunning = false;
    }
    if (this.#violation === undefined && !this.#isStopped) this.#nowMs = Math.max(this.#nowMs, endMs);
  }

  /** Ends `run` after the current event. */
  stop(): void {
    this.#isStopped = true;
  }

  async #runEvents(endMs: number, afterStep: () => void): Promise<void> {
    await this.#endTurn(afterStep);
    while (this.#violation === undefined && !this.#isStopped) {
      const event = this.#heap[0];
      if (event === undefined || event.atMs > endMs) break;
      this.#pop();
      if (event.cancelled) continue;
      this.eventCount += 1;
      this.#nowMs = Math.max(this.#nowMs, event.atMs);
      event.run();
      if (this.#ranClientCode) await this.#endTurn(afterStep);
    }
  }

  async #endTurn(afterStep: () => void): Promise<void> {
    if (!this.#ranClientCode) return;
    this.#ranClientCode = false;
    await nextTurn();
    afterStep();
  }

  #push(event: Event): void {
    const heap = this.#heap;
    let at = heap.length;
    heap.push(event);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent];
      if (above === undefined || isBefore(above, event)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = event;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop();
    if (last === undefined || heap.length === 0) return;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      const [left, right] = [heap[child], heap[child + 1]];
      if (left === undefined) break;
      let least = left;
      if (right !== undefined && isBefore(right, left)) {
        least = right;
        child += 1;
      }
      if (isBefore(last, least)) break;
      heap[at] = least;
      at = child;
    }
    heap[at] = last;
  }
}

function isBefore(a: Event, b: Event): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}

let waiting: (() => void)[] = [];

/**
 * Ends a turn of the real event loop, so that all due promise continuations and `nextTick`s have run. Worlds that run
 * side by side share this turn, which saves time.
 */
function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    if (waiting.length === 0) setImmediate(release);
    waiting.push(resolve);
  });
}

function release(): void {
  const released = waiting;
  waiting = [];
  for (const resolve of released) resolve();
}
