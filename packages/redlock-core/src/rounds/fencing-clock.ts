/** What a client has seen of fencing tokens and of the nodes' clocks. It only makes a ballot's first guess better. */

import type { Random } from "../kit/random.ts";
import { CLAMP_US, DIGITS_PER_PROCESS, nextBallot } from "../rules/ballot.ts";
import { median } from "../rules/quorum.ts";

/** This many resources take about a megabyte. A forgotten resource costs at most one more round trip. */
const MAX_RESOURCES = 10_000;

export class FencingClock {
  /** The tokens that nodes stored above our ballots, because a clock somewhere is or was wrong: seldom many. */
  readonly #lastSeen = new Map<string, number>();
  readonly #processDigits: number;
  #offsetUs = 0;
  /** The last ballot that this process proposed by its clock, for whatever resource. */
  #lastProposed = 0;

  constructor(random: Random) {
    this.#processDigits = Math.floor(random.fraction() * DIGITS_PER_PROCESS);
  }

  /** Returns a ballot above everything proposed before, and above what was seen for each of the resources. */
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

  /** Returns the place in the line of a caller that comes now: microseconds by the nodes' clock, as far as known. */
  place(wallMs: number): number {
    return Math.max(0, Math.floor(wallMs * 1_000 + this.#offsetUs));
  }

  /**
   * Returns the corrected place of a caller that came when the clock showed `wallMs`. It changes if any refusal since
   * then has told that the clock is wrong. A difference of at most `CLAMP_US` is the noise of the measurement, and
   * changes nothing.
   */
  correctPlace(place: number, wallMs: number): number {
    const corrected = this.place(wallMs);
    return Math.abs(corrected - place) > CLAMP_US ? corrected : place;
  }

  /** Notes that a node stores a fencing token that is not below our ballot. */
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
   * Corrects the clock's offset by what the nodes reported, if enough of them did to end an attempt. By our clock the
   * attempt began at `askedMs` and ended at `wallMs`.
   *
   * The nodes looked at their clocks in between. An offset that fits is kept, because answers that are read late
   * would otherwise move it.
   */
  seeNodeTimes(nodeTimesUs: readonly number[], askedMs: number, wallMs: number): void {
    if (nodeTimesUs.length === 0) return;
    const nodeUs = median(nodeTimesUs);
    const leastUs = nodeUs - wallMs * 1_000;
    if (this.#offsetUs < leastUs || this.#offsetUs > nodeUs - askedMs * 1_000) this.#offsetUs = leastUs;
    // Proposed by a clock that was ahead: the nodes would refuse what is above it as well.
    if (this.#lastProposed > this.place(wallMs) + CLAMP_US) this.#lastProposed = 0;
  }
}
