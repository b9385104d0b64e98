/**
 * The lease behind a `Lock`, as its holder sees it: held until an end, lost or released. Only this file changes the
 * state. The keys on the nodes are in lease-keys.ts.
 */

import { type LockLossReason, LockLostError } from "../api/errors.ts";
import { type Instant, readClock } from "../kit/clock.ts";
import { callback } from "../kit/schema/check.ts";
import { deferred } from "../kit/signals.ts";
import type { RenewalPolicy } from "../rules/renewal.ts";
import { cappedEnd, elapsedMs, type LeaseEnd, laterEnd, leaseStart, OVER, remainingMs } from "../rules/validity.ts";
import type { LocalHolder, LocalLine } from "../waiting/local-line.ts";
import type { Grant } from "./attempt.ts";
import { ScriptAnswer } from "./embedded.ts";
import type { Engine } from "./engine.ts";
import { LeaseKeys } from "./lease-keys.ts";
import { type Lease, Lock } from "./lock.ts";
import type { LeaseScripts } from "./script-lease.ts";

type State =
  | { readonly kind: "held" }
  | { readonly kind: "lost"; readonly reason: LockLossReason; readonly error: LockLostError }
  | {
      readonly kind: "released";
      readonly confirmed: Promise<boolean>;
      /** Error of the signal, if the lock was lost before the release or was released by `Redlock.close()`. */
      readonly loss?: LockLostError | undefined;
      readonly reason: "released" | "closed";
    };

const HELD: State = { kind: "held" };
const PERFORM = callback<(answer: ScriptAnswer) => void>();

/** How a granted lease is kept. */
export interface HoldOptions {
  readonly autoExtend: boolean;
  readonly maxHold: number;
}

interface LeaseContext {
  readonly options: HoldOptions;
  /** Lines of the resources in this process. */
  readonly lines: readonly LocalLine[];
  /** Scripts of the sibling that granted the lease, used instead of this package's scripts. */
  readonly scripts?: LeaseScripts | undefined;
}

export class HeldLease implements Lease, LocalHolder {
  readonly lock: Lock;
  readonly token: string;
  readonly fencingToken: number;
  readonly #engine: Engine;
  readonly #granted: Instant;
  readonly #maxHoldMs: number;
  readonly #lines: readonly LocalLine[];
  readonly #keys: LeaseKeys;
  #state: State = HELD;
  #end: LeaseEnd;
  #controller: AbortController | undefined;
  #endListeners: Set<() => void> | undefined;

