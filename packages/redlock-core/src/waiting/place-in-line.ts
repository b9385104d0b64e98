/**
 * Place of a call in the lines of the nodes: the time at which the call began, by the nodes' clocks. A call gets a
 * place when it is refused, and joins the lines with the first attempt after `join`.
 */

import type { CallDeadline } from "../kit/deadlines.ts";
import type { RoundEngine } from "../rounds/round-engine.ts";
import type { Target } from "../rules/operation.ts";
import type { Hints } from "./hints.ts";
import { Waiter } from "./waiter.ts";

export class PlaceInLine {
  readonly #engine: RoundEngine;
  readonly #hints: Hints;
  readonly #target: Target;
  readonly #startedWallMs: number;
  readonly #isGiven: boolean;
  #place: number;
  #waiter: Waiter | undefined;
  /** Whether an attempt was made with the waiter, so that lines of nodes may contain the waiter. */
  #mayBeEnrolled = false;

  constructor(
    engine: RoundEngine,
    hints: Hints,
    request: { readonly target: Target; readonly startedWallMs: number; readonly given?: number | undefined },
  ) {
    this.#engine = engine;
    this.#hints = hints;
    this.#target = request.target;
    this.#startedWallMs = request.startedWallMs;
    this.#isGiven = request.given !== undefined;
    this.#place = request.given ?? engine.fencingClock.place(request.startedWallMs);
  }

  /** Place in microseconds by the nodes' clocks. Waiters with a greater place come later. */
  get place(): number {
    return this.#place;
  }

  /** Returns the waiter that an attempt enrols, and forgets hints from before the attempt. Undefined before `join`. */
  waiterForAttempt(): Waiter | undefined {
    this.#waiter?.reset();
    this.#mayBeEnrolled = this.#waiter !== undefined;
    return this.#waiter;
  }

  /** Gives further attempts a name in the lines of the nodes. */
  join(): Waiter {
    if (this.#waiter !== undefined) return this.#waiter;
    const { fencingClock } = this.#engine;
    if (!this.#isGiven) this.#place = fencingClock.correctPlace(this.#place, this.#startedWallMs);
    this.#waiter = new Waiter(this.#engine, this.#hints, this.#target, this.#place);
    return this.#waiter;
  }

  /** Joins the lines if the nodes can wake this process. */
  joinIfOpen(): void {
    if (this.#hints.isOpen) this.join();
  }

  /**
   * Waits for the turn after an attempt was refused because the lock is held. Calls `sleep` instead if too few nodes
   * can wake this process.
   */
  async untilTurn(freeInMs: readonly number[], deadline: CallDeadline, sleep: () => Promise<void>): Promise<void> {
    const hints = this.#hints;
    if (this.#waiter === undefined) {
      if (!hints.isOpen) await deadline.until(hints.open());
      this.join();
      if (hints.isOpen) return;
    }
    if (hints.isOpen) await this.join().untilTurn(freeInMs, deadline);
    else await sleep();
  }

  /** Called after a grant, with which the nodes have removed the waiter from their lines. */
  onGranted(): void {
    this.#mayBeEnrolled = false;
  }

  /** Leaves the lines. Does nothing if the call has left already. */
  leave(): void {
    if (this.#mayBeEnrolled) this.#waiter?.leave();
    else this.#waiter?.close();
    this.#mayBeEnrolled = false;
    this.#waiter = undefined;
  }
}
