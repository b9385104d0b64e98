/**
 * Acquisition: attempts until one is granted, and in between the wait for one's turn.
 *
 * Guaranteed: first come first served among the waiters of all processes, as well as their clocks agree through the nodes'
 * time; one request per node and attempt; no attempt before a hint or the end of the lease that was told. A caller that
 * cancels gets its reason at once, and leaves neither a key nor a place in a queue behind. Not guaranteed: fairness between
 * locks of several resources, and towards clients that do not queue.
 */
import { type AttemptResult, attempt, type Grant } from "./attempt.ts";
import { CLAMP_US } from "./ballot.ts";
import type { Engine } from "./engine.ts";
import { type AttemptFacts, LockHeldError, QuorumUnreachableError, RedlockClosedError, type Vote } from "./errors.ts";
import type { Hints } from "./hints.ts";
import { Limit, type LimitReason } from "./limit.ts";
import type { LocalQueues, Place } from "./local-queue.ts";
import type { ResolvedAcquireOptions } from "./options.ts";
import type { Refusal } from "./quorum.ts";
import { releaseEverywhere } from "./release.ts";
import { retryDelayMs } from "./retry.ts";
import { Waiter } from "./waiting.ts";

/** Corrections of the ballot, and of a script cache that was flushed, are free; this bounds them. */
const MAX_CORRECTIONS = 5;
const MAX_RETRY_DELAY_MS = 1_000;

export interface AcquisitionContext {
  readonly engine: Engine;
  readonly hints: Hints;
  readonly queues: LocalQueues;
  readonly closed: AbortSignal;
  /** For how many milliseconds a lock of this `Redlock` holds the resource, unless it is extended; 0: none does. */
  readonly heldLocallyMs: (resource: string) => number;
  /** Calls `run` when none does any more; returns a function that stops that. */
  readonly onLocallyFree: (resource: string, run: () => void) => () => void;
}

export type AcquisitionResult =
  | { readonly kind: "acquired"; readonly grant: Grant }
  | { readonly kind: "held"; readonly error: LockHeldError }
  | { readonly kind: "failed"; readonly error: unknown };

export function acquire(
  context: AcquisitionContext,
  resources: readonly string[],
  options: ResolvedAcquireOptions,
): Promise<AcquisitionResult> {
  return new Acquisition(context, resources, options).run();
}

class Acquisition {
  readonly #context: AcquisitionContext;
  readonly #engine: Engine;
  readonly #resources: readonly string[];
  readonly #keys: readonly string[];
  readonly #slot: number;
  readonly #options: ResolvedAcquireOptions;
  readonly #limit: Limit;
  readonly #startedMs: number;
  readonly #startedWallMs: number;
  #order: number;
  #place: Place | undefined;
  #waiter: Waiter | undefined;
  #attempts = 0;
  #corrections = 0;
  #isCorrecting = false;
  /** The nodes had less time than `nodeTimeout` for the last attempt, because the caller's time was running out. */
  #isCutShort = false;
  #failures = 0;
  #votes: readonly Vote[] = [];
  #refusal: Refusal = "held";

