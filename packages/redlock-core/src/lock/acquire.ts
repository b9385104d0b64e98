/**
 * An acquisition makes attempts until one is granted, and waits for its turn in between.
 *
 * It guarantees the following:
 * - The waiters of all processes are served first come, first served, as well as their clocks agree through the
 *   nodes' time.
 * - An attempt sends one request to each node.
 * - Where nodes can tell when to ask again, nothing is attempted before a hint, or the end of the lease that they told
 *   (see waiter.ts).
 * - A caller that cancels gets its reason at once, and leaves neither a key nor a place in a queue behind.
 *
 * It does not guarantee fairness between locks of several resources, or towards clients that do not queue.
 */

import { type AttemptFacts, LockHeldError, QuorumUnreachableError, RedlockClosedError } from "../api/errors.ts";
import type { RedlockEvents } from "../api/events.ts";
import type { ResolvedAcquireOptions } from "../api/options.ts";
import { type Instant, readClock } from "../kit/clock.ts";
import type { Emitter } from "../kit/emitter.ts";
import type { Engine } from "../rounds/engine.ts";
import type { Target } from "../rules/operation.ts";
import type { Refusal, Vote } from "../rules/quorum.ts";
import { retryDelayMs } from "../rules/retry.ts";
import { CallDeadline, type CallEnd } from "../waiting/call-deadline.ts";
import type { Hints } from "../waiting/hints.ts";
import type { LocalQueue, LocalQueues, LocalWaiter, Refused } from "../waiting/local-queue.ts";
import { Waiter } from "../waiting/waiter.ts";
import {
  Attempt,
  type AttemptResult,
  attempt,
  type Grant,
  isCorrectable,
  MAX_CORRECTIONS,
  type RefusedAttempt,
} from "./attempt.ts";
import type { Lock } from "./lock.ts";
import { releaseEverywhere } from "./release.ts";

const MAX_RETRY_DELAY_MS = 1_000;

export interface AcquisitionContext {
  readonly engine: Engine;
  readonly hints: Hints;
  readonly queues: LocalQueues;
  readonly closed: AbortSignal;
  /** Makes a lock of a grant. It is called before the next waiter of this process is called. */
  readonly hold: (grant: Grant, options: ResolvedAcquireOptions, queue: LocalQueue | undefined) => Lock;
  /**
   * Reports the end of an acquisition, once for each that was started: all that it asked for is then granted or taken
   * back.
   */
  readonly onEnd: () => void;
}

/**
 * Starts an acquisition, which later calls either `resolve` or `reject`. `reject` gets what the caller is to be told,
 * see `Redlock.acquire`.
 * @throws for resources that cannot be locked.
 */
export function startAcquisition(
  context: AcquisitionContext,
  resources: readonly string[],
  options: ResolvedAcquireOptions,
  resolve: (lock: Lock) => void,
  reject: (reason: unknown) => void,
): void {
  const { engine, queues } = context;
  const target = engine.targetOf(resources);
  const started = readClock(engine.clock);
  const only = resources.length === 1 && options.timeout > 0 && options.place === undefined ? resources[0] : undefined;
  const queue = only === undefined ? undefined : queues.of(only);
  const isUsual = queue !== undefined && options.signal === undefined && queue.isIdle;
  if (isUsual) {
    const local = queue.enter();
    try {
      new FirstAttempt(context, target, options, started, local, resolve, reject).start();
    } catch (error) {
      // Without randomness, or with a clock that tells no time: those who come later must not wait for this one.
      local.leave();
      throw error;
    }
    return;
  }
  const acquired = new Acquisition(context, target, options, started).run(queue);
  settle(context, acquired, resolve, reject);
}

function settle(
  context: AcquisitionContext,
  acquired: Promise<Lock>,
  resolve: (lock: Lock) => void,
  reject: (reason: unknown) => void,
): void {
  acquired.then(
    (lock) => settleLocked(context, lock, resolve, reject),
    (reason: unknown) => {
      context.onEnd();
      reject(reason);
    },
  );
}

function settleLocked(
  context: AcquisitionContext,
  lock: Lock,
  resolve: (lock: Lock) => void,
  reject: (reason: unknown) => void,
): void {
  if (!context.closed.aborted) {
    context.onEnd();
    resolve(lock);
    return;
  }
  void lock.release().then(() => {
    context.onEnd();
    reject(new RedlockClosedError(lock.resources));
  });
}

/**
 * The usual acquisition is this one object until it is refused. It is of a resource that nobody in this process
 * holds.
 */
