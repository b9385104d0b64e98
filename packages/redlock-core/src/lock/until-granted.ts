/**
 * The loop of every acquisition: attempt, correct immediately, wait for a turn or a pause, attempt again.
 *
 * Guarantees:
 * - A call ends with a grant, its timeout, its signal, or the closing of the `Redlock`, whichever comes first.
 * - A caller that cancels is rejected with its reason immediately. A grant that arrives later is dropped.
 * - A call with a timeout of 0 makes one attempt. Corrections are made even after the timeout.
 *
 * The loop reads no votes. An `Acquirer` knows what is acquired and how its caller waits.
 */

import { RedlockError } from "../api/errors.ts";
import { type Clock, type Instant, readClock } from "../kit/clock.ts";
import { CallDeadline, type CallEnd } from "../kit/deadlines.ts";
import { onAbort } from "../kit/signals.ts";

/** Maximum number of corrections in a row, after a refused ballot or a flushed script cache. */
export const MAX_CORRECTIONS = 5;

export type Attempted<Granted, Refused> =
  | { readonly kind: "granted"; readonly grant: Granted }
  | Refused
  /** The attempt could not be made. The call ends with `error`. */
  | { readonly kind: "failed"; readonly error: unknown };

/** Receives the result of an attempt. */
export interface AttemptOwner<Granted, Refused> {
  /** Called once with the result. */
  onResult(result: Attempted<Granted, Refused>): void;
}

/** The steps of one call, called by the loop. */
export interface Acquirer<Granted, Refused extends { readonly kind: "refused" }, Held> {
  /** Waits for its turn in this process. Undefined if the attempt can be made immediately. */
  untilReady(deadline: CallDeadline): Promise<void> | undefined;
  /** Makes one attempt, and passes the result to `owner`. `leftMs`: remaining time; Infinity for a timeout of 0. */
  attempt(now: Instant, leftMs: number, owner: AttemptOwner<Granted, Refused>): void;
  /** Returns the result of the call for a grant. */
  hold(grant: Granted): Held | Promise<Held>;
  /** Called with a grant that arrived after the caller had cancelled. */
  drop(grant: Granted): void;
  /** Called after each refusal. */
  onRefused?(refused: Refused): void;
  /** Reports whether the nodes may grant if they are asked again immediately, because no other client is in the way. */
  isCorrectable(refused: Refused): boolean;
  /** Waits until the next attempt is due. */
  untilNext(refused: Refused, deadline: CallDeadline): Promise<void>;
  /** Returns the error of a call that ends without a grant. */
  errorOf(end: CallEnd): unknown;
  /** Whether the caller discards the errors of refusals, which then need no stack. */
  readonly isTry?: boolean | undefined;
  /** Resolves with the error to use instead. Never rejects. Undefined if the error of `errorOf` is final. */
  errorWithHolder?(): Promise<unknown> | undefined;
  /** Leaves all lines. Called once, when the call ends. */
  leave(): void;
}

export interface AcquireCall {
  readonly clock: Clock;
  readonly started: Instant;
  /** 0 for one attempt, Infinity for no limit. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
  /** Signal that aborts when the `Redlock` is closed. */
  readonly closed: AbortSignal;
}

/** Runs the loop until a grant or the end of the call. */
export function untilGranted<Granted, Refused extends { readonly kind: "refused" }, Held>(
  call: AcquireCall,
  acquirer: Acquirer<Granted, Refused, Held>,
): Promise<Held> {
  return new Promise<Held>((resolve, reject) => new Loop(call, acquirer, resolve, reject).begin(call.started));
}

/**
 * Rejects with `failure` after replacing its stack with the stack of the waiting caller. The error was created in the
 * callback of a reply or timer. V8 finds the caller through the promise that follows the promise of this function, and
 * both are linked two microtasks later.
 */
async function rejectAtCaller(failure: Error): Promise<never> {
  await Promise.resolve();
  await Promise.resolve();
  Error.captureStackTrace(failure);
  throw failure;
}

class Loop<Granted, Refused extends { readonly kind: "refused" }, Held> implements AttemptOwner<Granted, Refused> {
  readonly #clock: Clock;
  readonly #deadline: CallDeadline;
  readonly #acquirer: Acquirer<Granted, Refused, Held>;
  readonly #resolve: (held: Held | Promise<Held>) => void;
  readonly #reject: (error: unknown) => void;
  #attempts = 0;
  #corrections = 0;
  #hasEnded = false;
  /** Stops listening for a cancellation during an attempt. */
  #stopListening: (() => void) | undefined;

