/** The state behind a `Lock`: held, lost or released. Only this file changes the state. */

import { type LockLossReason, LockLostError, QuorumUnreachableError } from "../api/errors.ts";
import type { RedlockEvents } from "../api/events.ts";
import { resolveTtl } from "../api/options.ts";
import { type Instant, readClock } from "../kit/clock.ts";
import { callback, objectWith } from "../kit/schema/check.ts";
import { deferred } from "../kit/signals.ts";
import type { Engine } from "../rounds/engine.ts";
import type { Target } from "../rules/operation.ts";
import type { Vote } from "../rules/quorum.ts";
import { BY_THIRDS, type RenewalPolicy } from "../rules/renewal.ts";
import { cappedEnd, elapsedMs, type LeaseEnd, laterEnd, leaseStart, OVER, remainingMs } from "../rules/validity.ts";
import type { LocalHolder, LocalLine } from "../waiting/local-line.ts";
import type { Grant } from "./attempt.ts";
import { ScriptAnswer } from "./embedded.ts";
import { type ExtendResult, type ExtendRound, extendRound } from "./extend.ts";
import { type Lease, Lock } from "./lock.ts";
import { startRelease } from "./release.ts";
import type { Renewable, Renewal } from "./renewal.ts";
import { extendByScript, type LeaseScripts, type TakenBack } from "./script-lease.ts";

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
const NO_VOTES: readonly Vote[] = [];
const MAX_MANUAL_TRIES = 3;
const POLICY = objectWith<RenewalPolicy>(["dueMs", "retryMs", "timeoutMs", "windowMs"]);
const PERFORM = callback<(answer: ScriptAnswer) => void>();

/** How a granted lease is kept. */
export interface HoldOptions {
  readonly autoExtend: boolean;
  readonly maxHold: number;
}

interface LeaseContext {
  readonly options: HoldOptions;
  readonly renewal: Renewal<HeldLease>;
  /** Lines of the resources in this process. */
  readonly lines: readonly LocalLine[];
  /** Scripts of the sibling that granted the lease, used instead of this package's scripts. */
  readonly own?: { readonly scripts: LeaseScripts; readonly takenBack: TakenBack } | undefined;
}

export class HeldLease implements Lease, LocalHolder, Renewable {
  readonly lock: Lock;
  readonly target: Target;
  readonly token: string;
  readonly fencingToken: number;
  /** See `Lease.leave`. */
  isLeft = false;
  /** Index of this lease in the list of `Renewal`. */
  index = -1;
  readonly #engine: Engine;
  readonly #granted: Instant;
  readonly #hadKeyOn: number;
  readonly #maxHoldMs: number;
  readonly #renewal: Renewal<HeldLease>;
  readonly #lines: readonly LocalLine[];
  readonly #own: LeaseContext["own"];
  /** See `mayHoldOn`. Does not include the nodes of an extension under way. */
  #mayHoldOn: number;
  #isExtended = false;
  #ttlMs: number;
  /** Longest lease that was requested, with or without an answer. A key may live this long. */
  #longestTtlMs: number;
  /** Votes of the last extension, if it failed. */
  #votes: readonly Vote[] = NO_VOTES;
  #state: State = HELD;
  #end: LeaseEnd;
  /** How the lease is renewed. Undefined if it is not renewed. */
  #policy: RenewalPolicy | undefined;
  #renewAtMs: number;
  #controller: AbortController | undefined;
  #endListeners: Set<() => void> | undefined;
  #underWay: ExtendRound | undefined;

  constructor(engine: Engine, grant: Grant, { options, renewal, lines, own }: LeaseContext) {
    this.target = grant.target;
    this.token = grant.token;
    this.fencingToken = grant.fencingToken;
    this.#engine = engine;
    this.#granted = grant.granted;
    this.#hadKeyOn = grant.hadKeyOn;
    this.#mayHoldOn = grant.mayHoldOn;
    this.#ttlMs = grant.ttlMs;
    this.#longestTtlMs = grant.ttlMs;
    this.#policy = options.autoExtend ? BY_THIRDS : undefined;
    this.#maxHoldMs = options.maxHold;
    this.#renewal = renewal;
    this.#lines = lines;
    this.#own = own;
    this.#end = cappedEnd(grant.end, grant.granted, options.maxHold);
    this.#renewAtMs = BY_THIRDS.dueMs(grant.granted.monotonicMs, grant.ttlMs);
    this.lock = new Lock(this.resources, this);
    for (const line of lines) line.hold(this);
    renewal.add(this);
  }

  get resources(): readonly string[] {
    return this.target.resources;
  }

  get ttlMs(): number {
    return this.#ttlMs;
  }

  get windowMs(): number {
    return this.#policy?.windowMs(this.#ttlMs) ?? 0;
  }

