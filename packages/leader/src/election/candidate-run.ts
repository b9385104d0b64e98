/**
 * A candidate waits for the lock, and goes from the lock to the leadership.
 *
 * It is guaranteed that no error of a node ends a campaign, and that a term which does not become a leadership is
 * given back.
 */
import { QuorumUnreachableError, RedlockClosedError } from "@x/redlock-core";
import { asError, inTime, onAbort, protocolOf, sleep } from "@x/redlock-core/protocol";
import { LeadershipLostError } from "../errors.ts";
import { publish } from "../kit/diagnostics.ts";
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
  /** Returns how long there has been no leader, if that was seen. */
  readonly vacancyMs: () => number | undefined;
}

/**
 * Whether a candidate is known to lead from the grant on. One that may have to give the lock back is known to lead only
 * when that is settled.
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

  /** Keeps the candidate out for so long before its next campaign. */
  cool(ms: number): void {
    this.#coolUntilMs = this.#standing.clock.monotonicMs() + ms;
  }

  /** Makes one attempt. It resolves undefined if another leads. */
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

  /** Asks `eligible`. A question that is not answered within a renewal's time counts as no. */
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

  /** Goes from the lock to the leadership. Resolves undefined without the lock, or if it was lost meanwhile. */
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
    const own = { election: options.name, id: options.id, term: term.term };
    publish("x.leader.elected", () => ({ ...own, waitMs, vacancyMs: this.#parts.vacancyMs() }));
    events.emit("elected", term);
    return term;
  }

  /**
   * Waits for what may keep the holder of the lock from leading. The nodes are told of the term after that: if it ends
   * before, the next winner must see how the one before it has ended.
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
   * @throws what else `step` throws, or the loss of the term
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
