/**
 * An acquisition makes attempts until one is granted, and waits for its turn in between.
 *
 * It guarantees the following:
 * - The waiters of all processes are served first come, first served, as well as their clocks agree through the
 *   nodes' time.
 * - An attempt sends one request to each node.
 * - Where nodes can tell when to ask again, nothing is attempted before a hint, or the end of the lease that they told
 *   (see waiter.ts).
 * - A caller that cancels gets its reason at once, and leaves neither a key nor a place in a line behind.
 *
 * It does not guarantee fairness between locks of several resources, or towards clients that stand in no line.
 */

import {
  type AttemptFacts,
  LockHeldError,
  QuorumUnreachableError,
  RedlockClosedError,
  RedlockError,
} from "../api/errors.ts";
import { traces } from "../api/events.ts";
import type { ResolvedAcquireOptions } from "../api/options.ts";
import { type Instant, readClock } from "../kit/clock.ts";
import { type Deferred, deferred } from "../kit/signals.ts";
import type { Engine } from "../rounds/engine.ts";
import type { Target } from "../rules/operation.ts";
import { retryDelayMs } from "../rules/retry.ts";
import { CallDeadline, type CallEnd } from "../waiting/call-deadline.ts";
import type { LocalLine, LocalWaiter, Refused } from "../waiting/local-line.ts";
import { Waiter } from "../waiting/waiter.ts";
import {
  Attempt,
  type AttemptResult,
  attempt,
  type Grant,
  isCorrectable,
  MAX_CORRECTIONS,
  type RefusedAttempt,
  tellAcquired,
} from "./attempt.ts";
import { HeldLease } from "./lease.ts";
import type { Lock } from "./lock.ts";
import { releaseEverywhere } from "./release.ts";
import type { Session } from "./session.ts";

const MAX_RETRY_DELAY_MS = 1_000;

type Acquire<Result> = (
  session: Session,
  resources: readonly string[],
  options: ResolvedAcquireOptions,
) => Promise<Result>;

/** See `Redlock.acquire`. */
export const acquire: Acquire<Lock> = async (session, resources, options) => {
  try {
    return await traced(acquireUntraced, session, resources, options);
  } catch (error) {
    throw atCaller(error, options);
  }
};

/** See `Redlock.tryAcquire`. `options` have a timeout of 0. */
export const tryAcquire: Acquire<Lock | null> = (session, resources, options) =>
  traced(tryUntraced, session, resources, options);

function traced<Result>(
  call: Acquire<Result>,
  session: Session,
  resources: readonly string[],
  options: ResolvedAcquireOptions,
): Promise<Result> {
  return traces.acquire.isHeard
    ? traces.acquire.run({ resources }, call.bind(undefined, session, resources, options))
    : call(session, resources, options);
}

async function tryUntraced(
  session: Session,
  resources: readonly string[],
  options: ResolvedAcquireOptions,
): Promise<Lock | null> {
  try {
    return await acquireUntraced(session, resources, options);
  } catch (error) {
    if (error instanceof LockHeldError && error !== options.signal?.reason) return null;
    throw atCaller(error, options);
  }
}

/**
 * Gives an error of the acquisition the stack of the call that waits for it. The error was made when nodes or a clock
 * ended the acquisition, which says nothing of the caller. Only a call that fails pays for its stack.
 */
function atCaller(error: unknown, { signal }: ResolvedAcquireOptions): unknown {
  if (error instanceof RedlockError && error !== signal?.reason) Error.captureStackTrace(error);
  return error;
}

/** Acquires with one promise per call, because that is what a lock costs the client. */
export function acquireUntraced(
  session: Session,
  resources: readonly string[],
  options: ResolvedAcquireOptions,
): Promise<Lock> {
  const call = deferred<Lock>();
  try {
    session.assertOpen(resources, options.signal);
    start(session, resources, options, call);
    session.calls.begin();
  } catch (error) {
    call.reject(error);
  }
  return call.promise;
}

/** @throws for resources that cannot be locked. */
function start(
  session: Session,
  resources: readonly string[],
  options: ResolvedAcquireOptions,
  call: Deferred<Lock>,
): void {
  const { engine, lines } = session;
  const target = engine.targetOf(resources);
  const started = readClock(engine.clock);
  const only = resources.length === 1 && options.timeout > 0 && options.place === undefined ? resources[0] : undefined;
  const line = only === undefined ? undefined : lines.of(only);
  if (line === undefined || options.signal !== undefined || !line.isIdle) {
    settle(session, new Acquisition(session, target, options, started).run(line), call);
    return;
  }
  const local = line.enter();
  try {
    new FirstAttempt(session, target, options, started, local, call).start();
  } catch (error) {
    // Without randomness, or with a clock that tells no time: those who come later must not wait for this one.
    local.leave();
    throw error;
  }
}