  /** After leases of several lengths, or with `maxHold`, this is the earliest possible start of the current lease. */
  get start(): Instant {
    return leaseStart(this.#end, this.#longestTtlMs, this.#engine.options.driftFactor);
  }

  get validUntil(): LeaseEnd {
    return this.#state.kind === "held" ? this.#end : OVER;
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
    if (this.#state.kind !== "held") return 0;
    const now = given ?? readClock(this.#engine.clock);
    const leftMs = remainingMs(this.#end, now);
    if (leftMs > 0) return leftMs;
    this.lose(elapsedMs(this.#granted, now) >= this.#maxHoldMs ? "max-hold" : "expired");
    return 0;
  }

  nextDueMs(): number {
    if (this.#state.kind !== "held") return Number.POSITIVE_INFINITY;
    const endMs = this.#end.monotonicMs;
    return this.#policy !== undefined && this.#underWay === undefined ? Math.min(this.#renewAtMs, endMs) : endMs;
  }

  tick(dueMs: number): void {
    if (this.remaining() <= 0 || this.#state.kind !== "held") return;
    const policy = this.#policy;
    if (policy === undefined || this.#underWay !== undefined || this.#renewAtMs > dueMs) return;
    const ttlMs = this.#ttlMs;
    const nowMs = this.#engine.clock.monotonicMs();
    if (policy.isPaused?.() === true) this.#renewAtMs = policy.retryMs(nowMs, nowMs, ttlMs);
    else void this.#extendOnce(ttlMs, Math.min(this.#engine.options.nodeTimeout, policy.timeoutMs(ttlMs)));
  }

  keep(policy: RenewalPolicy): void {
    POLICY.of("policy", policy);
    this.isLeft = true;
    this.#policy = policy;
    this.#renewAtMs = policy.dueMs(this.start.monotonicMs, this.#ttlMs);
    this.#renewal.reschedule(this);
  }

  async extend(ttl: number | undefined): Promise<void> {
    const ttlMs = ttl === undefined ? this.#ttlMs : resolveTtl(ttl, this.#engine.options);
    const startedMs = this.#engine.clock.monotonicMs();
    for (let tries = 1; ; tries += 1) {
      while (this.#underWay !== undefined) await this.#underWay.result;
      if (this.remaining() <= 0) throw this.lostError(this.lossReason ?? "expired");
      const result = await this.#extendOnce(ttlMs, this.#engine.options.nodeTimeout);
      if (this.remaining() <= 0) throw this.lostError(this.lossReason ?? "expired");
      if (result.kind === "extended") return;
      if (result.kind === "failed" && tries >= MAX_MANUAL_TRIES) throw this.#unreachable(result, tries, startedMs);
    }
  }

  release(): Promise<boolean> {
    if (this.#state.kind === "released") return this.#state.confirmed;
    const wasHeld = this.remaining() > 0;
    return this.#release(wasHeld, "released", this.#loss);
  }

  /**
   * Releases the lock for `Redlock.close()`, then aborts its signal. This package's own release is not sent before the
   * end of the turn, after everything that the holder does synchronously when the signal aborts.
   */
  close(): Promise<boolean> {
    if (this.remaining() <= 0) return this.release();
    const error = this.lostError("closed");
    const confirmed = this.#release(true, "closed", error);
    this.#controller?.abort(error);
    return confirmed;
  }

  /** See `Lease`. The other callers of this process are woken after the release, not earlier. */
  releaseBy(perform: (answer: ScriptAnswer) => void): Promise<boolean> {
    PERFORM.of("perform", perform);
    const wasExtended = this.#underWay !== undefined || this.#isExtended;
    if (this.remaining() <= 0 || wasExtended || this.#own !== undefined || !this.#engine.isEmbeddable)
      return this.release();
    const heldMs = this.#heldMs();
    const { promise: confirmed, resolve } = deferred<boolean>();
    const end = (isConfirmed: boolean): void => {
      this.#forget();
      this.#emitRelease(isConfirmed, heldMs);
      resolve(isConfirmed);
    };
    const answer = new ScriptAnswer(this.#engine.deadlines, (isDeleted) => {
      if (isDeleted) end(true);
      else void this.#releaseKeys().then(end);
    });
    this.#state = { kind: "released", confirmed, reason: "released" };
    perform(answer);
    return confirmed;
  }

  leave(): void {
    this.isLeft = true;
    this.#policy = undefined;
  }

  lose(reason: LockLossReason): void {
    if (this.#state.kind !== "held") return;
    const error = this.lostError(reason);
    this.#state = { kind: "lost", reason, error };
    const heldMs = this.#heldMs();
    if (!this.isLeft) void this.#releaseKeys();
    this.#forget();
    // A holder that has left the lock to its lease does not rely on it any more, so the expiry is not reported as a
    // loss.
    if (this.isLeft && this.#policy === undefined && reason === "expired") this.#emitRelease(false, heldMs);
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
    return new LockLostError({ ...this.#facts, reason, heldMs: this.#heldMs(), votes: this.#votes });
  }

  get #facts(): { readonly resources: readonly string[]; readonly fencingToken: number } {
    return { resources: this.resources, fencingToken: this.fencingToken };
  }

  get #loss(): LockLostError | undefined {
    if (this.#state.kind === "lost") return this.#state.error;
    return this.#state.kind === "released" ? this.#state.loss : undefined;
  }

  #release(wasHeld: boolean, reason: "released" | "closed", loss: LockLostError | undefined): Promise<boolean> {
    const nowMs = this.#engine.clock.monotonicMs();
    const heldMs = nowMs - this.#granted.monotonicMs;
    const { promise: confirmed, resolve } = deferred<boolean>();
    const wasLost = this.#state.kind === "lost";
    // If no node can be asked, listeners are notified while the release starts, so the state must be set before.
    this.#state = { kind: "released", confirmed, reason, loss };
    this.#startRelease(nowMs, (isDeleted) => {
      const isConfirmed = wasHeld && isDeleted;
      this.#emitRelease(isConfirmed, heldMs);
      resolve(isConfirmed);
    });
    if (!wasLost) this.#forget();
    return confirmed;
  }

  async #extendOnce(ttlMs: number, timeoutMs: number): Promise<ExtendResult> {
    if (this.#state.kind !== "held") return { kind: "failed", votes: [] };
    const startedMs = this.#engine.clock.monotonicMs();
    this.#longestTtlMs = Math.max(this.#longestTtlMs, ttlMs);
    const { target, token, fencingToken } = this;
    const round =
      this.#own === undefined
        ? extendRound(this.#engine, {
            target,
            token,
            fencingToken,
            ttlMs,
            timeoutMs,
            end: this.#end,
            isHeld: () => this.#state.kind === "held",
            hadKeyOn: this.#hadKeyOn,
          })
        : extendByScript(this.#engine, this.#own.scripts, { ttlMs, timeoutMs, end: this.#end });
    this.#underWay = round;
    const result = await round.result;
    this.#underWay = undefined;
    this.#isExtended = true;
    this.#mayHoldOn |= round.sentTo;
    this.#applyResult(result, ttlMs, startedMs);
    this.#renewal.reschedule(this);
    return result;
  }

  #applyResult(result: ExtendResult, ttlMs: number, startedMs: number): void {
    if (this.#state.kind !== "held") return;
    const { clock, events } = this.#engine;
    const policy = this.#policy ?? BY_THIRDS;
    this.#votes = result.kind === "extended" ? [] : result.votes;
    if (result.kind === "lost") {
      this.lose(result.reason);
    } else if (result.kind === "extended") {
      this.#ttlMs = ttlMs;
      this.#end = cappedEnd(laterEnd(this.#end, result.end), this.#granted, this.#maxHoldMs);
      this.#renewAtMs = policy.dueMs(startedMs, ttlMs);
    } else {
      this.#renewAtMs = policy.retryMs(startedMs, clock.monotonicMs(), this.#ttlMs);
    }
    const tookMs = clock.monotonicMs() - startedMs;
    const facts = (): RedlockEvents["extended"] => ({
      ...this.#facts,
      tookMs,
      remainingMs: this.remaining(),
      ttlMs: this.#ttlMs,
    });
    if (result.kind === "extended") events.tell("extended", facts);
    else events.tell("extendFailed", () => ({ ...facts(), votes: result.votes }));
    if (result.kind === "extended") policy.onRenewed?.(tookMs);
    else if (result.kind === "failed") policy.onFailed?.(this.#unreachable(result, 1, startedMs));
  }

  #emitRelease(confirmed: boolean, heldMs: number): void {
    const { events } = this.#engine;
    if (events.isHeard("released")) events.emit("released", { ...this.#facts, confirmed, heldMs });
  }

  /** Removes the lock from the renewal and from the lines of this process, because it is not held any more. */
  #forget(): void {
    this.#renewal.delete(this);
    for (const line of this.#lines) line.free(this);
    if (this.#endListeners !== undefined) for (const run of this.#endListeners) run();
  }

  get longestTtlMs(): number {
    return this.#longestTtlMs;
  }

  /** Nodes that may hold a key with the token, as bits. All nodes while an extension is under way. */
  get mayHoldOn(): number {
    return this.#underWay === undefined ? this.#mayHoldOn : this.#engine.everyNode;
  }

  #releaseKeys(): Promise<boolean> {
    return new Promise((resolve) => this.#startRelease(this.#engine.clock.monotonicMs(), resolve));
  }

  #startRelease(nowMs: number, onEnd: (isDeleted: boolean) => void): void {
    const own = this.#own;
    if (own === undefined) startRelease(this.#engine, this, nowMs, onEnd);
    else own.takenBack.release(own.scripts.release(), nowMs + this.#longestTtlMs, onEnd);
  }

  #unreachable(result: ExtendResult & { kind: "failed" }, attempts: number, startedMs: number): QuorumUnreachableError {
    return new QuorumUnreachableError({
      resources: this.resources,
      votes: result.votes,
      nodeCount: this.#engine.nodes.length,
      quorum: this.#engine.quorum,
      attempts,
      elapsedMs: this.#engine.clock.monotonicMs() - startedMs,
    });
  }

  #heldMs(): number {
    return this.#engine.clock.monotonicMs() - this.#granted.monotonicMs;
  }
}
