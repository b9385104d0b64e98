/**
 * A line holds the callers of one process that want permits of one pool, and serves them first come, first served.
 *
 * While nobody waits, callers ask the nodes side by side, as long as all of them can be granted. As soon as one has to
 * wait, only the first caller of the line talks to the nodes. So the process has one place in the nodes' lines, and a
 * wait costs the nodes the same however many callers wait here.
 */
import type { Vote } from "@x/redlock-core";
import { LocalLine, type LocalWaiter, type Refusal } from "@x/redlock-core/protocol";
import type { Figures } from "./rules/answer.ts";

/** Why the nodes did not grant. */
export interface Refused {
  readonly refusal: Refusal;
  readonly votes: readonly Vote[];
  readonly figures: Figures;
}

export class PermitLine {
  readonly #callers: LocalLine;
  readonly #capacity: number;
  /** The permits that callers are asking the nodes for, side by side. */
  #asked = 0;
  /** The callers that were refused, or must wait for others. */
  #waiting = 0;
  /** The last refusal, for callers whose time is over before they are first. Undefined before any answer. */
  noted: Refused | undefined;

  constructor(name: string, capacity: number) {
    this.#callers = new LocalLine(name);
    this.#capacity = capacity;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /** Notes that this many permits are held here by now. Callers behind are not granted because others are. */
  noteGrant(permits: number): void {
    if (this.noted?.refusal === "held") return;
    this.noted = { refusal: "held", votes: [], figures: { used: permits, waiting: 0 } };
  }

  get isIdle(): boolean {
    return this.#callers.isIdle;
  }

  enter(permits: number): Caller {
    const mayAsk = this.#waiting === 0 && this.#asked + permits <= this.#capacity;
    return new Caller(this.#callers.enter(), mayAsk ? permits : 0, {
      ask: (count) => (this.#asked += count),
      wait: (count) => (this.#waiting += count),
    });
  }
}

/** Counts a caller in its line. */
interface Counts {
  ask(permits: number): void;
  wait(callers: number): void;
}

/** A call in the line of its process. */
export class Caller {
  readonly #place: LocalWaiter;
  readonly #counts: Counts;
  /** The permits that the caller asks for next to others; 0 once it waits for its turn. */
  #asked: number;

  constructor(place: LocalWaiter, asked: number, counts: Counts) {
    this.#place = place;
    this.#counts = counts;
    this.#asked = asked;
    if (asked > 0) counts.ask(asked);
    else counts.wait(1);
  }

  get isFirst(): boolean {
    return this.#place.isFirst;
  }

  /** Whether the caller may ask the nodes now: it is the first, or nobody waits before it. */
  get mayAsk(): boolean {
    return this.#asked > 0 || this.isFirst;
  }

  untilFirst(): Promise<void> {
    return this.#place.untilFirst();
  }

  /** The nodes have refused the caller: from now on it waits, and so do all who come later. */
  wait(): void {
    if (this.#asked === 0) return;
    this.#counts.ask(-this.#asked);
    this.#asked = 0;
    this.#counts.wait(1);
  }

  leave(): void {
    if (this.#asked > 0) this.#counts.ask(-this.#asked);
    else this.#counts.wait(-1);
    this.#place.leave();
  }
}
