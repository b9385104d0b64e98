/**
 * The drift of a clock that runs too fast for a while, then too slow. At each moment the rate is as wrong as the drift
 * bound allows. Over hours the clock is as right as NTP keeps it. A constant drift would separate the clocks of a long
 * schedule by seconds, which is a different fault.
 */
export class Drift {
  readonly #rate: number;
  readonly #halfPeriodMs: number;
  readonly #phaseMs: number;

  /** `rate`: error of the clock's rate, for instance 0.005. `halfPeriodMs`: how long the error keeps its direction. */
  constructor(rate: number, halfPeriodMs: number, phaseMs: number) {
    this.#rate = rate;
    this.#halfPeriodMs = halfPeriodMs;
    this.#phaseMs = phaseMs;
  }

  /** Returns how many milliseconds the clock is ahead after `elapsedMs`. */
  errorMs(elapsedMs: number): number {
    const at = (elapsedMs + this.#phaseMs) % (2 * this.#halfPeriodMs);
    return this.#rate * (at < this.#halfPeriodMs ? at : 2 * this.#halfPeriodMs - at);
  }

  /**
   * Returns the true milliseconds until the clock has advanced by `clockMs`, or until the error changes direction if
   * this comes first.
   */
  trueMs(elapsedMs: number, clockMs: number): number {
    const at = (elapsedMs + this.#phaseMs) % this.#halfPeriodMs;
    const isRising = (elapsedMs + this.#phaseMs) % (2 * this.#halfPeriodMs) < this.#halfPeriodMs;
    return Math.min(clockMs / (1 + (isRising ? this.#rate : -this.#rate)), this.#halfPeriodMs - at + 0.001);
  }
}