  constructor(engine: Engine, grant: Grant, { options, lines, scripts }: LeaseContext) {
    this.token = grant.token;
    this.fencingToken = grant.fencingToken;
    this.#engine = engine;
    this.#granted = grant.granted;
    this.#maxHoldMs = options.maxHold;
    this.#lines = lines;
    this.#keys = new LeaseKeys(engine, this, grant, options.autoExtend, scripts);
    this.#end = cappedEnd(grant.end, grant.granted, options.maxHold);
    this.lock = new Lock(this.resources, this);
    for (const line of lines) line.hold(this);
    engine.renewal.add(this.#keys);
  }

  get resources(): readonly string[] {
    return this.#keys.target.resources;
  }

  get ttlMs(): number {
    return this.#keys.ttlMs;
  }

  get isOpen(): boolean {
    return this.#state.kind === "held";
  }

  get end(): LeaseEnd {
    return this.#end;
  }

  /** After leases of several lengths, or with `maxHold`, this is the earliest possible start of the current lease. */
  get start(): Instant {
    return leaseStart(this.#end, this.#keys.longestTtlMs, this.#engine.options.driftFactor);
  }

  get validUntil(): LeaseEnd {
    return this.isOpen ? this.#end : OVER;
  }

  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    this.remaining();
    const loss = this.#loss;
    if (loss !== undefined) this.#controller.abort(loss);
    return this.#controller.signal;
  }

  get lossReason(): LockLossReason | undefined {
    return this.#state.kind === "held" ? undefined : this.#state.reason;
  }

  remaining(given?: Instant): number {
    if (!this.isOpen) return 0;
    const now = given ?? readClock(this.#engine.clock);
    const leftMs = remainingMs(this.#end, now);
    if (leftMs > 0) return leftMs;
    this.lose(elapsedMs(this.#granted, now) >= this.#maxHoldMs ? "max-hold" : "expired");
    return 0;
  }

  prolong(end: LeaseEnd): void {
    this.#end = cappedEnd(laterEnd(this.#end, end), this.#granted, this.#maxHoldMs);
  }

  extend(ttl: number | undefined): Promise<void> {
    return this.#keys.extend(ttl);
  }

  keep(policy: RenewalPolicy): void {
    this.#keys.keep(policy, this.start.monotonicMs);
  }

  leave(): void {
    this.#keys.leave();
  }

  release(): Promise<boolean> {
    if (this.#state.kind === "released") return this.#state.confirmed;
    const now = readClock(this.#engine.clock);
    const wasHeld = this.remaining(now) > 0;
    return this.#release(now, wasHeld, "released", this.#loss);
  }

  /**
   * Releases the lock for `Redlock.close()`, then aborts its signal. This package's own release is not sent before the
   * end of the turn, after everything that the holder does synchronously when the signal aborts.
   */
  close(): Promise<boolean> {
    const now = readClock(this.#engine.clock);
    if (this.remaining(now) <= 0) return this.release();
    const error = this.lostError("closed");
    const confirmed = this.#release(now, true, "closed", error);
    this.#controller?.abort(error);
    return confirmed;
  }

  /** See `Lease`. The other callers of this process are woken after the release, not earlier. */
  releaseBy(perform: (answer: ScriptAnswer) => void): Promise<boolean> {
    PERFORM.of("perform", perform);
    const { isEmbeddable } = this.#keys;
    if (this.remaining() <= 0 || !isEmbeddable) return this.release();
    const heldMs = this.#heldMs();
    const { promise: confirmed, resolve } = deferred<boolean>();
    const end = (isConfirmed: boolean): void => {
      this.#forget();
      this.#emitRelease(isConfirmed, heldMs);
      resolve(isConfirmed);
    };
    const answer = new ScriptAnswer(this.#engine.deadlines, (isDeleted) => {
      if (isDeleted) end(true);
      else this.#releaseKeys(end);
    });
    this.#state = { kind: "released", confirmed, reason: "released" };
    perform(answer);
    return confirmed;
  }

  lose(reason: LockLossReason): void {
    if (!this.isOpen) return;
    const error = this.lostError(reason);
    this.#state = { kind: "lost", reason, error };
    const heldMs = this.#heldMs();
    const { isLeft, isRenewed } = this.#keys;
    if (!isLeft) this.#releaseKeys(() => undefined);
    this.#forget();
    // A holder that has left the lock to its lease does not rely on it any more, so the expiry is not reported as a
    // loss.
    if (isLeft && !isRenewed && reason === "expired") this.#emitRelease(false, heldMs);
    else this.#engine.events.tell("lost", () => ({ ...this.#facts, reason, heldMs, votes: error.votes }));
    this.#controller?.abort(error);
  }

  onEnd(run: () => void): () => void {
    const listeners = (this.#endListeners ??= new Set());
    listeners.add(run);
    return () => listeners.delete(run);
  }

  lostError(reason: LockLossReason): LockLostError {
    if (this.#state.kind === "lost") return this.#state.error;
    if (this.#state.kind === "released" && this.#state.reason === "closed" && this.#state.loss) return this.#state.loss;
    return new LockLostError({ ...this.#facts, reason, heldMs: this.#heldMs(), votes: this.#keys.votes });
  }

  get #facts(): { readonly resources: readonly string[]; readonly fencingToken: number } {
    return { resources: this.resources, fencingToken: this.fencingToken };
  }

  get #loss(): LockLostError | undefined {
    if (this.#state.kind === "lost") return this.#state.error;
    return this.#state.kind === "released" ? this.#state.loss : undefined;
  }

  #release(
    { monotonicMs: nowMs }: Instant,
    wasHeld: boolean,
    reason: "released" | "closed",
    loss: LockLostError | undefined,
  ): Promise<boolean> {
    const heldMs = nowMs - this.#granted.monotonicMs;
    const { promise: confirmed, resolve } = deferred<boolean>();
    const wasLost = this.#state.kind === "lost";
    // If no node can be asked, listeners are notified while the release starts, so the state must be set before.
    this.#state = { kind: "released", confirmed, reason, loss };
    this.#keys.release(nowMs, (isDeleted) => {
      const isConfirmed = wasHeld && isDeleted;
      this.#emitRelease(isConfirmed, heldMs);
      resolve(isConfirmed);
    });
    if (!wasLost) this.#forget();
    return confirmed;
  }

  #releaseKeys(onEnd: (isDeleted: boolean) => void): void {
    this.#keys.release(this.#engine.clock.monotonicMs(), onEnd);
  }

  #emitRelease(confirmed: boolean, heldMs: number): void {
    const { events } = this.#engine;
    if (events.isHeard("released")) events.emit("released", { ...this.#facts, confirmed, heldMs });
  }

  /** Removes the lock from the renewal and from the lines of this process, because it is not held any more. */
  #forget(): void {
    this.#engine.renewal.delete(this.#keys);
    for (const line of this.#lines) line.free(this);
    if (this.#endListeners !== undefined) for (const run of this.#endListeners) run();
  }

  #heldMs(): number {
    return this.#engine.clock.monotonicMs() - this.#granted.monotonicMs;
  }
}
