/**
 * An acquisition asks the nodes until a quorum grants the lock, and waits for its turn between two attempts.
 *
 * Guarantees:
 * - The waiters of all processes are served first come, first served, as precisely as their clocks agree through the
 *   nodes' time.
 * - An attempt sends one request to each node.
 * - If the nodes know when to ask again, the next attempt follows a hint or the end of the reported lease (see
 *   waiter.ts).
 * - A caller that cancels is rejected with its reason immediately, and leaves neither a key nor a place in a line
 *   behind.
 *
 * Not guaranteed: fairness between locks of several resources, or towards clients that do not wait in line.
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
import { retryDelayMs } from "../kit/back-off.ts";
import { type Instant, readClock } from "../kit/clock.ts";
import type { CallDeadline, CallEnd } from "../kit/deadlines.ts";
import { onAbort } from "../kit/signals.ts";
import type { Target } from "../rules/operation.ts";
import type { LocalLine, LocalWaiter, Refused } from "../waiting/local-line.ts";
import { PlaceInLine } from "../waiting/place-in-line.ts";
import { type Grant, isCorrectable, type RefusedAttempt, startAttempt } from "./attempt.ts";
import type { Engine } from "./engine.ts";
import { HeldLease } from "./lease.ts";
import type { Lock } from "./lock.ts";
import { releaseEverywhere } from "./release.ts";
import { type Acquirer, type AttemptOwner, untilGranted } from "./until-granted.ts";

const MAX_RETRY_DELAY_MS = 1_000;

type Acquire<Result> = (
  engine: Engine,
  resources: readonly string[],
  options: ResolvedAcquireOptions,
) => Promise<Result>;

/** See `Redlock.acquire`. */
export const acquire: Acquire<Lock> = (engine, resources, options) =>
  traced(acquireUntraced, engine, resources, options);

/** See `Redlock.tryAcquire`. `options` have a timeout of 0. */
export const tryAcquire: Acquire<Lock | null> = (engine, resources, options) =>
  traced(tryUntraced, engine, resources, options);

function traced<Result>(
  call: Acquire<Result>,
  engine: Engine,
  resources: readonly string[],
  options: ResolvedAcquireOptions,
): Promise<Result> {
  return traces.acquire.isHeard
    ? traces.acquire.run({ resources }, call.bind(undefined, engine, resources, options))
    : call(engine, resources, options);
}

async function tryUntraced(
  engine: Engine,
  resources: readonly string[],
  options: ResolvedAcquireOptions,
): Promise<Lock | null> {
  try {
    return await acquireUntraced(engine, resources, options, true);
  } catch (error) {
    const isOurs = error instanceof RedlockError && error !== options.signal?.reason;
    if (isOurs && error instanceof LockHeldError) return null;
    if (isOurs) Error.captureStackTrace(error);
    throw error;
  }
}

/** Acquires without a promise in between, because promises are most of what a lock costs the client. */
export function acquireUntraced(
  engine: Engine,
  resources: readonly string[],
  options: ResolvedAcquireOptions,
  isTry = false,
): Promise<Lock> {
  const { clock, closed } = engine;
  try {
    engine.assertOpen(resources, options.signal);
    const target = engine.targets.of(resources);
    const started = readClock(clock);
    const { timeout: timeoutMs, signal } = options;
    const acquirer = new LockAcquirer(engine, target, options, started, isTry);
    return untilGranted({ clock, started, timeoutMs, signal, closed }, acquirer);
  } catch (error) {
    return Promise.reject(error);
  }
}

/** A holder whose name the nodes may know, with the error to report if they do not. */
interface NamedHolder {
  readonly client: string;
  readonly facts: AttemptFacts;
  readonly error: LockHeldError;
}

class LockAcquirer implements Acquirer<Grant, RefusedAttempt, Lock> {
  readonly isTry: boolean;
  readonly #engine: Engine;
  readonly #target: Target;
  readonly #options: ResolvedAcquireOptions;
  readonly #started: Instant;
  /** This call in the line of its process. Undefined for a call that does not wait, and for several resources. */
  readonly #local: LocalWaiter | undefined;
  /** Place in the lines of the nodes. Undefined until the call is refused or waits in its process. */
  #place: PlaceInLine | undefined;
  #hasWaitedHere = false;
  #attempts = 0;
  /** Whether the remaining time of the call gave the nodes less than `nodeTimeout` for the last attempt. */
  #isCutShort = false;
  /** Number of successive attempts that no quorum answered. */
  #failures = 0;
  /** The refusal to report if the time of the call runs out now. */
  #noted: Refused | undefined;
  #namedHolder: NamedHolder | undefined;

