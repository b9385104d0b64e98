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
import { QuorumUnreachableError } from "@x/redlock-core";
import { asError, type Instant, onAbort, readClock, Schema, whenAborted } from "@x/redlock-core/kit";
import { elapsedMs, everyPeriod, remainingMs, SUSPEND_LOOK_MS } from "@x/redlock-core/protocol";
import { LeadershipLostError, type TermEndReason } from "../errors.ts";
import { channels } from "../kit/diagnostics.ts";
import type { LeaderTerm } from "../leader-term.ts";
import type { Written } from "../record/ledger.ts";
import { reasonOfDeadline } from "../rules/deadline.ts";
import { isHeldBy, type NodeView, type TermRecord } from "../rules/record.ts";
import { dateOf, durationOrNoneMs, proclaimedValue } from "../rules/values.ts";
import type { TermLease } from "./lease.ts";
import type { Standing } from "./standing.ts";

interface TermParts {
  readonly standing: Standing<HeldTerm>;
  readonly lease: TermLease;
  /** Called with each renewal. */
  readonly isEligible: () => Promise<boolean>;
  /** Starts the candidate's cooldown, after a resignation by the owner of the term. */
  readonly cool: (ms: number) => void;
}

type Status =
  | { readonly name: "current" }
  /** The term was asked to end. Its lease is renewed until the task has ended. */
  | { readonly name: "ending"; readonly reason: TermEndReason }
  /** The lease expires without a release, because work of the term may still be running. */
  | { readonly name: "abandoned"; readonly reason: TermEndReason }
  | { readonly name: "over"; readonly reason: TermEndReason };

const RESIGN = new Schema({ cooldown: durationOrNoneMs.optional() });

export class HeldTerm implements LeaderTerm {
  readonly election: string;
  readonly id: string;
  readonly term: number;
  readonly fencingToken: number;
  readonly acquiredAt: Date;
  readonly signal: AbortSignal;
  readonly #standing: Standing<HeldTerm>;
  readonly #lease: TermLease;
  readonly #isEligible: TermParts["isEligible"];
  readonly #cool: TermParts["cool"];
  readonly #controller = new AbortController();
  readonly #startedMs: number;
  /** Functions that remove the term's listeners when its lease is left. */
  readonly #unties: (() => void)[] = [];
  #status: Status = { name: "current" };
  #value: string | undefined;
  #revision = 0;
  #isTending = false;
  #isAdopted = false;
  #isElected = false;
  #endingSinceMs: number | undefined;
  /** The cooldown that the owner of the term chose when it resigned. */
  #cooldownMs: number | undefined;
  #finishing: Promise<void> | undefined;
  #cancelDeadline: () => void = () => undefined;
  #stopListening: () => void = () => undefined;
  #renewFailures = 0;
  /** The first renewal after this time repeats the record. Infinity until the record was sent for the first time. */
  #recordDueMs: number = Number.POSITIVE_INFINITY;

  constructor({ standing, lease, isEligible, cool }: TermParts) {
    const { options, clock } = standing;
    this.#standing = standing;
    this.#lease = lease;
    this.#isEligible = isEligible;
    this.#cool = cool;
    this.#startedMs = clock.monotonicMs();
    this.election = options.name;
    this.id = options.id;
    this.term = lease.fencingToken;
    this.fencingToken = lease.fencingToken;
    this.signal = this.#controller.signal;
    // Each running tick adds a listener, so a hundred listeners are not a leak.
    setMaxListeners(0, this.signal);
    this.#value = options.value;
    this.acquiredAt = dateOf(Math.round(clock.wallMs()));
    this.#armDeadline();
    lease.keep({
      ...everyPeriod(options.retryPeriod),
      onRenewed: (tookMs) => this.#onRenewed(tookMs),
      onFailed: (error) => this.#onRenewFailed(error),
    });
    this.#unties.push(whenAborted(lease.signal, () => this.#onLockLost()));
  }

  get status(): Status["name"] {
    return this.#status.name;
  }

  get reason(): TermEndReason | undefined {
    return this.#status.name === "current" ? undefined : this.#status.reason;
  }

