/**
 * A clock that runs too fast for a while, then too slow. It is at each moment as wrong as the drift bound allows, over
 * the hours as right as NTP keeps it. Otherwise the clocks of a long schedule would be seconds apart, which is another
 * fault.
 */
export class Drift {
  readonly #rate: number;
  readonly #halfPeriodMs: number;
  readonly #phaseMs: number;

  /** `rate`: of its error, for instance 0.005; `halfPeriodMs`: how long it errs in one direction. */
  constructor(rate: number, halfPeriodMs: number, phaseMs: number) {
    this.#rate = rate;
    this.#halfPeriodMs = halfPeriodMs;
    this.#phaseMs = phaseMs;
  }

  /** Milliseconds by which the clock is ahead after `elapsedMs`. */
  errorMs(elapsedMs: number): number {
    const at = (elapsedMs + this.#phaseMs) % (2 * this.#halfPeriodMs);
    return this.#rate * (at < this.#halfPeriodMs ? at : 2 * this.#halfPeriodMs - at);
  }

  /**
   * True milliseconds until the clock has advanced by `clockMs`, or until its error changes direction if that is
   * sooner.
   */
  trueMs(elapsedMs: number, clockMs: number): number {
    const at = (elapsedMs + this.#phaseMs) % this.#halfPeriodMs;
    const isRising = (elapsedMs + this.#phaseMs) % (2 * this.#halfPeriodMs) < this.#halfPeriodMs;
    return Math.min(clockMs / (1 + (isRising ? this.#rate : -this.#rate)), this.#halfPeriodMs - at + 0.001);
  }
}
