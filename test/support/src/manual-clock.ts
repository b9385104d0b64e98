/** A `Clock` of redlock-core that only moves when the test moves it. */
export class ManualClock {
  #nowMs = 1_000;
  #suspendedMs = 0;
  #steppedMs = 0;
  readonly #timers = new Set<{ readonly dueMs: number; readonly run: () => void }>();

  monotonicMs(): number {
    return this.#nowMs;
  }

  wallMs(): number {
    return 1e12 + this.#nowMs + this.#suspendedMs + this.#steppedMs;
  }

  suspendedMs(): number {
    return this.#suspendedMs;
  }

  schedule(afterMs: number, run: () => void): () => void {
    const timer = { dueMs: this.#nowMs + afterMs, run };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  defer(run: () => void): void {
    process.nextTick(run);
  }

  /** Lets time pass in a callback that blocks the event loop, so that no timer runs. */
  block(ms: number): void {
    this.#nowMs += ms;
  }

  /** Lets the machine sleep, so that nothing is due in the meantime. */
  suspend(ms: number): void {
    this.#suspendedMs += ms;
  }

  /** Sets the wall clock, as an operator does. */
  stepWallClock(byMs: number): void {
    this.#steppedMs += byMs;
  }

  /** Lets time pass. The timers that are due run, each at its time, and their effects happen. */
  async advance(ms: number): Promise<void> {
    const endMs = this.#nowMs + ms;
    for (;;) {
      const [next] = [...this.#timers].filter((timer) => timer.dueMs <= endMs).toSorted((a, b) => a.dueMs - b.dueMs);
      if (next === undefined) break;
      this.#nowMs = Math.max(this.#nowMs, next.dueMs);
      this.#timers.delete(next);
      next.run();
      await new Promise((resolve) => setImmediate(resolve));
    }
    this.#nowMs = endMs;
    await new Promise((resolve) => setImmediate(resolve));
  }
}
