/** Searches for orders and for nodes that lost their state, in case no message arrives. Steps continue meanwhile. */
import type { Clock } from "@x/redlock-core";
import { Outage } from "./outage.ts";
import type { Register } from "./register.ts";

interface PollsParts {
  readonly clock: Clock;
  readonly register: Register;
  readonly report: (error: unknown) => void;
  /** Called when orders were read. */
  readonly onOrders: () => void;
  /** Called after each poll. */
  readonly onEnd: () => void;
}

const POLL_MS = 5_000;
/** A node that did not take a step receives the whole register after this time. */
const GAP_MS = 100;

export class Polls {
  readonly #parts: PollsParts;
  readonly #outage: Outage;
  #nextMs = 0;
  #current: Promise<void> | undefined;

  constructor(parts: PollsParts) {
    this.#parts = parts;
    this.#outage = new Outage(parts.report);
  }

  /** Makes the next poll due immediately. */
  hurry(): void {
    this.#nextMs = 0;
  }

  /** Starts a poll of all nodes, including slow nodes, if a poll is due and none runs. */
  startIfDue(): void {
    const { clock, register, onOrders, onEnd } = this.#parts;
    if (clock.monotonicMs() < this.#nextMs || this.#current !== undefined) return;
    this.#nextMs = clock.monotonicMs() + POLL_MS;
    this.#current = register
      .poll()
      .then(
        () => {
          this.#outage.ended();
          onOrders();
        },
        (error: unknown) => {
          this.#outage.failed(error);
        },
      )
      .finally(() => {
        this.#current = undefined;
        onEnd();
      });
  }

  /** Returns the milliseconds until the next poll. Infinity while a poll runs. */
  untilNextMs(): number {
    const { clock, register } = this.#parts;
    if (register.hasGap) this.#nextMs = Math.min(this.#nextMs, clock.monotonicMs() + GAP_MS);
    return this.#current === undefined ? this.#nextMs - clock.monotonicMs() : Number.POSITIVE_INFINITY;
  }

  /** Waits for the current poll. Never rejects. */
  async settled(): Promise<void> {
    await this.#current;
  }
}
