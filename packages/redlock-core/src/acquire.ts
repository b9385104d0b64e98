/**
 * Acquisition: attempts until one is granted, and in between the wait for one's turn.
 *
 * Guaranteed: first come first served among the waiters of all processes, as well as their clocks agree through the nodes'
 * time; one request per node and attempt; no attempt before a hint or the end of the lease that was told, where nodes can tell
 * (see waiting.ts). A caller that cancels gets its reason at once, and leaves neither a key nor a place in a queue behind. Not
 * guaranteed: fairness between locks of several resources, and towards clients that do not queue.
 */
import {
  type AttemptRequest,
  type AttemptResult,
  attempt,
  type Grant,
  isCorrectable,
  MAX_CORRECTIONS,
  type RefusedAttempt,
  startAttempt,
} from "./attempt.ts";
import { type Instant, readClock } from "./clock.ts";
import type { Engine } from "./engine.ts";
import { type AttemptFacts, LockHeldError, QuorumUnreachableError, RedlockClosedError, type Vote } from "./errors.ts";
import type { Events } from "./events.ts";
import type { Hints } from "./hints.ts";
import { Limit, type LimitReason } from "./limit.ts";
import type { LocalQueue, LocalQueues, Place } from "./local-queue.ts";
import type { Lock } from "./lock.ts";
import type { Target } from "./operation.ts";
import type { ResolvedAcquireOptions } from "./options.ts";
import type { Refusal } from "./quorum.ts";
import { releaseEverywhere } from "./release.ts";
import { retryDelayMs } from "./retry.ts";
import { Waiter } from "./waiting.ts";

const MAX_RETRY_DELAY_MS = 1_000;

export interface AcquisitionContext {
  readonly engine: Engine;
  readonly hints: Hints;
  readonly queues: LocalQueues;
  readonly closed: AbortSignal;
  /** Makes a lock of a grant; called before the next waiter of this process is. */
  readonly hold: (grant: Grant, options: ResolvedAcquireOptions, queue: LocalQueue | undefined) => Lock;
}

/** Rejects with what the caller is to be told, see `Redlock.acquire`. */
export function acquire(
  context: AcquisitionContext,
  resources: readonly string[],
  options: ResolvedAcquireOptions,
): Promise<Lock> {
  return new Promise((resolve, reject) => {
    startAcquisition(context, resources, options, resolve, reject);
  });
}

/** Calls one of the two, later; throws for resources that cannot be locked. */
export function startAcquisition(
  context: AcquisitionContext,
  resources: readonly string[],
  options: ResolvedAcquireOptions,
  onLock: (lock: Lock) => void,
  onFailure: (reason: unknown) => void,
): void {
  const { engine, queues } = context;
  const target = engine.targetOf(resources);
  const started = readClock(engine.clock);
  const only = resources.length === 1 && options.timeout > 0 && options.order === undefined ? resources[0] : undefined;
  const queue = only === undefined ? undefined : queues.of(only);
  const isUsual = queue !== undefined && options.signal === undefined && queue.isIdle;
  if (!isUsual) {
    new Acquisition(context, target, options, started).run(queue).then(onLock, onFailure);
    return;
  }
  const asking = new FirstAttempt(context, target, options, started, queue, onLock, onFailure);
  startAttempt(engine, asking, asking.onResult);
}

/** The usual acquisition, of a resource that nobody of this process has: what it asks for, and what becomes of it. */
class FirstAttempt implements AttemptRequest {
  readonly target: Target;
  readonly asked: Instant;
  readonly ttlMs: number;
  readonly timeoutMs: number;
  readonly onResult: (result: AttemptResult) => void;

  constructor(
    context: AcquisitionContext,
    target: Target,
    options: ResolvedAcquireOptions,
    asked: Instant,
    queue: LocalQueue,
    onLock: (lock: Lock) => void,
    onFailure: (reason: unknown) => void,
  ) {
    this.target = target;
    this.asked = asked;
    this.ttlMs = options.ttl;
    this.timeoutMs = Math.min(context.engine.options.nodeTimeout, options.timeout);
    const place = queue.enter();
    this.onResult = (result) => {
      if (result.kind !== "granted") {
        new Acquisition(context, target, options, asked).run(queue, place, result).then(onLock, onFailure);
        return;
      }
      const { grant } = result;
      const { events } = context.engine;
      if (events.isHeard("acquire")) tellAcquired(events, grant, asked);
      const lock = context.hold(grant, options, queue);
      place.leave();
      onLock(lock);
    };
  }
}