class FirstAttempt extends Attempt {
  readonly #context: AcquisitionContext;
  readonly #options: ResolvedAcquireOptions;
  readonly #local: LocalWaiter;
  readonly #resolve: (lock: Lock) => void;
  readonly #reject: (reason: unknown) => void;

  constructor(
    context: AcquisitionContext,
    target: Target,
    options: ResolvedAcquireOptions,
    asked: Instant,
    local: LocalWaiter,
    resolve: (lock: Lock) => void,
    reject: (reason: unknown) => void,
  ) {
    const { engine } = context;
    const timeoutMs = Math.min(engine.options.nodeTimeout, options.timeout);
    super(engine, { target, asked, ttlMs: options.ttl, timeoutMs, note: options.note });
    this.#context = context;
    this.#options = options;
    this.#local = local;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  protected override onResult(result: AttemptResult): void {
    const context = this.#context;
    const options = this.#options;
    const local = this.#local;
    if (result.kind === "refused") {
      const acquired = new Acquisition(context, this.target, options, this.asked).run(local.queue, local, result);
      settle(context, acquired, this.#resolve, this.#reject);
      return;
    }
    const { events } = context.engine;
    if (events.isHeard("acquire")) tellAcquired(events, this, this.asked);
    const lock = context.hold(this, options, local.queue);
    local.leave();
    settleLocked(context, lock, this.#resolve, this.#reject);
  }
}

function tellAcquired(events: Emitter<RedlockEvents>, { target, fencingToken, granted }: Grant, asked: Instant): void {
  const waitMs = granted.monotonicMs - asked.monotonicMs;
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
  readonly #deadline: CallDeadline;
  readonly #started: Instant;
  #place: number;
  /** Stands for this call in the line of this process. */
  #local: LocalWaiter | undefined;
  #waiter: Waiter | undefined;
  /** Whether an attempt was made with the waiter, so that a node may have it in its queue. */
  #mayBeEnrolled = false;
  #hasStoodInLine = false;
  #attempts = 0;
  #corrections = 0;
  #isCorrecting = false;
  /**
   * Whether the nodes had less time than `nodeTimeout` for the last attempt, because the caller's time was running
   * out.
   */
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
    this.#place = options.place ?? engine.fencingClock.place(this.#started.wallMs);
    this.#deadline = new CallDeadline(engine.clock, {
      startMs: this.#started.monotonicMs,
      timeoutMs: options.timeout,
      signal: options.signal,
      closed: context.closed,
    });
  }

  /**
   * Runs the acquisition to its end. `first` is a first attempt that was refused, and `at` who made it.
   */
  async run(queue: LocalQueue | undefined, at?: LocalWaiter, first?: RefusedAttempt): Promise<Lock> {
    const local = at ?? queue?.enter();
    this.#local = local;
    try {
      if (first !== undefined) {
        this.#attempts = 1;
        this.#isCutShort = this.#options.timeout < this.#engine.options.nodeTimeout;
        if (this.#context.closed.aborted) throw this.#ended("closed");
        await this.#pause(first);
      }
      if (local?.isFirst === false) await this.#standInLine(this.#deadline.until(local.untilFirst()));
      for (;;) {
        if (queue?.holder !== undefined && queue.holder.remaining() > 0) {
          await this.#standInLine(this.#untilLocallyFree(queue));
        }
        const now = readClock(this.#engine.clock);
        const reason = this.#deadline.reasonAt(now.monotonicMs);
        if (reason !== undefined && !(reason === "timeout" && this.#isFree)) throw this.#ended(reason);
        const result = await this.#attempt(now);
        if (result === undefined) continue;
        if (result.kind === "refused") await this.#pause(result);
        else return this.#acquired(result.grant, queue);
      }
    } finally {
      if (this.#mayBeEnrolled) this.#waiter?.leave();
      else this.#waiter?.close();
      local?.leave();
      this.#deadline.dispose();
    }
  }

  #acquired(grant: Grant, queue: LocalQueue | undefined): Lock {
    this.#mayBeEnrolled = false;
    const { fencingToken } = grant;
    this.#engine.events.tell("acquire", () => ({ ...this.#facts(), outcome: "acquired", fencingToken }));
    return this.#context.hold(grant, this.#options, queue);
  }

  /**
   * Waits for something in this process. Afterwards the call enrols with its first attempt, over a channel that is
   * open by then. A few round trips later, a waiter of another process that came after it would have overtaken it.
   */
  async #standInLine(wait: Promise<void>): Promise<void> {
    const { hints } = this.#context;
    void hints.open();
    if (!this.#hasStoodInLine) this.#engine.events.tell("wait", () => ({ ...this.#facts(), votes: [] }));
    this.#hasStoodInLine = true;
    await wait;
    if (!hints.isOpen || this.#waiter !== undefined) return;
    this.#correctPlace();
    this.#waiter = new Waiter(this.#engine, hints, this.#target, this.#place);
  }

  /**
   * Whether the next attempt is made even when the time is over. That holds for the one attempt of a timeout of 0,
   * and for every correction.
   */
  get #isFree(): boolean {
    return this.#isCorrecting || (this.#attempts === 0 && this.#options.timeout === 0);
  }

  /** Makes one attempt. The result is undefined if the caller cancelled while it was under way. */
  #attempt(now: Instant): Promise<AttemptResult | undefined> {
    const { nodeTimeout } = this.#engine.options;
    this.#attempts += 1;
    this.#waiter?.reset();
    this.#mayBeEnrolled = this.#waiter !== undefined;
    const leftMs = this.#options.timeout > 0 ? Math.max(this.#deadline.leftAtMs(now.monotonicMs), 1) : nodeTimeout;
    this.#isCutShort = leftMs < nodeTimeout;
    const underWay = attempt(this.#engine, {
      target: this.#target,
      asked: now,
      ttlMs: this.#options.ttl,
      timeoutMs: Math.min(nodeTimeout, leftMs),
      place: this.#place,
      enrolment: this.#waiter,
      note: this.#options.note,
    });
    return this.#options.signal === undefined ? underWay : this.#unlessCancelled(underWay);
  }

  /** Answers a caller that cancels at once, also when the time is over and the attempt goes on. */
  async #unlessCancelled(underWay: Promise<AttemptResult>): Promise<AttemptResult | undefined> {
    const { clock } = this.#engine;
    const { signal } = this.#options;
    const { closed } = this.#context;
    const cancellation = new CallDeadline(clock, { timeoutMs: Number.POSITIVE_INFINITY, signal, closed });
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
    if (this.#deadline.reason !== undefined) return;
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
   * Notes what the caller is told if this was the end. A node that did not answer within what others left of the
   * caller's time says nothing. One that did not answer in the whole of that time does.
   */
  #note({ votes, refusal }: RefusedAttempt): void {
    const hasWaited = this.#hasStoodInLine || this.#attempts > 1;
    if (this.#isCutShort && hasWaited && refusal === "unreachable") return;
    this.#isNoted = true;
    this.#votes = votes;
    this.#refusal = refusal;
    if (this.#local !== undefined) this.#local.queue.noted = { votes, refusal };
  }

  #correctPlace(): void {
    if (this.#options.place !== undefined) return;
    this.#place = this.#engine.fencingClock.correctPlace(this.#place, this.#started.wallMs);
  }

  async #untilTurn(refused: RefusedAttempt): Promise<void> {
    const { hints } = this.#context;
    if (this.#waiter === undefined) {
      if (!hints.isOpen) await this.#deadline.until(hints.open());
      this.#correctPlace();
      this.#waiter = new Waiter(this.#engine, hints, this.#target, this.#place);
      if (hints.isOpen) return;
    }
    if (hints.isOpen) await this.#waiter.untilTurn(refused.freeInMs, this.#deadline);
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
    await this.#deadline.until(slept);
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
    await this.#deadline.until(free);
    stop();
    cancel();
  }

  /** Ends the acquisition, and returns what the caller is told. */
  #ended(reason: CallEnd): unknown {
    const { resources } = this.#target;
    if (reason !== "timeout") {
      this.#engine.events.tell("acquire", () => ({ ...this.#facts(), outcome: "cancelled", votes: this.#votes }));
      return reason === "signal" ? this.#options.signal?.reason : new RedlockClosedError(resources);
    }
    const heldHere = resources.filter((resource) => this.#context.queues.holds(resource));
    const own = { votes: this.#votes, refusal: this.#refusal };
    const { votes, refusal } = this.#isNoted || heldHere.length > 0 ? own : (this.#learntInLine() ?? own);
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

  /** Returns what who is first has learnt. While the nodes leave it without an answer, that is nothing but this. */
  #learntInLine(): Refused | undefined {
    const queue = this.#local?.queue;
    const isUnanswered = queue !== undefined && queue.holder === undefined && this.#attempts === 0;
    return queue?.noted ?? (isUnanswered ? { refusal: "unreachable", votes: [] } : undefined);
  }

  #facts(): { readonly resources: readonly string[]; readonly attempts: number; readonly waitMs: number } {
    return {
      resources: this.#target.resources,
      attempts: this.#attempts,
      waitMs: this.#engine.clock.monotonicMs() - this.#started.monotonicMs,
    };
  }
}
