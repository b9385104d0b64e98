/**
 * A session is shared by all calls of a `Redlock`, of users and of siblings. It lasts from the constructor to the end
 * of `close()`.
 */
import { RedlockClosedError } from "../api/errors.ts";
import { InFlight } from "../kit/in-flight.ts";
import { deferred } from "../kit/signals.ts";
import type { Engine } from "../rounds/engine.ts";
import { Hints } from "../waiting/hints.ts";
import { LocalLines } from "../waiting/local-line.ts";
import type { HeldLease } from "./lease.ts";
import { Renewal } from "./renewal.ts";

export class Session {
  readonly engine: Engine;
  readonly hints: Hints;
  readonly lines: LocalLines = new LocalLines();
  readonly renewal: Renewal<HeldLease>;
  /** Calls that `close()` waits for. */
  readonly calls: InFlight = new InFlight();
  /** Signal that aborts when `close()` is called. */
  readonly closed: AbortSignal;
  readonly #closing: AbortController = new AbortController();
  readonly #stopListening: readonly (() => void)[];
  #end: Promise<void> | undefined;

  constructor(engine: Engine) {
    this.engine = engine;
    this.hints = new Hints(engine);
    this.renewal = new Renewal(engine.clock);
    this.closed = this.#closing.signal;
    this.#stopListening = engine.nodes.map((node) =>
      node.onStateChange(() => {
        engine.events.tell("nodeChanged", () => ({
          node: node.name,
          state: node.state,
          ...(node.lastError === undefined ? {} : { error: node.lastError }),
        }));
      }),
    );
  }

  /** Throws `RedlockClosedError` once the `Redlock` is closed, or the reason of an aborted signal. */
  assertOpen(resources: readonly string[], signal?: AbortSignal): void {
    if (this.closed.aborted) throw new RedlockClosedError(resources);
    signal?.throwIfAborted();
  }

  /** See `Redlock.close`. */
  close(): Promise<void> {
    if (this.#end !== undefined) return this.#end;
    // A listener may call `close()` again before the first wait, so the promise must exist.
    const end = deferred<void>();
    this.#end = end.promise;
    this.#close().then(end.resolve, end.reject);
    return end.promise;
  }

  async #close(): Promise<void> {
    this.#closing.abort();
    const held = this.renewal.leases.filter((lease) => !lease.isLeft);
    await Promise.all(held.map((lease) => lease.close()));
    await this.calls.untilNone();
    await this.#untilAnswered();
    this.renewal.close();
    this.hints.close();
    for (const stop of this.#stopListening) stop();
    for (const batcher of this.engine.batchers) batcher.close();
    await Promise.all(this.engine.nodes.map((node) => node.close()));
  }

  /**
   * Waits until the last requests are answered, at most for `nodeTimeout`. These requests take back keys and places in
   * lines, so the connections must not be closed before.
   */
  async #untilAnswered(): Promise<void> {
    const { batchers, clock, options } = this.engine;
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