function tellAcquired(events: Events, { target, fencingToken, grantedMs }: Grant, asked: Instant): void {
  const waitMs = grantedMs - asked.monotonicMs;
  events.tell("acquire", () => ({
    resources: target.resources,
    attempts: 1,
    waitMs,
    outcome: "acquired",
    fencingToken,
  }));
}

class Acquisition {
  readonly #context: AcquisitionContext;
  readonly #engine: Engine;
  readonly #target: Target;
  readonly #options: ResolvedAcquireOptions;
  readonly #limit: Limit;
  readonly #started: Instant;
  #order: number;
  #place: Place | undefined;
  #waiter: Waiter | undefined;
  /** An attempt was made with the waiter: a node may have it in its queue. */
  #mayBeEnrolled = false;
  #hasStoodInLine = false;
  #attempts = 0;
  #corrections = 0;
  #isCorrecting = false;
  /** The nodes had less time than `nodeTimeout` for the last attempt, because the caller's time was running out. */
  #isCutShort = false;
  #failures = 0;
  #votes: readonly Vote[] = [];
  #refusal: Refusal = "held";
  #isNoted = false;

  constructor(context: AcquisitionContext, target: Target, options: ResolvedAcquireOptions, started: Instant) {
    const { engine } = context;
    this.#context = context;
    this.#engine = engine;
    this.#target = target;
    this.#options = options;
    this.#started = started;
    this.#order = options.order ?? engine.sightings.order(this.#started.wallMs);
    this.#limit = new Limit(engine.clock, {
      startMs: this.#started.monotonicMs,
      timeoutMs: options.timeout,
      signal: options.signal,
      closed: context.closed,
    });
  }

  /** `first`: a first attempt that was refused, at the place where it was made. */
  async run(queue: LocalQueue | undefined, at?: Place, first?: RefusedAttempt): Promise<Lock> {
    const place = at ?? queue?.enter();
    this.#place = place;
    try {
      if (first !== undefined) {
        this.#attempts = 1;
        this.#isCutShort = this.#options.timeout < this.#engine.options.nodeTimeout;
        if (this.#context.closed.aborted) throw this.#ended("closed");
        await this.#pause(first);
      }
      if (place?.isFirst === false) await this.#standInLine(this.#limit.until(place.untilFirst()));
      for (;;) {
        if (queue?.holder !== undefined && queue.holder.remaining() > 0) {
          await this.#standInLine(this.#untilLocallyFree(queue));
        }
        const now = readClock(this.#engine.clock);
        const reason = this.#limit.reasonAt(now.monotonicMs);
        if (reason !== undefined && !(reason === "timeout" && this.#isFree)) throw this.#ended(reason);
        const result = await this.#attempt(now);
        if (result === undefined) continue;
        if (result.kind === "refused") await this.#pause(result);
        else return this.#acquired(result.grant, queue);
      }
    } finally {
      place?.leave();
      this.#limit.dispose();
    }
  }

  #acquired(grant: Grant, queue: LocalQueue | undefined): Lock {
    this.#waiter?.close();
    const { fencingToken } = grant;
    this.#engine.events.tell("acquire", () => ({ ...this.#facts(), outcome: "acquired", fencingToken }));
    return this.#context.hold(grant, this.#options, queue);
  }

  /**
   * Waits for something in this process. Whoever has waited enrols with the first attempt, over a channel that is open by then: a
   * few round trips later somebody of another process who came after would have overtaken.
   */
  async #standInLine(wait: Promise<void>): Promise<void> {
    const { hints } = this.#context;
    void hints.open();
    if (!this.#hasStoodInLine) this.#engine.events.tell("wait", () => ({ ...this.#facts(), votes: [] }));
    this.#hasStoodInLine = true;
    await wait;
    if (!hints.isOpen || this.#waiter !== undefined) return;
    this.#correctOrder();
    this.#waiter = new Waiter(this.#engine, hints, this.#target, this.#order);
  }

  /** The one attempt of a timeout of 0, and every correction, are made even when the time is over. */
  get #isFree(): boolean {
    return this.#isCorrecting || (this.#attempts === 0 && this.#options.timeout === 0);
  }

  /** One attempt; undefined if the caller cancelled while it was under way. */
  #attempt(now: Instant): Promise<AttemptResult | undefined> {
    const { nodeTimeout } = this.#engine.options;
    this.#attempts += 1;
    this.#waiter?.reset();
    this.#mayBeEnrolled = this.#waiter !== undefined;
    const leftMs = this.#options.timeout > 0 ? Math.max(this.#limit.leftAtMs(now.monotonicMs), 1) : nodeTimeout;
    this.#isCutShort = leftMs < nodeTimeout;
    const underWay = attempt(this.#engine, {
      target: this.#target,
      asked: now,
      ttlMs: this.#options.ttl,
      timeoutMs: Math.min(nodeTimeout, leftMs),
      order: this.#order,
      enrolment: this.#waiter,
    });
    return this.#options.signal === undefined ? underWay : this.#unlessCancelled(underWay);
  }

  /** Whoever cancels is answered at once, also when the time is over and the attempt goes on. */
  async #unlessCancelled(underWay: Promise<AttemptResult>): Promise<AttemptResult | undefined> {
    const { clock } = this.#engine;
    const { signal } = this.#options;
    const { closed } = this.#context;
    const cancellation = new Limit(clock, { startMs: 0, timeoutMs: Number.POSITIVE_INFINITY, signal, closed });
    const result = await cancellation.until(underWay);
    cancellation.dispose();
    if (cancellation.reason === undefined) return result;
    void underWay.then((late) => {
      if (late.kind === "granted") void releaseEverywhere(this.#engine, late.grant);
    });
    return undefined;
  }

  async #pause(refused: RefusedAttempt): Promise<void> {
    this.#note(refused);
    if (isCorrectable(refused)) {
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

  /**
   * What the caller is told if this was the end. No answer in what others left of its time says nothing about the nodes; in the whole
   * of its time, it does.
   */
  #note({ votes, refusal }: RefusedAttempt): void {
    const hasWaited = this.#hasStoodInLine || this.#attempts > 1;
    if (this.#isCutShort && hasWaited && refusal === "unreachable") return;
    this.#isNoted = true;
    this.#votes = votes;
    this.#refusal = refusal;
    if (this.#place !== undefined) this.#place.queue.noted = { votes, refusal };
  }

  #correctOrder(): void {
    if (this.#options.order !== undefined) return;
    this.#order = this.#engine.sightings.correctOrder(this.#order, this.#started.wallMs);
  }

  async #untilTurn(refused: RefusedAttempt): Promise<void> {
    const { hints } = this.#context;
    if (this.#waiter === undefined) {
      if (!hints.isOpen) await this.#limit.until(hints.open());
      this.#correctOrder();
      this.#waiter = new Waiter(this.#engine, hints, this.#target, this.#order);
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

  async #untilLocallyFree(queue: LocalQueue): Promise<void> {
    const { clock } = this.#engine;
    let stop: () => void = () => undefined;
    let cancel: () => void = () => undefined;
    const free = new Promise<void>((resolve) => {
      stop = queue.onFree(resolve);
      // Keeps the process alive for a wait without a timeout.
      cancel = clock.schedule(queue.holder?.remaining() ?? 0, resolve, { keepAlive: true });
    });
    await this.#limit.until(free);
    stop();
    cancel();
  }

  /** What the caller is told. */
  #ended(reason: LimitReason): unknown {
    if (this.#mayBeEnrolled) this.#waiter?.leave();
    else this.#waiter?.close();
    const { resources } = this.#target;
    if (reason !== "timeout") {
      this.#engine.events.tell("acquire", () => ({ ...this.#facts(), outcome: "cancelled", votes: this.#votes }));
      return reason === "signal" ? this.#options.signal?.reason : new RedlockClosedError(resources);
    }
    const heldHere = resources.filter((resource) => this.#context.queues.holds(resource));
    const own = { votes: this.#votes, refusal: this.#refusal };
    const noted = heldHere.length > 0 ? undefined : this.#place?.queue.noted;
    const { votes, refusal } = this.#isNoted ? own : (noted ?? own);
    const facts: AttemptFacts = {
      resources,
      votes,
      nodeCount: this.#engine.nodes.length,
      quorum: this.#engine.quorum,
      attempts: this.#attempts,
      elapsedMs: this.#engine.clock.monotonicMs() - this.#started.monotonicMs,
      heldHere,
    };
    const outcome = refusal === "unreachable" ? "unreachable" : "held";
    this.#engine.events.tell("acquire", () => ({ ...this.#facts(), outcome, votes }));
    return outcome === "held" ? new LockHeldError(facts) : new QuorumUnreachableError(facts);
  }

  #facts(): { readonly resources: readonly string[]; readonly attempts: number; readonly waitMs: number } {
    return {
      resources: this.#target.resources,
      attempts: this.#attempts,
      waitMs: this.#engine.clock.monotonicMs() - this.#started.monotonicMs,
    };
  }
}
