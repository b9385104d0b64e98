/**
 * One uninterrupted period of leadership.
 *
 * Guaranteed: from the deadline on, `isCurrent()` is false, whatever the network does. The deadline is `renewDeadline`
 * after the *start* of the last successful renewal, by the clock that sees it first. The first call after a freeze
 * reads the clocks, so it needs no timer and no reply. `signal` aborts at the latest in this call.
 *
 * Not guaranteed: that code without such a call stops. A frozen process can resume in the middle of a function. Only a
 * store that checks `fencingToken` refuses the late write.
 */
import { setMaxListeners } from "node:events";
import { onAbort, readClock, Schema, whenAborted } from "@x/redlock-core/kit";
import { everyPeriod } from "@x/redlock-core/protocol";
import { LeadershipLostError, type TermEndReason } from "../errors.ts";
import { channels } from "../kit/diagnostics.ts";
import type { LeaderTerm } from "../leader-term.ts";
import { isHeldBy, type NodeRecord } from "../rules/record.ts";
import { dateOf, durationOrNoneMs, proclaimedValue } from "../rules/values.ts";
import { Announcement } from "./announcement.ts";
import type { TermLease } from "./lease.ts";
import type { Standing } from "./standing.ts";
import { TermDeadline } from "./term-deadline.ts";
import { Upkeep } from "./upkeep.ts";

interface TermParts {
  readonly standing: Standing<HeldTerm>;
  readonly lease: TermLease;
  /** Called with each renewal. */
  readonly isEligible: () => Promise<boolean>;
  /** Starts the candidate's cooldown, after a resignation by the owner of the term. */
  readonly cool: (ms: number) => void;
}

type TermStatus =
  | { readonly name: "current" }
  /** The term was asked to end. Its lease is renewed until the task has ended. */
  | { readonly name: "ending"; readonly reason: TermEndReason; readonly sinceMs: number }
  /** The lease expires without a release, because work of the term may still be running. */
  | { readonly name: "abandoned"; readonly reason: TermEndReason; readonly sinceMs: number }
  | { readonly name: "over"; readonly reason: TermEndReason };

const RESIGN = new Schema({ cooldown: durationOrNoneMs.optional() });

export class HeldTerm implements LeaderTerm {
  readonly term: number;
  readonly acquiredAt: Date;
  readonly signal: AbortSignal;
  readonly #parts: TermParts;
  readonly #record: Announcement;
  readonly #deadline: TermDeadline;
  readonly #upkeep: Upkeep;
  readonly #controller = new AbortController();
  readonly #startedMs: number;
  /** Functions that remove the term's listeners when its lease is left. */
  readonly #unties: (() => void)[] = [];
  #status: TermStatus = { name: "current" };
  #isAdopted = false;
  #isElected = false;
  /** The cooldown that the owner of the term chose when it resigned. */
  #cooldownMs: number | undefined;
  #finishing: Promise<void> | undefined;

