/** Failures in a row of one kind of request: what is told of them, and how long the next try waits. */
import { backOffMs } from "@x/redlock-core/protocol";

/** The pause after the first failure. */
const RETRY_MS = 100;
/** The longest pause. Connections are made again as often, and before that no try can succeed. */
const LONGEST_RETRY_MS = 1_000;
/** An outage has few causes. Beyond so many messages, an unknown text in them changes each time. */
const MOST_TOLD = 10;

export class Outage {
  readonly #tell: (error: unknown) => void;
  readonly #told = new Set<string>();
  #failures = 0;

  constructor(tell: (error: unknown) => void) {
    this.#tell = tell;
  }

  /** Notes a failure, and tells it unless it was told in this outage. Returns the milliseconds until the next try. */
  failed(error: unknown): number {
    this.#failures += 1;
    const cause = causeOf(error);
    if (!this.#told.has(cause) && this.#told.size < MOST_TOLD) {
      this.#told.add(cause);
      this.#tell(error);
    }
    return backOffMs({ failures: this.#failures, delayMs: RETRY_MS, maxDelayMs: LONGEST_RETRY_MS });
  }

  /** Notes a success: the next failure begins another outage. */
  ended(): void {
    this.#failures = 0;
    this.#told.clear();
  }
}

/** Returns the parts of a message, without how long something took, and without the order in which nodes answered. */
function causeOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return message
    .replaceAll(/(?<!\d)\d+ ms/g, "ms")
    .split(/[:;] /)
    .sort()
    .join();
}
