/** How long a call may take: a timeout, the caller's signal and the closing of the `Redlock`, as one thing to wait for. */
import { onAbort } from "./abort.ts";
import type { Clock } from "./clock.ts";

export type LimitReason = "timeout" | "signal" | "closed";

export class Limit {
  readonly #clock: Clock;
  readonly #endMs: number;
  readonly #signal: AbortSignal | undefined;
  readonly #closed: AbortSignal;
  #reached: Promise<void> | undefined;
  #dispose: (() => void)[] = [];

  constructor(
    clock: Clock,
    limits: { readonly timeoutMs: number; readonly signal: AbortSignal | undefined; readonly closed: AbortSignal },
  ) {
    this.#clock = clock;
    this.#endMs = clock.monotonicMs() + limits.timeoutMs;
    this.#signal = limits.signal;
    this.#closed = limits.closed;
  }

  /** Why the call must end, or undefined while it may go on; reads the clock. */
  get reason(): LimitReason | undefined {
    if (this.#signal?.aborted === true) return "signal";
    if (this.#closed.aborted) return "closed";
    return this.leftMs <= 0 ? "timeout" : undefined;
  }

  get leftMs(): number {
    return this.#endMs - this.#clock.monotonicMs();
  }

  /** Resolves when the limit is reached. Timers and listeners exist from the first call until `dispose`. */
  get reached(): Promise<void> {
    this.#reached ??= new Promise((resolve) => {
      if (this.reason !== undefined) {
        resolve();
        return;
      }
      this.#arm(resolve);
      this.#dispose.push(onAbort(this.#closed, resolve));
      if (this.#signal !== undefined) this.#dispose.push(onAbort(this.#signal, resolve));
    });
    return this.#reached;
  }

  dispose(): void {
    for (const dispose of this.#dispose.splice(0)) dispose();
  }

  /** A timer may fire early, and its delay has a maximum: only the clock decides. */
  #arm(resolve: () => void): void {
    if (!Number.isFinite(this.#endMs)) return;
    const onTimer = (): void => {
      if (this.leftMs <= 0) resolve();
      else this.#arm(resolve);
    };
    this.#dispose.push(this.#clock.schedule(this.leftMs, onTimer, { keepAlive: true }));
  }
}
