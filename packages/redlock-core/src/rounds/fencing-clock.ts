/**
 * Remembers the fencing tokens and clocks in answers of nodes. `FencingClock` improves the first guess of a ballot for
 * several nodes. `GrantNumbers` keeps the numbers of a node alone.
 */

import type { Random } from "../kit/random.ts";
import { CLAMP_US, DIGITS_PER_PROCESS, nextBallot } from "../rules/ballot.ts";
import { digits, isNumber } from "../rules/operation.ts";
import { median } from "../rules/quorum.ts";
import { NO_NUMBER } from "./batch-request.ts";

/**
 * Number of remembered resources, which take about a megabyte. A forgotten resource costs at most one more round trip.
 */
const MAX_RESOURCES = 10_000;

export class FencingClock {
  /** Tokens of nodes that were not below a ballot of this process. A clock is or was wrong then, so they are rare. */
  readonly #lastSeen = new Map<string, number>();
  readonly #processDigits: number;
  #offsetUs = 0;
  /** Latest ballot that this process has proposed by its clock, for any resource. */
  #lastProposed = 0;

  constructor(random: Random) {
    this.#processDigits = Math.floor(random.fraction() * DIGITS_PER_PROCESS);
  }

  /** Returns a ballot above all ballots proposed before, and above all tokens seen for these resources. */
  ballot(resources: readonly string[], wallMs: number): number {
    this.#lastProposed = this.#ballotAbove(this.#lastProposed, wallMs);
    if (this.#lastSeen.size === 0) return this.#lastProposed;
    let lastSeen = 0;
    for (const resource of resources) lastSeen = Math.max(lastSeen, this.#lastSeen.get(resource) ?? 0);
    if (lastSeen < this.#lastProposed) return this.#lastProposed;
    const ballot = this.#ballotAbove(lastSeen, wallMs);
    this.see(resources, ballot);
    return ballot;
  }

  #ballotAbove(lastSeen: number, wallMs: number): number {
    return nextBallot({ lastSeen, wallMs, offsetUs: this.#offsetUs, processDigits: this.#processDigits });
  }

  /**
   * Returns the place in the line for a caller that arrives now: microseconds by the nodes' clocks, as far as known.
   */
  place(wallMs: number): number {
    return Math.max(0, Math.floor(wallMs * 1_000 + this.#offsetUs));
  }

  /**
   * Returns the corrected place of a caller that arrived when the clock showed `wallMs`. The place changes if a refusal
   * in the meantime has shown that the clock is wrong. Differences up to `CLAMP_US` are noise of the measurement, and
   * ignored.
   */
  correctPlace(place: number, wallMs: number): number {
    const corrected = this.place(wallMs);
    return Math.abs(corrected - place) > CLAMP_US ? corrected : place;
  }

  /** Records that a node stores a fencing token that is not below the ballot. */
  see(resources: readonly string[], fencingToken: number): void {
    for (const resource of resources) {
      const before = this.#lastSeen.get(resource) ?? 0;
      if (fencingToken <= before) continue;
      if (before > 0) this.#lastSeen.delete(resource);
      this.#lastSeen.set(resource, fencingToken);
    }
    if (this.#lastSeen.size <= MAX_RESOURCES) return;
    for (const oldest of this.#lastSeen.keys()) {
      if (this.#lastSeen.size <= MAX_RESOURCES) break;
      this.#lastSeen.delete(oldest);
    }
  }

  /**
   * Corrects the offset of the clock by the nodes' times in the answers to an attempt. By the local clock the attempt
   * began at `askedMs` and ended at `wallMs`.
   *
   * The nodes read their clocks in between. If the current offset is possible, it is kept, because answers that are
   * read late would shift it.
   */
  seeNodeTimes(nodeTimesUs: readonly number[], askedMs: number, wallMs: number): void {
    if (nodeTimesUs.length === 0) return;
    const nodeUs = median(nodeTimesUs);
    const leastUs = nodeUs - wallMs * 1_000;
    if (this.#offsetUs < leastUs || this.#offsetUs > nodeUs - askedMs * 1_000) this.#offsetUs = leastUs;
    // The latest ballot was proposed by a clock that was ahead. The nodes would also refuse larger ballots.
    if (this.#lastProposed > this.place(wallMs) + CLAMP_US) this.#lastProposed = 0;
  }
}

/**
 * Numbers that a node alone gave to grants of this client. A node that has lost its data continues above these numbers.
 */
export class GrantNumbers {
  #greatest = NO_NUMBER;
  /** The greatest number that has not been converted to text. */
  #notedValue = 0;

  /** The greatest number, as text. */
  get greatest(): string {
    if (this.#notedValue > 0) this.note(digits(this.#notedValue));
    this.#notedValue = 0;
    return this.#greatest;
  }

  note(number: string): void {
    if (isNumber(number) && number > this.#greatest) this.#greatest = number;
  }

  /**
   * Records a number. The number is not converted to text until a request needs the text, because many clients that
   * record numbers send no requests.
   */
  noteValue(number: number): void {
    if (number > this.#notedValue) this.#notedValue = number;
  }
}
