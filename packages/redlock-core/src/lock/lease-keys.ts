/**
 * The keys of one lease on the nodes: which nodes may hold them, how long they live, and when they are renewed. The
 * holder's view of the lease is in lease.ts.
 *
 * At most one extension is under way at a time.
 */

import { QuorumUnreachableError } from "../api/errors.ts";
import type { RedlockEvents } from "../api/events.ts";
import { resolveTtl } from "../api/options.ts";
import type { Instant } from "../kit/clock.ts";
import { objectWith } from "../kit/schema/check.ts";
import type { Target } from "../rules/operation.ts";
import type { Vote } from "../rules/quorum.ts";
import { BY_THIRDS, type RenewalPolicy } from "../rules/renewal.ts";
import type { LeaseEnd } from "../rules/validity.ts";
import type { Grant } from "./attempt.ts";
import type { Engine } from "./engine.ts";
import { type ExtendResult, type ExtendRound, extendRound } from "./extend.ts";
import type { Lease } from "./lock.ts";
import { startRelease } from "./release.ts";
import type { Renewable } from "./renewal.ts";
import { extendByScript, type LeaseScripts, releaseByScript } from "./script-lease.ts";

const NO_VOTES: readonly Vote[] = [];
const MAX_MANUAL_TRIES = 3;
const POLICY = objectWith<RenewalPolicy>(["dueMs", "retryMs", "timeoutMs", "windowMs"]);

/** The lease that has the keys. */
interface Owner extends Pick<Lease, "remaining" | "lossReason" | "lostError"> {
  /** Whether the lease was neither lost nor released. Reads no clock. */
  readonly isOpen: boolean;
  readonly end: LeaseEnd;
  /** Moves the end of the lease, which an extension never brings nearer. */
  prolong(end: LeaseEnd): void;
  lose(reason: "taken" | "forced"): void;
  close(): Promise<boolean>;
}

export class LeaseKeys implements Renewable {
  readonly grant: Grant;
  /** Index of this lease in the list of `Renewal`. */
  index = -1;
  /** See `Lease.leave`. */
  isLeft = false;
  readonly #engine: Engine;
  readonly #owner: Owner;
  /** Scripts of the sibling that granted the lease, used instead of this package's scripts. */
  readonly #scripts: LeaseScripts | undefined;
  /** See `mayHoldOn`. Does not include the nodes of an extension under way. */
  #mayHoldOn: number;
  #ttlMs: number;
  #longestTtlMs: number;
  /** How the lease is renewed. Undefined if it is not renewed. */
  #policy: RenewalPolicy | undefined;
  #renewAtMs: number;
  #underWay: ExtendRound | undefined;
  #wasExtended = false;
  /** Votes of the last extension, if it failed. */
  #votes: readonly Vote[] = NO_VOTES;

  constructor(engine: Engine, owner: Owner, grant: Grant, autoExtend: boolean, scripts: LeaseScripts | undefined) {
    this.grant = grant;
    this.#engine = engine;
    this.#owner = owner;
    this.#scripts = scripts;
    this.#mayHoldOn = grant.mayHoldOn;
    this.#ttlMs = grant.ttlMs;
    this.#longestTtlMs = grant.ttlMs;
    this.#policy = autoExtend ? BY_THIRDS : undefined;
    this.#renewAtMs = BY_THIRDS.dueMs(grant.granted.monotonicMs, grant.ttlMs);
  }

  get target(): Target {
    return this.grant.target;
  }

  get token(): string {
    return this.grant.token;
  }

  get ttlMs(): number {
    return this.#ttlMs;
  }

  /** Longest lease that was requested, with or without an answer. A key may live this long. */
  get longestTtlMs(): number {
    return this.#longestTtlMs;
  }

  /** Nodes that may hold a key with the token, as bits. All nodes while an extension is under way. */
  get mayHoldOn(): number {
    return this.#underWay === undefined ? this.#mayHoldOn : this.#engine.everyNode;
  }

  /** Whether a node may still extend the lease, or has done so. */
  get mayBeExtended(): boolean {
    return this.#underWay !== undefined || this.#wasExtended;
  }

  /** Whether a script of this package's own can release the keys. */
  get isEmbeddable(): boolean {
    return this.#scripts === undefined && !this.mayBeExtended && this.#engine.isEmbeddable;
  }

  get isRenewed(): boolean {
    return this.#policy !== undefined;
  }

  get votes(): readonly Vote[] {
    return this.#votes;
  }

  get windowMs(): number {
    return this.#policy?.windowMs(this.#ttlMs) ?? 0;
  }

  remaining(now: Instant): number {
    return this.#owner.remaining(now);
  }

  nextDueMs(): number {
    const { isOpen, end } = this.#owner;
    if (!isOpen) return Number.POSITIVE_INFINITY;
    const endMs = end.monotonicMs;
    return this.#policy !== undefined && this.#underWay === undefined ? Math.min(this.#renewAtMs, endMs) : endMs;
  }

