/** The events of one acquisition of permits, which the `Redlock` emits. */
import type { RedlockEvents, Vote } from "@x/redlock-core";
import type { Instant } from "@x/redlock-core/kit";
import type { Pool } from "./pool.ts";

export class AcquisitionReport {
  readonly #pool: Pool;
  readonly #started: Instant;
  /** Number of attempts so far. */
  attempts = 0;

  constructor(pool: Pool, started: Instant) {
    this.#pool = pool;
    this.#started = started;
  }

  acquired(fencingToken: number): void {
    this.#pool.protocol.events.tell("acquired", () => ({ ...this.facts(), fencingToken }));
  }

  /** Reports a refusal after which the acquisition waits. */
  refused(votes: readonly Vote[]): void {
    this.#pool.protocol.events.tell("refused", () => ({ ...this.facts(), votes }));
  }

  failed(reason: RedlockEvents["acquireFailed"]["reason"], votes: readonly Vote[]): void {
    this.#pool.protocol.events.tell("acquireFailed", () => ({ ...this.facts(), reason, votes }));
  }

  /** Returns the facts that all events contain. */
  facts(): { readonly resources: readonly string[]; readonly attempts: number; readonly waitMs: number } {
    const { protocol, name } = this.#pool;
    const waitMs = protocol.clock.monotonicMs() - this.#started.monotonicMs;
    return { resources: [name], attempts: this.attempts, waitMs };
  }
}