  constructor(parts: TermParts) {
    const { standing, lease } = parts;
    const { options, clock } = standing;
    this.#parts = parts;
    this.#startedMs = clock.monotonicMs();
    this.term = lease.fencingToken;
    this.signal = this.#controller.signal;
    // Each running tick adds a listener, so a hundred listeners are not a leak.
    setMaxListeners(0, this.signal);
    this.acquiredAt = dateOf(Math.round(clock.wallMs()));
    const sinceMs = this.acquiredAt.getTime();
    this.#record = new Announcement(standing, lease.token, { term: this.term, id: this.id, sinceMs });
    this.#deadline = new TermDeadline(clock, options.renewDeadline, lease);
    this.#deadline.watch(() => this.isCurrent());
    const upkeep = new Upkeep({ term: this, standing, record: this.#record, isEligible: parts.isEligible });
    this.#upkeep = upkeep;
    lease.keep({
      ...everyPeriod(options.retryPeriod),
      onRenewed: (tookMs) => upkeep.onRenewed(tookMs),
      onFailed: (error) => upkeep.onRenewFailed(error),
    });
    this.#unties.push(whenAborted(lease.signal, () => this.#onLockLost()));
  }

  get election(): string {
    return this.#parts.standing.options.name;
  }

  get id(): string {
    return this.#parts.standing.options.id;
  }

  get fencingToken(): number {
    return this.term;
  }

  get status(): TermStatus["name"] {
    return this.#status.name;
  }

  get reason(): TermEndReason | undefined {
    return this.#status.name === "current" ? undefined : this.#status.reason;
  }

  get sinceRenewalMs(): number {
    return this.#deadline.sinceRenewalMs;
  }

  /** The number of renewals that failed in a row. */
  get renewFailures(): number {
    return this.#upkeep.renewFailures;
  }

  isCurrent(): boolean {
    if (this.#status.name === "over") return false;
    const now = readClock(this.#parts.standing.clock);
    if (this.#deadline.leftMs(now) > 0) return true;
    this.#endNow(this.#deadline.reasonAt(now) ?? this.#lossReason);
    return false;
  }

  assertCurrent(): void {
    if (!this.isCurrent()) throw this.#lostError();
  }

  remaining(): number {
    return this.isCurrent() ? Math.max(0, this.#deadline.leftMs()) : 0;
  }

  async verify(): Promise<boolean> {
    if (!this.isCurrent()) return false;
    const { ledger } = this.#parts.standing;
    const isHeld = (views: readonly NodeRecord[]): boolean => isHeldBy(views, this.#parts.lease.token, ledger.quorum);
    return isHeld(await ledger.read(this.term, isHeld)) && this.isCurrent();
  }

  async proclaim(value: string): Promise<void> {
    const proclaimed = proclaimedValue.of("value", value);
    this.assertCurrent();
    this.#record.change(proclaimed);
    await this.announce();
    this.assertCurrent();
  }

  async resign(options: { readonly cooldown?: number | undefined } = {}): Promise<void> {
    const { cooldown = this.#parts.standing.options.cooldown.initial } = RESIGN.resolve(options);
    this.#cooldownMs ??= cooldown;
    this.beginEnd("resigned");
    if (!this.#isAdopted) await this.finish();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.resign();
  }

  /** Writes the record of this term to the nodes. @throws QuorumUnreachableError */
  async announce(): Promise<void> {
    const written = await this.#record.write();
    if (written.outcome === "stale") this.#endNow("taken");
    else if (written.isToResign) this.beginEnd("resign-requested");
  }

  /** Asks the task to end. The lease is renewed until then. Does nothing if the term is ending or over. */
  beginEnd(reason: TermEndReason): void {
    if (this.#status.name !== "current" || !this.isCurrent()) return;
    this.#status = { name: "ending", reason, sinceMs: this.#parts.standing.clock.monotonicMs() };
    this.#parts.standing.move({ type: "drain", reason });
    this.#controller.abort(this.#lostError());
  }

  /**
   * Marks that work under this term begins. From now on the term ends when `closed` aborts. The lease then expires, so
   * that the closing `Redlock` does not release the lock while the work runs. The record is sent after the grant and
   * before any request of the work. The term does not wait for the record, because the grant already names the leader.
   */
  enter(closed: AbortSignal): void {
    this.#isElected = true;
    this.#unties.push(onAbort(closed, () => this.#endNow("closed")));
    if (!this.#record.isSent) void this.announce().catch((error: unknown) => this.#upkeep.onNotWritten(error));
    this.#record.listen(() => this.#upkeep.start());
  }

  /** Marks that `run()` releases the lock after its task has ended, so `resign()` must not. */
  adopt(): void {
    this.#isAdopted = true;
  }

  /**
   * Marks the term as cleanly ended, and releases the lock. Repeated calls share one release. A term that was elected
   * and then lost keeps the lock until the lease ends, because its work may still be running.
   */
  finish(): Promise<void> {
    this.#finishing ??= this.#finish();
    return this.#finishing;
  }

  /** Stops the renewals of a term that was asked to end. The term is over at its deadline. */
  abandon(): void {
    if (this.#status.name !== "ending") return;
    this.#status = { ...this.#status, name: "abandoned" };
    this.#letGo();
  }

  async #finish(): Promise<void> {
    if (this.#cooldownMs !== undefined) this.#parts.cool(this.#cooldownMs);
    if (this.#status.name === "over" && this.#isElected) return;
    this.#endNow(this.reason ?? "resigned");
    const failed = (error: unknown): void => this.#parts.standing.report(error);
    const marking = this.#record.isSent ? this.#record.writeEnd(this.reason ?? "resigned").catch(failed) : undefined;
    // On one connection the mark arrives before the release. A renewal thread has its own connection, so the mark must
    // be confirmed first. If the mark is late, the next leader waits for `lockDelay`.
    if (this.#parts.standing.options.worker !== undefined) await marking;
    await Promise.all([marking, this.#parts.lease.release()]);
  }

  #endNow(reason: TermEndReason): void {
    if (this.#status.name === "over") return;
    const endingSinceMs = this.#status.name === "current" ? undefined : this.#status.sinceMs;
    this.#status = { name: "over", reason };
    this.#deadline.stop();
    this.#letGo();
    if (!this.signal.aborted) this.#controller.abort(this.#lostError());
    this.#reportEnd(reason, endingSinceMs);
  }

  #reportEnd(reason: TermEndReason, endingSinceMs: number | undefined): void {
    const { clock, events, term: known } = this.#parts.standing;
    const { election, id: candidate, term } = this;
    const now = clock.monotonicMs();
    const heldMs = now - this.#startedMs;
    const drainMs = endingSinceMs === undefined ? undefined : now - endingSinceMs;
    if (known === this) this.#parts.standing.move({ type: "ended" });
    if (!this.#isElected) return;
    channels.publish("ended", () => ({ election, candidate, term, reason, heldMs, drainMs }));
    events.emit("ended", { term, reason, heldMs });
  }

  #letGo(): void {
    this.#parts.lease.leave();
    for (const untie of this.#unties.splice(0)) untie();
    this.#record.stopListening();
  }

  /** Ends the term if another process took the lock. If only the lock's validity is over, reports a failed renewal. */
  #onLockLost(): void {
    const { lossReason, signal } = this.#parts.lease;
    if (lossReason === "expired") this.#upkeep.onRenewFailed(signal.reason);
    else this.#endNow(this.#lossReason);
  }

  get #lossReason(): TermEndReason {
    return this.#parts.lease.lossReason === "forced" ? "forced" : "taken";
  }

  #lostError(): LeadershipLostError {
    return new LeadershipLostError({ election: this.election, term: this.term, reason: this.reason ?? "taken" });
  }
}