  get sinceRenewalMs(): number {
    return elapsedMs(this.#lease.start, readClock(this.#standing.clock));
  }

  /** The number of renewals that failed in a row. */
  get renewFailures(): number {
    return this.#renewFailures;
  }

  isCurrent(): boolean {
    if (this.#status.name === "over") return false;
    const { options, clock } = this.#standing;
    const now = readClock(clock);
    if (this.#remainingAt(now) > 0) return true;
    const { start } = this.#lease;
    const isLate = elapsedMs(start, now) >= options.renewDeadline;
    this.#endNow(isLate ? reasonOfDeadline(start, options.renewDeadline, now) : this.#lossReason);
    return false;
  }

  assertCurrent(): void {
    if (!this.isCurrent()) throw this.#lostError();
  }

  remaining(): number {
    return this.isCurrent() ? Math.max(0, this.#remainingAt(readClock(this.#standing.clock))) : 0;
  }

  async verify(): Promise<boolean> {
    if (!this.isCurrent()) return false;
    const { ledger } = this.#standing;
    const isHeld = (views: readonly NodeView[]): boolean => isHeldBy(views, this.#lease.token, ledger.quorum);
    return isHeld(await ledger.read(this.term, isHeld)) && this.isCurrent();
  }

  async proclaim(value: string): Promise<void> {
    const proclaimed = proclaimedValue.of("value", value);
    this.assertCurrent();
    this.#value = proclaimed;
    this.#revision += 1;
    await this.announce();
    this.assertCurrent();
  }

  async resign(options: { readonly cooldown?: number | undefined } = {}): Promise<void> {
    const { cooldown = this.#standing.options.cooldown.initial } = RESIGN.resolve(options);
    this.#cooldownMs ??= cooldown;
    this.beginEnd("resigned");
    if (!this.#isAdopted) await this.finish();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.resign();
  }

  /** Writes the record of this term to the nodes. @throws QuorumUnreachableError */
  async announce(): Promise<void> {
    const { options, clock } = this.#standing;
    this.#recordDueMs = clock.monotonicMs() + options.leaseDuration - options.retryPeriod;
    const written = await this.#write(false).catch((error: unknown) => {
      this.#recordDueMs = 0;
      throw error;
    });
    if (written.outcome === "stale") this.#endNow("taken");
    else if (written.isToResign) this.beginEnd("resign-requested");
  }

  /** Asks the task to end. The lease is renewed until then. Does nothing if the term is ending or over. */
  beginEnd(reason: TermEndReason): void {
    if (this.#status.name !== "current" || !this.isCurrent()) return;
    this.#status = { name: "ending", reason };
    this.#endingSinceMs = this.#standing.clock.monotonicMs();
    this.#standing.move({ type: "drain", reason });
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
    if (!this.#isAnnounced) void this.announce().catch((error: unknown) => this.#onNotWritten(error));
    // In a later turn, so that the task does not wait. A request to resign before then is seen with the next record.
    this.#stopListening = this.#standing.clock.schedule(0, () => this.#listen());
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
    this.#status = { name: "abandoned", reason: this.#status.reason };
    this.#letGo();
  }

  async #finish(): Promise<void> {
    if (this.#cooldownMs !== undefined) this.#cool(this.#cooldownMs);
    if (this.#status.name === "over" && this.#isElected) return;
    this.#endNow(this.reason ?? "resigned");
    const failed = (error: unknown): void => this.#standing.report(error);
    const marking = this.#isAnnounced ? this.#write(true).catch(failed) : undefined;
    // On one connection the mark arrives before the release. A renewal thread has its own connection, so the mark must
    // be confirmed first. If the mark is late, the next leader waits for `lockDelay`.
    if (this.#standing.options.worker !== undefined) await marking;
    await Promise.all([marking, this.#lease.release()]);
  }

  get #isAnnounced(): boolean {
    return this.#recordDueMs < Number.POSITIVE_INFINITY;
  }

  #write(ended: boolean): Promise<Written> {
    const { clock, instance, ledger } = this.#standing;
    const { reason } = this;
    const isEnd = ended && reason !== undefined;
    const record: TermRecord = {
      term: this.term,
      id: this.id,
      instance,
      sinceMs: this.acquiredAt.getTime(),
      ...(this.#value === undefined ? {} : { value: this.#value }),
      ...(isEnd ? { untilMs: Math.round(clock.wallMs()), reason } : {}),
    };
    // A node replaces a record only by a later revision.
    const revision = isEnd ? this.#revision + 1 : this.#revision;
    return ledger.write({ record, revision, token: this.#lease.token, ended });
  }

  #remainingAt(now: Instant): number {
    const untilDeadlineMs = this.#standing.options.renewDeadline - elapsedMs(this.#lease.start, now);
    return Math.min(untilDeadlineMs, remainingMs(this.#lease.validUntil, now));
  }

  /**
   * Arms the timer of the deadline. The timer also fires before the deadline, at least every `SUSPEND_LOOK_MS`, and is
   * armed again if the term is still current. Timers stand still while the machine is suspended, so after a suspend
   * past the deadline no timer would be due.
   */
  #armDeadline(): void {
    const afterMs = Math.max(0, Math.min(this.#remainingAt(readClock(this.#standing.clock)), SUSPEND_LOOK_MS));
    this.#cancelDeadline = this.#standing.clock.schedule(Math.ceil(afterMs), () => {
      if (this.isCurrent()) this.#armDeadline();
    });
  }

  #endNow(reason: TermEndReason): void {
    if (this.#status.name === "over") return;
    this.#status = { name: "over", reason };
    this.#cancelDeadline();
    this.#letGo();
    if (!this.signal.aborted) this.#controller.abort(this.#lostError());
    this.#tellOver(reason);
  }

  #tellOver(reason: TermEndReason): void {
    const { clock, events, term: known } = this.#standing;
    const { election, id: candidate, term } = this;
    const now = clock.monotonicMs();
    const heldMs = now - this.#startedMs;
    const drainMs = this.#endingSinceMs === undefined ? undefined : now - this.#endingSinceMs;
    if (known === this) this.#standing.move({ type: "ended" });
    if (!this.#isElected) return;
    channels.publish("ended", () => ({ election, candidate, term, reason, heldMs, drainMs }));
    events.emit("ended", { term, reason, heldMs });
  }

  #letGo(): void {
    this.#lease.leave();
    for (const untie of this.#unties.splice(0)) untie();
    // In a later turn, so that the release of the lock is sent first.
    this.#standing.clock.schedule(0, () => this.#stopListening());
  }

  /** Ends the term if another process took the lock. If only the lock's validity is over, reports a failed renewal. */
  #onLockLost(): void {
    const { lossReason, signal } = this.#lease;
    if (lossReason === "expired") this.#onRenewFailed(signal.reason);
    else this.#endNow(this.#lossReason);
  }

  get #lossReason(): TermEndReason {
    return this.#lease.lossReason === "forced" ? "forced" : "taken";
  }

  #onRenewed(tookMs: number): void {
    if (!this.isCurrent()) return;
    this.#renewFailures = 0;
    this.#standing.lastError = undefined;
    this.#standing.events.emit("renewed", { term: this.term, tookMs, remainingMs: this.remaining() });
    this.#tendSoon();
  }

  #onRenewFailed(error: unknown): void {
    this.#renewFailures += 1;
    const remainingMs = this.remaining();
    this.#standing.lastError = asError(error);
    this.#standing.events.emit("renewFailed", { term: this.term, error, remainingMs });
    this.#tendSoon();
  }

  /** Checks the eligibility, and writes the record if it is due. Does nothing while an earlier check runs. */
  #tendSoon(): void {
    if (this.#isTending || this.#status.name !== "current") return;
    this.#isTending = true;
    void this.#tend().finally(() => {
      this.#isTending = false;
    });
  }

  /** Writing the record restores it on nodes that lost it, and finds requests to resign whose message was lost. */
  async #tend(): Promise<void> {
    try {
      if (this.#standing.clock.monotonicMs() >= this.#recordDueMs) await this.announce();
      if (!(await this.#isEligible())) this.beginEnd("ineligible");
    } catch (error) {
      this.#onNotWritten(error);
    }
  }

  /** Reports why the record was not written. If too few nodes answered, the next renewal repeats the write instead. */
  #onNotWritten(error: unknown): void {
    if (!(error instanceof QuorumUnreachableError)) this.#standing.report(error);
  }

  /** Listens for requests to resign. If a message is lost, the next write of the record finds the request. */
  #listen(): void {
    const listening = this.#standing.ledger.listen((news) => {
      if (news !== "resign") return;
      this.#recordDueMs = 0;
      this.#tendSoon();
    });
    listening.catch((error: unknown) => this.#standing.report(error));
    this.#stopListening = () => void listening.then((stop) => stop()).catch(() => undefined);
  }

  #lostError(): LeadershipLostError {
    return new LeadershipLostError({ election: this.election, term: this.term, reason: this.reason ?? "taken" });
  }
}
