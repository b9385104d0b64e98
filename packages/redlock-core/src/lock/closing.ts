/**
 * The end of a `Redlock`. `close()` refuses new calls, releases the locks that this process holds, waits for the calls
 * under way and for the last answers, and closes the connections. Later calls of `close()` return the same promise.
 */

import { InFlight } from "../kit/in-flight.ts";
import { deferred } from "../kit/signals.ts";
import type { RoundEngine } from "../rounds/round-engine.ts";
import type { Hints } from "../waiting/hints.ts";
import type { Renewable, Renewal } from "./renewal.ts";

/** A lease that this process holds. */
export interface OpenLease extends Renewable {
  /** Whether `close()` leaves the lease to expire. */
  readonly isLeft: boolean;
  /** Ends the lease for `Redlock.close()`. */
  close(): Promise<boolean>;
}

interface ClosableEngine extends Pick<RoundEngine, "nodes" | "batchers" | "clock" | "options"> {
  readonly hints: Hints;
  readonly renewal: Renewal<OpenLease>;
}

export class Closing {
  /** Calls that `close()` waits for. */
  readonly calls: InFlight = new InFlight();
  readonly #engine: ClosableEngine;
  /** Functions that end the notifications of the nodes' states. */
  readonly #stopListening: readonly (() => void)[];
  readonly #controller: AbortController = new AbortController();
  #end: Promise<void> | undefined;

  constructor(engine: ClosableEngine, stopListening: readonly (() => void)[]) {
    this.#engine = engine;
    this.#stopListening = stopListening;
  }

  /** Signal that aborts when `close()` is called. */
  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  close(): Promise<void> {
    if (this.#end !== undefined) return this.#end;
    // A listener may call `close()` again before the first wait, so the promise must exist.
    const end = deferred<void>();
    this.#end = end.promise;
    this.#close().then(end.resolve, end.reject);
    return end.promise;
  }

  async #close(): Promise<void> {
    const { renewal, hints, batchers, nodes } = this.#engine;
    this.#controller.abort();
    const held = renewal.leases.filter((lease) => !lease.isLeft);
    await Promise.all(held.map((lease) => lease.close()));
    await this.calls.untilNone();
    await this.#untilAnswered();
    renewal.close();
    hints.close();
    for (const stop of this.#stopListening) stop();
    for (const batcher of batchers) batcher.close();
    await Promise.all(nodes.map((node) => node.close()));
  }

  /**
   * Waits until the last requests are answered, at most for `nodeTimeout`. These requests take back keys and places in
   * lines, so the connections must not be closed before.
   */
  async #untilAnswered(): Promise<void> {
    const { batchers, clock, options } = this.#engine;
    const answered = (): Promise<unknown> => Promise.all(batchers.map((batcher) => batcher.untilAnswered()));
    await new Promise<void>((resolve) => {
      const cancel = clock.schedule(options.nodeTimeout, resolve, { keepAlive: true });
      void answered()
        // A late answer may lead to a release, which is sent at the end of the turn.
        .then(() => new Promise<void>((turnEnded) => clock.defer(turnEnded)))
        .then(answered)
        .then(() => {
          cancel();
          resolve();
        });
    });
  }
}
