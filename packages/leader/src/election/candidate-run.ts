/**
 * A candidate waits for the lock, and then becomes the leader.
 *
 * Guaranteed: no error of a node ends a campaign, and a lock that does not lead to a leadership is released.
 */
import { QuorumUnreachableError, RedlockClosedError } from "@x/redlock-core";
import { asError, inTime, onAbort, sleep } from "@x/redlock-core/kit";
import { protocolOf } from "@x/redlock-core/protocol";
import { LeadershipLostError } from "../errors.ts";
import { channels } from "../kit/diagnostics.ts";
import type { ResolvedOptions } from "../options.ts";
import { endedCleanly } from "../rules/record.ts";
import { cooldownMs, jitteredMs } from "../rules/timings.ts";
import type { LeaseSource, TermLease } from "../term/lease.ts";
import type { Standing } from "../term/standing.ts";
import { HeldTerm } from "../term/term.ts";
import type { NodeWatch } from "./node-watch.ts";

interface CandidateParts {
  readonly standing: Standing<HeldTerm>;
  readonly leases: LeaseSource;
  readonly nodes: NodeWatch;
  /** Returns the time without a leader in ms. Undefined if this process did not see the last leader's end. */
  readonly vacancyMs: () => number | undefined;
}

/**
 * Reports whether the grant of the lock alone makes a candidate the leader. A candidate with `lockDelay` or `eligible`
 * may have to release the lock instead. Observers see such a leader only after its record is written.
 */
export function leadsOnGrant({ lockDelay, eligible }: ResolvedOptions): boolean {
  return lockDelay === 0 && eligible === undefined;
}

export class CandidateRun {
  readonly #parts: CandidateParts;
  readonly #standing: Standing<HeldTerm>;
  #coolUntilMs = 0;

  constructor(parts: CandidateParts) {
    this.#parts = parts;
    this.#standing = parts.standing;
  }

  /** Starts a cooldown: the next campaign waits for `ms`. */
  cool(ms: number): void {
    this.#coolUntilMs = this.#standing.clock.monotonicMs() + ms;
  }

  /** Makes one attempt. Resolves undefined if another candidate leads or this candidate is not eligible. */
  async tryOnce(signal: AbortSignal): Promise<HeldTerm | undefined> {
    const startedMs = this.#standing.clock.monotonicMs();
    signal.throwIfAborted();
    this.#standing.move({ type: "campaign" });
    if (!(await this.#isEligible())) return undefined;
    return await this.#takeOffice(await this.#parts.leases.acquire(signal), signal, startedMs);
  }

  /** Campaigns. Rejects only with the reason of `signal`, or because the `Redlock` of a renewal thread was closed. */
  async campaign(signal: AbortSignal): Promise<HeldTerm> {
    const standing = this.#standing;
    for (let failures = 0; ; ) {
      await this.#untilAllowed(signal);
      standing.move({ type: "campaign" });
      const startedMs = standing.clock.monotonicMs();
      try {
        const lease = await this.#parts.leases.acquire(signal, (votes) => this.#parts.nodes.refused(votes));
        standing.lastError = undefined;
        failures = 0;
        const term = await this.#takeOffice(lease, signal, startedMs);
        if (term !== undefined) return term;
      } catch (error) {
        signal.throwIfAborted();
        if (error instanceof RedlockClosedError) throw error;
        standing.lastError = asError(error);
        standing.report(error);
        failures = error instanceof QuorumUnreachableError ? 1 : failures + 1;
        const { retryPeriod, leaseDuration } = standing.options;
        await this.#sleep(cooldownMs({ initial: retryPeriod, max: leaseDuration }, failures), signal);
      }
    }
  }

  async #untilAllowed(signal: AbortSignal): Promise<void> {
    for (;;) {
      signal.throwIfAborted();
      const coolMs = this.#coolUntilMs - this.#standing.clock.monotonicMs();
      if (coolMs > 0) {
        this.#standing.move({ type: "cool" });
        await this.#sleep(coolMs, signal);
      } else if (await this.#isEligible()) return;
      else await this.#sleep(this.#standing.options.retryPeriod, signal);
    }
  }

  async #sleep(ms: number, signal: AbortSignal): Promise<void> {
    const { clock, options } = this.#standing;
    await sleep(clock, jitteredMs(ms, options.jitter, this.#standing.random()), signal);
  }

  /** Calls `eligible`. An error, or no answer within `retryPeriod`, counts as false. */
  async #isEligible(): Promise<boolean> {
    const { eligible, retryPeriod } = this.#standing.options;
    if (eligible === undefined) return true;
    try {
      return await inTime(this.#standing.clock, Promise.resolve(eligible()), {
        timeoutMs: retryPeriod,
        otherwise: `eligible() gave no answer within ${retryPeriod} ms`,
      });
    } catch (error) {
      this.#standing.report(error);
      return false;
    }
  }

  /** Makes the holder of the lock the leader. Resolves undefined if there is no lock, or if the lock was lost. */
  async #takeOffice(
    lease: TermLease | undefined,
    signal: AbortSignal,
    startedMs: number,
  ): Promise<HeldTerm | undefined> {
    if (lease === undefined) return undefined;
    const { clock, events, options, redlock } = this.#standing;
    const term = new HeldTerm({
      standing: this.#standing,
      lease,
      isEligible: () => this.#isEligible(),
      cool: (ms) => this.cool(ms),
    });
    if (!term.isCurrent()) {
      await term.finish();
      return undefined;
    }
    this.#standing.move({ type: "won", term });
    const untie = onAbort(signal, () => term.beginEnd("stopping"));
    try {
      signal.throwIfAborted();
      if (!leadsOnGrant(options)) await this.#beReady(term);
      term.assertCurrent();
      term.signal.throwIfAborted();
    } catch (error) {
      await term.finish();
      signal.throwIfAborted();
      if (error instanceof LeadershipLostError) return undefined;
      throw error;
    } finally {
      untie();
    }
    term.enter(protocolOf(redlock).closed);
    this.#standing.move({ type: "led" });
    const waitMs = clock.monotonicMs() - startedMs;
    const own = { election: options.name, candidate: options.id, term: term.term };
    channels.publish("elected", () => ({ ...own, waitMs, vacancyMs: this.#parts.vacancyMs() }));
    events.emit("elected", term);
    return term;
  }

  /**
   * Waits for `eligible` and `lockDelay`, either of which may keep the holder of the lock from leading. The record is
   * written afterwards. If the term ends earlier, the next winner must still see how the previous term ended.
   */
  async #beReady(term: HeldTerm): Promise<void> {
    const { clock, ledger, options } = this.#standing;
    if (!(await this.#isEligible()))
      throw new LeadershipLostError({ election: options.name, term: term.term, reason: "ineligible" });
    const views = await this.#insist(term, () => ledger.read(Number.MAX_SAFE_INTEGER));
    if (!endedCleanly(views, term.term)) await sleep(clock, options.lockDelay, term.signal);
    await this.#insist(term, () => term.announce());
  }

  /**
   * Repeats `step` while too few nodes answer, as long as the term lasts.
   * @throws any other error of `step`, or the reason of the term's signal
   */
  async #insist<T>(term: HeldTerm, step: () => Promise<T>): Promise<T> {
    const { clock, options } = this.#standing;
    for (;;) {
      try {
        return await step();
      } catch (error) {
        if (!(error instanceof QuorumUnreachableError)) throw error;
      }
      await sleep(clock, Math.ceil(options.retryPeriod / 4), term.signal);
    }
  }
}