  constructor(engine: Engine, target: Target, options: ResolvedAcquireOptions, started: Instant, isTry: boolean) {
    this.isTry = isTry;
    this.#engine = engine;
    this.#target = target;
    this.#options = options;
    this.#started = started;
    const [resource] = target.resources;
    const hasLine = target.resources.length === 1 && options.timeout > 0 && options.place === undefined;
    this.#local = hasLine && resource !== undefined ? engine.lines.of(resource).enter() : undefined;
    engine.calls.begin();
  }

  /** Only the first caller of this process sends requests, and only while the lock is not held in this process. */
  untilReady(deadline: CallDeadline): Promise<void> | undefined {
    const local = this.#local;
    if (local === undefined) return undefined;
    if (local.isFirst && !isHeldHere(local.line)) return undefined;
    return this.#waitHere(local, deadline);
  }

  async #waitHere(local: LocalWaiter, deadline: CallDeadline): Promise<void> {
    if (!local.isFirst) await this.#waitInProcess(deadline.until(local.untilFirst()));
    if (isHeldHere(local.line)) await this.#waitInProcess(this.#untilLocallyFree(local.line, deadline));
  }

  attempt(now: Instant, leftMs: number, owner: AttemptOwner<Grant, RefusedAttempt>): void {
    const { nodeTimeout } = this.#engine.options;
    this.#attempts += 1;
    this.#isCutShort = leftMs < nodeTimeout;
    startAttempt(this.#engine, {
      target: this.#target,
      asked: now,
      ttlMs: this.#options.ttl,
      driftFactor: this.#engine.options.driftFactor,
      timeoutMs: Math.min(nodeTimeout, leftMs),
      place: this.#place?.place ?? this.#options.place,
      enrolment: this.#place?.waiterForAttempt(),
      note: this.#options.note,
      owner,
    });
  }

  /** Creates the lock for a grant, before the next waiter of this process has its turn. */
  hold(grant: Grant): Lock | Promise<Lock> {
    const engine = this.#engine;
    const { lines, closed, calls } = engine;
    const { fencingToken, target } = grant;
    this.#place?.onGranted();
    if (engine.events.isHeard("acquired")) engine.events.emit("acquired", { ...this.#facts(), fencingToken });
    const own = this.#local === undefined ? target.resources.map((name) => lines.of(name)) : [this.#local.line];
    const { lock } = new HeldLease(engine, grant, { options: this.#options, lines: own });
    if (!closed.aborted) return lock;
    const released = lock.release();
    calls.follow(released);
    return released.then(() => Promise.reject(new RedlockClosedError(lock.resources)));
  }

  drop(grant: Grant): void {
    void releaseEverywhere(this.#engine, grant);
  }

  /**
   * Records the refusal to report if the caller's time runs out now. An attempt that ran out of time because earlier
   * waits had used most of it says nothing about the nodes, so it is not recorded.
   */
  onRefused({ votes, refusal, client }: RefusedAttempt): void {
    this.#place ??= this.#newPlace();
    const hasWaited = this.#hasWaitedHere || this.#attempts > 1;
    if (this.#isCutShort && hasWaited && refusal === "unreachable") return;
    this.#noted = { votes, refusal, client, atMs: this.#engine.clock.monotonicMs() };
    if (this.#local !== undefined) this.#local.line.noted = this.#noted;
  }

  isCorrectable(refused: RefusedAttempt): boolean {
    return isCorrectable(refused);
  }

  /** Waits for the call's turn if the lock is held, or for a growing pause if too few nodes answered. */
  async untilNext(refused: RefusedAttempt, deadline: CallDeadline): Promise<void> {
    this.#engine.events.tell("refused", () => ({ ...this.#facts(), votes: refused.votes }));
    if (refused.refusal === "held") {
      this.#failures = 0;
      this.#place ??= this.#newPlace();
      await this.#place.untilTurn(refused.freeInMs, deadline, () => this.#sleep(deadline));
      return;
    }
    this.#failures += 1;
    await this.#sleep(deadline);
  }

  errorOf(end: CallEnd): unknown {
    const { resources } = this.#target;
    if (end !== "timeout") {
      this.#engine.events.tell("acquireFailed", () => ({
        ...this.#facts(),
        reason: "cancelled",
        votes: this.#noted?.votes ?? [],
      }));
      return end === "signal" ? this.#options.signal?.reason : new RedlockClosedError(resources);
    }
    const heldHere = resources.filter((resource) => this.#engine.lines.holds(resource));
    const ofFirst = heldHere.length > 0 ? undefined : this.#refusalOfFirstCaller();
    const noted: Refused = this.#noted ?? ofFirst ?? { votes: [], refusal: "held" };
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
    const reason = refusal === "unreachable" ? "unreachable" : "held";
    this.#engine.events.tell("acquireFailed", () => ({ ...this.#facts(), reason, votes }));
    if (reason === "unreachable") return new QuorumUnreachableError(facts);
    const error = new LockHeldError(facts);
    if (noted.client !== undefined && !heldHere.includes(error.resource)) {
      this.#namedHolder = { client: noted.client, facts, error };
    }
    return error;
  }

  /**
   * Adds the holder's name to the error of a call that has waited. Cancelling the call ends the search for the name.
   */
  errorWithHolder(): Promise<LockHeldError> | undefined {
    const named = this.#namedHolder;
    const { timeout, signal } = this.#options;
    if (named === undefined || timeout === 0) return undefined;
    const { client, facts, error } = named;
    return new Promise((resolve) => {
      const end = (holder?: string): void => {
        for (const stop of stops) stop();
        resolve(holder === undefined ? error : new LockHeldError({ ...facts, holder }));
      };
      const signals = signal === undefined ? [this.#engine.closed] : [this.#engine.closed, signal];
      const stops = signals.map((each) => onAbort(each, () => end()));
      this.#engine.holderNames.of(client).then(end, () => end());
    });
  }

  leave(): void {
    this.#place?.leave();
    this.#local?.leave();
    this.#engine.calls.end();
  }

  /**
   * Waits for an event in this process. Afterwards the call joins the lines of the nodes with its first attempt, over a
   * channel that is open by then. If the call joined a few round trips later, a later waiter of another process would
   * overtake it.
   */
  async #waitInProcess(wait: Promise<void>): Promise<void> {
    const { hints } = this.#engine;
    void hints.open();
    if (!this.#hasWaitedHere) this.#engine.events.tell("refused", () => ({ ...this.#facts(), votes: [] }));
    this.#hasWaitedHere = true;
    await wait;
    this.#place ??= this.#newPlace();
    this.#place.joinIfOpen();
  }

  #newPlace(): PlaceInLine {
    const { place: given } = this.#options;
    return new PlaceInLine(this.#engine, this.#engine.hints, {
      target: this.#target,
      startedWallMs: this.#started.wallMs,
      given,
    });
  }

  async #sleep(deadline: CallDeadline): Promise<void> {
    const { clock, options, random } = this.#engine;
    const pauseMs = retryDelayMs({
      failures: this.#failures,
      delayMs: options.retryDelay,
      maxDelayMs: MAX_RETRY_DELAY_MS,
      jitterMs: options.retryJitter,
      fraction: random.fraction(),
    });
    await deadline.untilCalled((wake) => clock.schedule(pauseMs, wake, { keepAlive: true }));
  }

  async #untilLocallyFree(line: LocalLine, deadline: CallDeadline): Promise<void> {
    const { clock } = this.#engine;
    await deadline.untilCalled((wake) => {
      const stop = line.onFree(wake);
      // Keeps the process alive for a wait without a timeout.
      const cancel = clock.schedule(line.holder?.remaining() ?? 0, wake, { keepAlive: true });
      return () => {
        stop();
        cancel();
      };
    });
  }

  /**
   * Returns the last refusal of the first caller of this process. If the nodes have not answered this caller, only
   * their silence is known.
   */
  #refusalOfFirstCaller(): Refused | undefined {
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

function isHeldHere({ holder }: LocalLine): boolean {
  return holder !== undefined && holder.remaining() > 0;
}