function settle(session: Session, acquired: Promise<Lock>, call: Deferred<Lock>): void {
  acquired.then(
    (lock) => settleLocked(session, lock, call),
    (reason: unknown) => {
      session.calls.end();
      call.reject(reason);
    },
  );
}

function settleLocked(session: Session, lock: Lock, call: Deferred<Lock>): void {
  if (!session.closed.aborted) {
    session.calls.end();
    call.resolve(lock);
    return;
  }
  void lock.release().then(() => {
    session.calls.end();
    call.reject(new RedlockClosedError(lock.resources));
  });
}

/** Makes a lock of a grant. It is called before the next waiter of this process is called. */
function hold(
  { engine, lines, renewal }: Session,
  grant: Grant,
  options: ResolvedAcquireOptions,
  line: LocalLine | undefined,
): Lock {
  const own = line === undefined ? grant.target.resources.map((name) => lines.of(name)) : [line];
  return new HeldLease(engine, grant, { options, lines: own, renewal }).lock;
}

/** The usual acquisition, of a resource that nobody in this process holds, is this one object until it is refused. */
class FirstAttempt extends Attempt {
  readonly #session: Session;
  readonly #options: ResolvedAcquireOptions;
  readonly #local: LocalWaiter;
  readonly #call: Deferred<Lock>;

  constructor(
    session: Session,
    target: Target,
    options: ResolvedAcquireOptions,
    asked: Instant,
    local: LocalWaiter,
    call: Deferred<Lock>,
  ) {
    const { engine } = session;
    const timeoutMs = Math.min(engine.options.nodeTimeout, options.timeout);
    super(engine, { target, asked, ttlMs: options.ttl, timeoutMs, note: options.note });
    this.#session = session;
    this.#options = options;
    this.#local = local;
    this.#call = call;
  }

  protected override onResult(result: AttemptResult): void {
    const session = this.#session;
    const options = this.#options;
    const local = this.#local;
    if (result.kind === "refused") {
      const acquired = new Acquisition(session, this.target, options, this.asked).run(local.line, local, result);
      settle(session, acquired, this.#call);
      return;
    }
    tellAcquired(session.engine.events, this, this.granted.monotonicMs - this.asked.monotonicMs);
    const lock = hold(session, this, options, local.line);
    local.leave();
    settleLocked(session, lock, this.#call);
  }
}

class Acquisition {
  readonly #session: Session;
  readonly #engine: Engine;
  readonly #target: Target;
  readonly #options: ResolvedAcquireOptions;
  readonly #deadline: CallDeadline;
  readonly #started: Instant;
  #place: number;
  /** Stands for this call in the line of this process. */
  #local: LocalWaiter | undefined;
  #waiter: Waiter | undefined;
  /** Whether an attempt was made with the waiter, so that a node may have it in its line. */
  #mayBeEnrolled = false;
  #hasStoodInLine = false;
  #attempts = 0;
  #corrections = 0;
  /** Whether the caller's time left the nodes less than `nodeTimeout` for the last attempt. */
  #isCutShort = false;
  #failures = 0;
  /** What the caller is told if its time is over. */
  #noted: Refused | undefined;

  constructor(session: Session, target: Target, options: ResolvedAcquireOptions, started: Instant) {
    const { engine } = session;
    this.#session = session;
    this.#engine = engine;
    this.#target = target;
    this.#options = options;
    this.#started = started;
    this.#place = options.place ?? engine.fencingClock.place(this.#started.wallMs);
    this.#deadline = new CallDeadline(engine.clock, {
      startMs: this.#started.monotonicMs,
      timeoutMs: options.timeout,
      signal: options.signal,
      closed: session.closed,
    });
  }