  constructor(
    call: AcquireCall,
    acquirer: Acquirer<Granted, Refused, Held>,
    resolve: (held: Held | Promise<Held>) => void,
    reject: (error: unknown) => void,
  ) {
    const { clock, started, timeoutMs, signal, closed } = call;
    this.#clock = clock;
    this.#deadline = new CallDeadline(clock, { startMs: started.monotonicMs, timeoutMs, signal, closed });
    this.#acquirer = acquirer;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  /**
   * Makes the next attempt when the call has its turn in this process. `now`: all clocks, read in this step.
   *
   * A step that throws (no randomness, an invalid clock) ends the call, here as in all other steps.
   */
  begin(now: Instant): void {
    try {
      const wait = this.#acquirer.untilReady(this.#deadline);
      if (wait === undefined) this.#attempt(now);
      else void this.#attemptAfter(wait);
    } catch (error) {
      this.#fail(error);
    }
  }

  async #attemptAfter(wait: Promise<void>): Promise<void> {
    try {
      await wait;
      this.#attempt(readClock(this.#clock));
    } catch (error) {
      this.#fail(error);
    }
  }

  async #beginAfter(wait: Promise<void>): Promise<void> {
    try {
      await wait;
      this.begin(readClock(this.#clock));
    } catch (error) {
      this.#fail(error, true);
    }
  }

  #attempt(now: Instant): void {
    const deadline = this.#deadline;
    const end = deadline.reasonAt(now.monotonicMs);
    if (end !== undefined && !(end === "timeout" && this.#canExceedTimeout)) {
      this.#failBy(end);
      return;
    }
    this.#attempts += 1;
    this.#listen();
    const leftMs = deadline.timeoutMs > 0 ? Math.max(deadline.leftAtMs(now.monotonicMs), 1) : Number.POSITIVE_INFINITY;
    this.#acquirer.attempt(now, leftMs, this);
  }

  /** Whether the next attempt is made even after the timeout: the only attempt of a timeout of 0, or a correction. */
  get #canExceedTimeout(): boolean {
    return this.#corrections > 0 || (this.#attempts === 0 && this.#deadline.timeoutMs === 0);
  }

  onResult(result: Attempted<Granted, Refused>): void {
    this.#stopListening?.();
    try {
      if (result.kind === "granted") this.#granted(result.grant);
      else if (result.kind === "failed") this.#fail(result.error);
      else this.#refused(result);
    } catch (error) {
      this.#fail(error);
    }
  }

  #granted(grant: Granted): void {
    if (this.#hasEnded) {
      this.#acquirer.drop(grant);
      return;
    }
    const held = this.#acquirer.hold(grant);
    this.#end();
    this.#resolve(held);
  }

  #refused(refused: Refused): void {
    if (this.#hasEnded) return;
    const acquirer = this.#acquirer;
    acquirer.onRefused?.(refused);
    if (acquirer.isCorrectable(refused) && this.#corrections < MAX_CORRECTIONS) {
      this.#corrections += 1;
      this.begin(readClock(this.#clock));
      return;
    }
    this.#corrections = 0;
    if (this.#deadline.reason !== undefined) this.begin(readClock(this.#clock));
    else void this.#beginAfter(acquirer.untilNext(refused, this.#deadline));
  }

  /** Rejects a caller that cancels during an attempt immediately. Without a signal, the attempt decides. */
  #listen(): void {
    const { signal, closed } = this.#deadline;
    if (signal === undefined) return;
    const cancel = (): void => {
      this.#stopListening?.();
      try {
        const end = this.#deadline.reason;
        if (end !== undefined) this.#failBy(end);
      } catch (error) {
        this.#fail(error);
      }
    };
    const stops = [onAbort(signal, cancel), onAbort(closed, cancel)];
    this.#stopListening = () => {
      for (const stop of stops.splice(0)) stop();
    };
  }

  #failBy(end: CallEnd): void {
    if (this.#hasEnded) return;
    const error = this.#acquirer.errorOf(end);
    const withHolder = this.#acquirer.errorWithHolder?.();
    if (withHolder === undefined) this.#fail(error, true);
    else {
      this.#end();
      void withHolder.then((named) => this.#rejectWith(named, true));
    }
  }

  /** `isReport`: whether the error was created to report the outcome of the call, and not thrown by a step. */
  #fail(error: unknown, isReport: boolean = error instanceof RedlockError): void {
    if (this.#hasEnded) return;
    this.#end();
    this.#rejectWith(error, isReport);
  }

  #rejectWith(error: unknown, isReport: boolean): void {
    const seeksCaller = isReport && this.#acquirer.isTry !== true && error !== this.#deadline.signal?.reason;
    if (seeksCaller && error instanceof Error) this.#resolve(rejectAtCaller(error));
    else this.#reject(error);
  }

  #end(): void {
    this.#hasEnded = true;
    this.#acquirer.leave();
    this.#deadline.dispose();
  }
}