  tick(dueMs: number): void {
    if (this.#owner.remaining() <= 0) return;
    const policy = this.#policy;
    if (policy === undefined || this.#underWay !== undefined || this.#renewAtMs > dueMs) return;
    const ttlMs = this.#ttlMs;
    const nowMs = this.#engine.clock.monotonicMs();
    if (policy.isPaused?.() === true) this.#renewAtMs = policy.retryMs(nowMs, nowMs, ttlMs);
    else void this.#extendOnce(ttlMs, Math.min(this.#engine.options.nodeTimeout, policy.timeoutMs(ttlMs)));
  }

  /** See `Lease.keep`. `sinceMs` is the start of the current lease by the monotonic clock. */
  keep(policy: RenewalPolicy, sinceMs: number): void {
    POLICY.of("policy", policy);
    this.isLeft = true;
    this.#policy = policy;
    this.#renewAtMs = policy.dueMs(sinceMs, this.#ttlMs);
    this.#engine.renewal.reschedule(this);
  }

  leave(): void {
    this.isLeft = true;
    this.#policy = undefined;
  }

  close(): Promise<boolean> {
    return this.#owner.close();
  }

  /** See `Lock.extend`. */
  async extend(ttl: number | undefined): Promise<void> {
    const { clock, options } = this.#engine;
    const ttlMs = ttl === undefined ? this.#ttlMs : resolveTtl(ttl, options);
    const startedMs = clock.monotonicMs();
    for (let tries = 1; ; tries += 1) {
      while (this.#underWay !== undefined) await this.#underWay.result;
      this.#assertHeld();
      const result = await this.#extendOnce(ttlMs, options.nodeTimeout);
      this.#assertHeld();
      if (result.kind === "extended") return;
      if (result.kind === "failed" && tries >= MAX_MANUAL_TRIES) throw this.#unreachable(result, tries, startedMs);
    }
  }

  /** Releases the keys, and calls `onEnd` in the step that decides whether a quorum confirmed. */
  release(nowMs: number, onEnd: (isDeleted: boolean) => void): void {
    const scripts = this.#scripts;
    if (scripts === undefined) startRelease(this.#engine, this, nowMs, onEnd);
    else releaseByScript(this.#engine, scripts.release(), nowMs + this.#longestTtlMs, onEnd);
  }

  #assertHeld(): void {
    if (this.#owner.remaining() <= 0) throw this.#owner.lostError(this.#owner.lossReason ?? "expired");
  }

  async #extendOnce(ttlMs: number, timeoutMs: number): Promise<ExtendResult> {
    if (!this.#owner.isOpen) return { kind: "failed", votes: [] };
    const startedMs = this.#engine.clock.monotonicMs();
    this.#longestTtlMs = Math.max(this.#longestTtlMs, ttlMs);
    const round = this.#ask(ttlMs, timeoutMs);
    this.#underWay = round;
    const result = await round.result;
    this.#underWay = undefined;
    this.#wasExtended = true;
    this.#mayHoldOn |= round.sentTo;
    this.#applyResult(result, ttlMs, startedMs);
    this.#engine.renewal.reschedule(this);
    return result;
  }

  #ask(ttlMs: number, timeoutMs: number): ExtendRound {
    const { driftFactor } = this.#engine.options;
    const lease = { ttlMs, driftFactor, timeoutMs, end: this.#owner.end };
    if (this.#scripts !== undefined) return extendByScript(this.#engine, this.#scripts, lease);
    const { target, token, fencingToken, hadKeyOn } = this.grant;
    const isHeld = (): boolean => this.#owner.isOpen;
    return extendRound(this.#engine, { ...lease, target, token, fencingToken, isHeld, hadKeyOn });
  }

  #applyResult(result: ExtendResult, ttlMs: number, startedMs: number): void {
    const owner = this.#owner;
    if (!owner.isOpen) return;
    const { clock, events } = this.#engine;
    const policy = this.#policy ?? BY_THIRDS;
    this.#votes = result.kind === "extended" ? NO_VOTES : result.votes;
    if (result.kind === "lost") {
      owner.lose(result.reason);
    } else if (result.kind === "extended") {
      this.#ttlMs = ttlMs;
      owner.prolong(result.end);
      this.#renewAtMs = policy.dueMs(startedMs, ttlMs);
    } else {
      this.#renewAtMs = policy.retryMs(startedMs, clock.monotonicMs(), this.#ttlMs);
    }
    const tookMs = clock.monotonicMs() - startedMs;
    const facts = (): RedlockEvents["extended"] => ({
      resources: this.target.resources,
      fencingToken: this.grant.fencingToken,
      tookMs,
      remainingMs: owner.remaining(),
      ttlMs: this.#ttlMs,
    });
    if (result.kind === "extended") events.tell("extended", facts);
    else events.tell("extendFailed", () => ({ ...facts(), votes: result.votes }));
    if (result.kind === "extended") policy.onRenewed?.(tookMs);
    else if (result.kind === "failed") policy.onFailed?.(this.#unreachable(result, 1, startedMs));
  }

  #unreachable(result: ExtendResult & { kind: "failed" }, attempts: number, startedMs: number): QuorumUnreachableError {
    const { nodes, quorum, clock } = this.#engine;
    return new QuorumUnreachableError({
      resources: this.target.resources,
      votes: result.votes,
      nodeCount: nodes.length,
      quorum,
      attempts,
      elapsedMs: clock.monotonicMs() - startedMs,
    });
  }
}
