/** How long a call may take: a timeout, the caller's signal and the closing of the `Redlock`, as one thing to wait for. */
import type { Clock } from "./clock.ts";

export type LimitReason = "timeout" | "signal" | "closed";

export class Limit {
  readonly #clock: Clock;
  readonly #endMs: number;
  readonly #signals: readonly (readonly [AbortSignal | undefined, LimitReason])[];
  #reason: LimitReason | undefined;
  #reached: Promise<void> | undefined;
  #dispose: () => void = () => undefined;

  constructor(
    clock: Clock,
    limits: { readonly timeoutMs: number; readonly signal: AbortSignal | undefined; readonly closed: AbortSignal },
  ) {
    this.#clock = clock;
    this.#endMs = clock.monotonicMs() + limits.timeoutMs;
    this.#signals = [
      [limits.signal, "signal"],
      [limits.closed, "closed"],
    ];
  }

  /** Why the call must end, or undefined while it may go on; reads the clock. */
  get reason(): LimitReason | undefined {
    if (this.#reason !== undefined) return this.#reason;
    const aborted = this.#signals.find(([signal]) => signal?.aborted === true);
    if (aborted !== undefined) this.#reason = aborted[1];
    else if (this.leftMs <= 0) this.#reason = "timeout";
    return this.#reason;
  }

  get leftMs(): number {
    return this.#endMs - this.#clock.monotonicMs();
  }

  /** Resolves when the limit is reached. Timers and listeners exist from the first call until `dispose`. */
  get reached(): Promise<void> {
    this.#reached ??= new Promise((resolve) => {
      const cancels: (() => void)[] = [];
      this.#dispose = () => {
        for (const cancel of cancels.splice(0)) cancel();
      };
      if (this.reason !== undefined) {
        resolve();
        return;
      }
      const arm = (): void => {
        if (Number.isFinite(this.#endMs)) {
          cancels.push(
            this.#clock.schedule(this.leftMs, () => (this.reason === undefined ? arm() : resolve()), {
              keepAlive: true,
            }),
          );
        }
      };
      arm();
      for (const [signal, reason] of this.#signals) {
        if (signal === undefined) continue;
        const onAbort = (): void => {
          this.#reason ??= reason;
          resolve();
        };
        signal.addEventListener("abort", onAbort, { once: true });
        cancels.push(() => signal.removeEventListener("abort", onAbort));
      }
    });
    return this.#reached;
  }

  dispose(): void {
    this.#dispose();
  }
}