  /** Runs the acquisition to its end. `first` is a first attempt that was refused, and `at` who made it. */
  async run(line: LocalLine | undefined, at?: LocalWaiter, first?: RefusedAttempt): Promise<Lock> {
    const local = at ?? line?.enter();
    this.#local = local;
    try {
      if (first !== undefined) {
        this.#attempts = 1;
        this.#isCutShort = this.#options.timeout < this.#engine.options.nodeTimeout;
        if (this.#session.closed.aborted) throw this.#ended("closed");
        await this.#pause(first);
      }
      if (local?.isFirst === false) await this.#standInLine(this.#deadline.until(local.untilFirst()));
      for (;;) {
        if (line?.holder !== undefined && line.holder.remaining() > 0) {
          await this.#standInLine(this.#untilLocallyFree(line));
        }
        const now = readClock(this.#engine.clock);
        const reason = this.#deadline.reasonAt(now.monotonicMs);
        if (reason !== undefined && !(reason === "timeout" && this.#isFree)) throw this.#ended(reason);
        const result = await this.#attempt(now);
        if (result === undefined) continue;
        if (result.kind === "refused") await this.#pause(result);
        else return this.#acquired(result.grant, line);
      }
    } finally {
      if (this.#mayBeEnrolled) this.#waiter?.leave();
      else this.#waiter?.close();
      local?.leave();
      this.#deadline.dispose();
    }
  }

  #acquired(grant: Grant, line: LocalLine | undefined): Lock {
    this.#mayBeEnrolled = false;
    const { fencingToken } = grant;
    this.#engine.events.tell("acquire", () => ({ ...this.#facts(), outcome: "acquired", fencingToken }));
    return hold(this.#session, grant, this.#options, line);
  }

  /**
   * Waits for something in this process. Afterwards the call enrols with its first attempt, over a channel that is
   * open by then. A few round trips later, a waiter of another process that came after it would have overtaken it.
   */
  async #standInLine(wait: Promise<void>): Promise<void> {
    const { hints } = this.#session;
    void hints.open();
    if (!this.#hasStoodInLine) this.#engine.events.tell("wait", () => ({ ...this.#facts(), votes: [] }));
    this.#hasStoodInLine = true;
    await wait;
    if (!hints.isOpen || this.#waiter !== undefined) return;
    this.#correctPlace();
    this.#waiter = new Waiter(this.#engine, hints, this.#target, this.#place);
  }

  /** Whether the next attempt is made even when the time is over: the one of a timeout of 0, and every correction. */
  get #isFree(): boolean {
    return this.#corrections > 0 || (this.#attempts === 0 && this.#options.timeout === 0);
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
    const { closed } = this.#session;
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
    if (isCorrectable(refused) && this.#corrections < MAX_CORRECTIONS) {
      this.#corrections += 1;
      return;
    }
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
    this.#noted = { votes, refusal, atMs: this.#engine.clock.monotonicMs() };
    if (this.#local !== undefined) this.#local.line.noted = this.#noted;
  }

  #correctPlace(): void {
    if (this.#options.place !== undefined) return;
    this.#place = this.#engine.fencingClock.correctPlace(this.#place, this.#started.wallMs);
  }

  async #untilTurn(refused: RefusedAttempt): Promise<void> {
    const { hints } = this.#session;
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
    await this.#deadline.untilCalled((wake) => clock.schedule(pauseMs, wake, { keepAlive: true }));
  }

  async #untilLocallyFree(line: LocalLine): Promise<void> {
    const { clock } = this.#engine;
    await this.#deadline.untilCalled((wake) => {
      const stop = line.onFree(wake);
      // Keeps the process alive for a wait without a timeout.
      const cancel = clock.schedule(line.holder?.remaining() ?? 0, wake, { keepAlive: true });
      return () => {
        stop();
        cancel();
      };
    });
  }

  /** Ends the acquisition, and returns what the caller is told. */
  #ended(reason: CallEnd): unknown {
    const { resources } = this.#target;
    if (reason !== "timeout") {
      this.#engine.events.tell("acquire", () => ({
        ...this.#facts(),
        outcome: "cancelled",
        votes: this.#noted?.votes ?? [],
      }));
      return reason === "signal" ? this.#options.signal?.reason : new RedlockClosedError(resources);
    }
    const heldHere = resources.filter((resource) => this.#session.lines.holds(resource));
    const learnt = heldHere.length > 0 ? undefined : this.#learntInLine();
    const noted: Refused = this.#noted ?? learnt ?? { votes: [], refusal: "held" };
    const { votes, refusal } = noted;
    const nowMs = this.#engine.clock.monotonicMs();
    const facts: AttemptFacts = {
      resources,
      votes,
      nodeCount: this.#engine.nodes.length,
      quorum: this.#engine.quorum,
      attempts: this.#attempts,
      elapsedMs: this.#facts().waitMs,
      heldHere,
      votesAgeMs: nowMs - (noted.atMs ?? nowMs),
    };
    const outcome = refusal === "unreachable" ? "unreachable" : "held";
    this.#engine.events.tell("acquire", () => ({ ...this.#facts(), outcome, votes }));
    return outcome === "held" ? new LockHeldError(facts) : new QuorumUnreachableError(facts);
  }

  /** Returns what who is first has learnt. While the nodes leave it without an answer, that is nothing but this. */
  #learntInLine(): Refused | undefined {
    const line = this.#local?.line;
    const isUnanswered = line !== undefined && line.holder === undefined && this.#attempts === 0;
    return line?.noted ?? (isUnanswered ? { refusal: "unreachable", votes: [] } : undefined);
  }

  #facts(): { readonly resources: readonly string[]; readonly attempts: number; readonly waitMs: number } {
    return {
      resources: this.#target.resources,
      attempts: this.#attempts,
      waitMs: this.#engine.clock.monotonicMs() - this.#started.monotonicMs,
    };
  }
}
