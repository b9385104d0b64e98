/**
 * The virtual world: true time and the events in it. Everything else (machines, servers, the network) is built on `at`.
 *
 * Events run one after the other in the order of their time. After each one that runs client code, all promise
 * continuations that it made due have run before the next begins. So it is in a turn of a real event loop.
 */
import { setImmediate } from "node:timers";
import { SeededRandom } from "./random.ts";

/** Wednesday 2025-11-12: where the world's wall clocks start. */
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
export interface Happening {
  readonly atMs: number;
  /** Who: a machine, a server, or "world". */
  readonly who: string;
  readonly kind: "fault" | "call" | "grant" | "loss" | "end" | "node" | "violation";
  readonly text: string;
}

export interface WorldOptions {
  readonly record: boolean;
  /** Default: drawn from the seed. */
  readonly random?: SeededRandom;
  /** The time at which wall clocks start. Default `EPOCH_MS`. */
  readonly epochMs?: number;
}

export class World {
  readonly random: SeededRandom;
  /** What wall clocks show at the start, in ms since the Unix epoch. */
  readonly epochMs: number;
  /** Is called when an event is due now while the world stands still. */
  onDue: (() => void) | undefined;
  readonly happenings: Happening[] = [];
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

  /** Whether there are no faults any more. */
  get isQuiet(): boolean {
    return this.#isQuiet;
  }

  becomeQuiet(): void {
    this.#isQuiet = true;
  }

  /** Time passes inside a handler, too, between two reads of a clock. */
  pass(ms: number): void {
    this.#nowMs += ms;
  }

  /** A process is frozen half way through a handler; what the others do meanwhile, they do afterwards. */
  stall(ms: number): void {
    this.#nowMs += ms;
    this.#stalledMs += ms;
  }

  /** The time for which all stalls together held everybody up. */
  get stalledMs(): number {
    return this.#stalledMs;
  }

  /** Calls `run` at `atMs`, or now if that is over; returns what cancels it. */
  at(atMs: number, run: () => void): () => void {
    const event: Event = { atMs: Math.max(atMs, this.#nowMs), order: this.#order, run, cancelled: false };
    this.#order += 1;
    this.#push(event);
    if (!this.#isRunning && event.atMs <= this.#nowMs) this.onDue?.();
    return () => {
      event.cancelled = true;
    };
  }

  /** Is to be called by whoever runs code of a client. */
  noteClientCode(): void {
    this.#ranClientCode = true;
  }

  tell(who: string, kind: Happening["kind"], text: () => string): void {
    if (this.isRecording) this.happenings.push({ atMs: this.#nowMs, who, kind, text: text() });
  }

  violate(invariant: string, message: string): void {
    if (this.#violation !== undefined) return;
    this.#violation = { invariant, message, atMs: this.#nowMs };
    this.tell("world", "violation", () => `${invariant}: ${message}`);
  }

  /** Runs events until `endMs`, or until an invariant is violated. `afterStep` runs when client code has run. */
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

  /** Ends `run` after the event of this moment. */
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
 * Ends a turn of the real event loop: all promise continuations and `nextTick`s that are due have run. Worlds that run
 * side by side share it, which makes a turn of the event loop cheap.
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