  constructor(context: AcquisitionContext, resources: readonly string[], options: ResolvedAcquireOptions) {
    const { engine } = context;
    this.#context = context;
    this.#engine = engine;
    this.#resources = resources;
    this.#keys = engine.keysOf(resources);
    this.#slot = engine.slotOf(resources);
    this.#options = options;
    this.#startedMs = engine.clock.monotonicMs();
    this.#startedWallMs = engine.clock.wallMs();
    this.#order = options.order ?? engine.sightings.order(this.#startedWallMs);
    this.#limit = new Limit(engine.clock, {
      timeoutMs: options.timeout,
      signal: options.signal,
      closed: context.closed,
    });
  }

  async run(): Promise<AcquisitionResult> {
    const only = this.#resources.length === 1 ? this.#resources[0] : undefined;
    const waits = this.#options.timeout > 0 && this.#options.order === undefined;
    if (only !== undefined && waits) this.#place = this.#context.queues.enter(only);
    try {
      if (this.#place?.isFirst === false) {
        await this.#standInLine(this.#limit.until(this.#place.untilFirst()));
      }
      return this.#tell(await this.#attemptUntilGranted(this.#place?.resource));
    } finally {
      this.#place?.leave();
      this.#limit.dispose();
    }
  }

  async #attemptUntilGranted(localResource: string | undefined): Promise<AcquisitionResult> {
    for (;;) {
      if (localResource !== undefined && this.#context.heldLocallyMs(localResource) > 0) {
        await this.#standInLine(this.#untilLocallyFree(localResource));
      }
      const ended = this.#isFree ? this.#cancelled() : this.#limit.reason;
      if (ended !== undefined) return this.#end(ended);
      const result = await this.#attempt();
      if (result === undefined) continue;
      if (result.kind === "granted") {
        this.#waiter?.close();
        return { kind: "acquired", grant: result.grant };
      }
      await this.#pause(result);
    }
  }

  /**
   * Waits for something in this process. Whoever has waited enrols with the first attempt, over a channel that is open by then: a
   * few round trips later somebody of another process who came after would have overtaken.
   */
  async #standInLine(wait: Promise<void>): Promise<void> {
    const { hints } = this.#context;
    void hints.open();
    await wait;
    if (hints.isOpen) this.#waiter ??= new Waiter(this.#engine, hints, this.#order);
  }

  /** The one attempt of a timeout of 0, and every correction, are made even when the time is over. */
  get #isFree(): boolean {
    return this.#isCorrecting || (this.#attempts === 0 && this.#options.timeout === 0);
  }

  #cancelled(): LimitReason | undefined {
    const { reason } = this.#limit;
    return reason === "timeout" ? undefined : reason;
  }

  /** One attempt; undefined if the caller cancelled while it was under way. */
  #attempt(): Promise<AttemptResult | undefined> {
    const { nodeTimeout } = this.#engine.options;
    this.#attempts += 1;
    this.#waiter?.reset();
    const leftMs = this.#options.timeout > 0 ? Math.max(this.#limit.leftMs, 1) : nodeTimeout;
    this.#isCutShort = leftMs < nodeTimeout;
    const underWay = attempt(this.#engine, {
      resources: this.#resources,
      keys: this.#keys,
      slot: this.#slot,
      ttlMs: this.#options.ttl,
      timeoutMs: Math.min(nodeTimeout, leftMs),
      order: this.#order,
      member: this.#waiter?.member,
    });
    return this.#options.signal === undefined ? underWay : this.#unlessCancelled(underWay);
  }

  async #unlessCancelled(underWay: Promise<AttemptResult>): Promise<AttemptResult | undefined> {
    const result = await this.#limit.until(underWay);
    const cancelled = this.#cancelled() !== undefined;
    if (result !== undefined && !cancelled) return result;
    if (result === undefined && !cancelled) return await underWay;
    void underWay.then((late) => {
      if (late.kind === "granted") void releaseEverywhere(this.#engine, late.grant);
    });
    return undefined;
  }

  async #pause(refused: AttemptResult & { kind: "refused" }): Promise<void> {
    this.#note(refused);
    if (refused.refusal === "ballot" || refused.votes.some(isNoScript)) {
      this.#corrections += 1;
      this.#isCorrecting = this.#corrections <= MAX_CORRECTIONS;
      if (this.#isCorrecting) return;
    }
    this.#isCorrecting = false;
    this.#corrections = 0;
    if (this.#limit.reason !== undefined) return;
    this.#engine.events.tell("wait", () => ({ ...this.#facts(), votes: refused.votes }));
    if (refused.refusal === "held") {
      this.#failures = 0;
      await this.#untilTurn(refused);
      return;
    }
    this.#failures += 1;
    await this.#sleep();
  }

  /** What the caller is told if this was the end. No answer in too short a time says nothing about the nodes. */
  #note({ votes, refusal }: AttemptResult & { kind: "refused" }): void {
    if (this.#isCutShort && this.#attempts > 1 && refusal === "unreachable") return;
    this.#votes = votes;
    this.#refusal = refusal;
    this.#place?.note({ votes, refusal });
  }

  /** By the first refusal a clock is found to be wrong; what it is off by less is the noise of its measurement. */
  #correctOrder(): void {
    if (this.#options.order !== undefined) return;
    const corrected = this.#engine.sightings.order(this.#startedWallMs);
    if (Math.abs(corrected - this.#order) > CLAMP_US) this.#order = corrected;
  }

  async #untilTurn(refused: AttemptResult & { kind: "refused" }): Promise<void> {
    const { hints } = this.#context;
    if (this.#waiter === undefined) {
      if (!hints.isOpen) await this.#limit.until(hints.open());
      this.#correctOrder();
      this.#waiter = new Waiter(this.#engine, hints, this.#order);
      if (hints.isOpen) return;
    }
    if (hints.isOpen) await this.#waiter.untilTurn(refused.freeInMs, this.#limit);
    else await this.#sleep();
  }

  async #sleep(): Promise<void> {
    const { clock, options, random } = this.#engine;
    const pauseMs = retryDelayMs({
      failures: this.#failures,
      delayMs: options.retryDelay,
      maxDelayMs: MAX_RETRY_DELAY_MS,
      jitterMs: options.retryJitter,
      fraction: random.fraction(),
    });
    let cancel: () => void = () => undefined;
    const slept = new Promise<void>((resolve) => {
      cancel = clock.schedule(pauseMs, resolve, { keepAlive: true });
    });
    await this.#limit.until(slept);
    cancel();
  }

  async #untilLocallyFree(resource: string): Promise<void> {
    const { clock } = this.#engine;
    let stop: () => void = () => undefined;
    let cancel: () => void = () => undefined;
    const free = new Promise<void>((resolve) => {
      stop = this.#context.onLocallyFree(resource, resolve);
      // Keeps the process alive for a wait without a timeout.
      cancel = clock.schedule(this.#context.heldLocallyMs(resource), resolve, { keepAlive: true });
    });
    await this.#limit.until(free);
    stop();
    cancel();
  }

  #end(reason: LimitReason): AcquisitionResult {
    this.#waiter?.leave({ count: this.#resources.length, keys: this.#keys, slot: this.#slot });
    if (reason === "signal") return { kind: "failed", error: this.#options.signal?.reason };
    if (reason === "closed") return { kind: "failed", error: new RedlockClosedError(this.#resources) };
    const own = { votes: this.#votes, refusal: this.#refusal };
    const { votes, refusal } = this.#attempts > 0 ? own : (this.#place?.noted ?? own);
    const facts: AttemptFacts = {
      resources: this.#resources,
      votes,
      nodeCount: this.#engine.nodes.length,
      quorum: this.#engine.quorum,
      attempts: this.#attempts,
      elapsedMs: this.#engine.clock.monotonicMs() - this.#startedMs,
    };
    return refusal === "unreachable"
      ? { kind: "failed", error: new QuorumUnreachableError(facts) }
      : { kind: "held", error: new LockHeldError(facts) };
  }

  #facts(): { readonly resources: readonly string[]; readonly attempts: number; readonly waitMs: number } {
    return {
      resources: this.#resources,
      attempts: this.#attempts,
      waitMs: this.#engine.clock.monotonicMs() - this.#startedMs,
    };
  }

  #tell(result: AcquisitionResult): AcquisitionResult {
    this.#engine.events.tell("acquire", () => {
      if (result.kind === "acquired")
        return { ...this.#facts(), outcome: "acquired", fencingToken: result.grant.fencingToken };
      if (result.kind === "held") return { ...this.#facts(), outcome: "held", votes: this.#votes };
      const outcome = result.error instanceof QuorumUnreachableError ? "unreachable" : "cancelled";
      return { ...this.#facts(), outcome, votes: this.#votes };
    });
    return result;
  }
}

function isNoScript(vote: Vote): boolean {
  return vote.error?.startsWith("NOSCRIPT") === true;
}
