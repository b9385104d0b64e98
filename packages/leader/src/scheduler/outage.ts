/** Failures in a row of one kind of request: which failures are reported, and the pause before the next attempt. */
import { backOffMs } from "@x/redlock-core/kit";

/** The pause after the first failure. */
const RETRY_MS = 100;
/** The longest pause. Connections are also opened again once a second, and no earlier attempt can succeed. */
const LONGEST_RETRY_MS = 1_000;
/** The most messages of one outage. More messages mean that an unknown part of the text changes each time. */
const MOST_TOLD = 10;

export class Outage {
  readonly #tell: (error: unknown) => void;
  readonly #told = new Set<string>();
  #failures = 0;

  constructor(tell: (error: unknown) => void) {
    this.#tell = tell;
  }

  /** Records a failure, and reports each message once in an outage. Returns the milliseconds until the next attempt. */
  failed(error: unknown): number {
    this.#failures += 1;
    const cause = causeOf(error);
    if (!this.#told.has(cause) && this.#told.size < MOST_TOLD) {
      this.#told.add(cause);
      this.#tell(error);
    }
    return backOffMs({ failures: this.#failures, delayMs: RETRY_MS, maxDelayMs: LONGEST_RETRY_MS });
  }

  /** Records a success: the next failure begins another outage. */
  ended(): void {
    this.#failures = 0;
    this.#told.clear();
  }
}

/** Returns a message without durations, and with its parts sorted, because nodes answer in any order. */
function causeOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return message
    .replaceAll(/(?<!\d)\d+ ms/g, "ms")
    .split(/[:;] /)
    .sort()
    .join();
}
