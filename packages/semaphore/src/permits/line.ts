/**
 * A line contains the callers of one process that want permits of one pool. The line serves callers first come, first
 * served.
 *
 * While nobody waits, callers send requests in parallel, as long as the pool could grant all requests. As soon as a
 * caller waits, only the first caller of the line sends requests. So the process has one place in the nodes' lines, and
 * a wait costs the nodes the same for any number of callers.
 */
import type { Vote } from "@x/redlock-core";
import { LocalLine, type LocalWaiter, type Refusal } from "@x/redlock-core/protocol";
import type { Figures } from "./rules/answer.ts";

/** Why the nodes did not grant. */
export interface RefusedPermits {
  readonly refusal: Refusal;
  readonly votes: readonly Vote[];
  readonly figures: Figures;
}

/** The refusal of a call that ends before the nodes have answered any caller of its line. */
export const UNANSWERED: RefusedPermits = { refusal: "unreachable", votes: [], figures: { used: 0, waiting: 0 } };

export class PermitLine {
  readonly #callers: LocalLine;
  readonly #capacity: number;
  /** Number of permits in the requests that callers send in parallel. */
  #asked = 0;
  /** Number of callers that were refused or wait for their turn. */
  #waiting = 0;
  /** Last refusal, reported to callers whose timeout ends before their turn. Undefined before the first reply. */
  noted: RefusedPermits | undefined;

  constructor(name: string, capacity: number) {
    this.#callers = new LocalLine(name);
    this.#capacity = capacity;
  }

  get waiting(): number {
    return this.#waiting;
  }

  /** Records a grant of `permits` as the reason why the callers behind still wait. */
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

/** Place of one call in the line of its process. */
export class Caller {
  readonly #place: LocalWaiter;
  readonly #counts: Counts;
  /** Number of permits in the parallel request of the caller. 0 once the caller waits for its turn. */
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

  /** Whether the caller may send a request now: the caller is first in line, or entered while nobody waited. */
  get mayAsk(): boolean {
    return this.#asked > 0 || this.isFirst;
  }

  untilFirst(): Promise<void> {
    return this.#place.untilFirst();
  }

  /** Called when the nodes have refused the caller. From now on this caller and all later callers wait. */
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
