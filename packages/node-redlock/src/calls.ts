/** Calls of a user, by node-redlock's rules: up to `retryCount` attempts after the first, with pauses in between. */
import { type Instant, readClock, sleep } from "@x/redlock-core/kit";
import {
  type Acquirer,
  type AttemptOwner,
  CallDeadline,
  type Grant,
  isCorrectable,
  type LeaseEnd,
  type LockSteps,
  type OnAnswer,
  type PlaceInLine,
  type RefusedAttempt,
  type StepResult,
  untilGranted,
} from "@x/redlock-core/protocol";
import { endOf, type HeldLock, leftMs } from "./lease.ts";
import { checkDuration, settingsOf } from "./settings.ts";
import type { Caller, SharedEngine } from "./shared-engine.ts";
import { ExecutionError, type ExecutionStats, type Settings, type SomeSettings } from "./types.ts";
import { newVotes, type Votes } from "./votes.ts";

/** Limit for the list of attempts, which would grow forever with `retryCount: -1`. */
const MAX_ATTEMPTS_KEPT = 1_000;

export class Call {
  readonly settings: Settings;
  readonly shared: SharedEngine;
  readonly steps: LockSteps;
  readonly onVoteAgainst: (error: Error) => void;
  /** Votes of the latest attempts that count. */
  readonly attempts: Promise<ExecutionStats>[] = [];
  #pauses = 0;

  constructor(caller: Caller, resources: string | readonly string[], settings: SomeSettings | undefined) {
    this.settings = settingsOf(settings, caller.settings);
    this.shared = caller.engine.current;
    this.steps = this.shared.protocol.stepsOf(resources, this.settings.driftFactor);
    this.onVoteAgainst = caller.onVoteAgainst;
  }

  checkDuration(duration: number): void {
    checkDuration(duration, this.settings.driftFactor, this.shared.settings.maxTtl);
    this.shared.longestMs = Math.max(this.shared.longestMs, duration);
  }

  release(lock: HeldLock): Promise<void> {
    const end = endOf(lock);
    const ttlMs = Math.max(leftMs(end), this.shared.longestMs);
    lock.expiration = 0;
    return this.#repeat(end, (onAnswer) => this.steps.release({ token: lock.value, ttlMs }, onAnswer));
  }

  /** Returns the new end. */
  async extend(lock: HeldLock, ttlMs: number): Promise<LeaseEnd> {
    this.checkDuration(ttlMs);
    let end = endOf(lock);
    if (leftMs(end) <= 0) throw new ExecutionError("Cannot extend an already-expired lock.", []);
    const { value: token, fencingToken } = lock;
    await this.#repeat(end, async (onAnswer) => {
      const result = await this.steps.extend({ token, fencingToken, ttlMs, end }, onAnswer);
      if (result.kind === "extended") end = result.end;
      if (result.kind === "lost") lock.expiration = 0;
      return result;
    });
    return end;
  }

  /** Adds the votes of an attempt that counts. */
  note(votes: Votes | undefined): void {
    if (votes !== undefined) this.attempts.push(votes.untilComplete());
    if (this.attempts.length > MAX_ATTEMPTS_KEPT) void this.attempts.shift();
  }

  /** Counts the pause before the next attempt and returns its length. Undefined if no further attempt may be made. */
  startPause(): number | undefined {
    const { random, closed } = this.shared.protocol;
    const { retryCount, retryDelay, retryJitter } = this.settings;
    if ((retryCount !== -1 && this.#pauses >= retryCount) || closed.aborted) return undefined;
    this.#pauses += 1;
    return Math.max(0, retryDelay + Math.floor((random.fraction() * 2 - 1) * retryJitter));
  }

  /**
   * Repeats a step with a lock that ends at `end` until it succeeds or the lock is lost, or until the retries or the
   * lock's time are used up.
   */
  async #repeat(end: LeaseEnd, step: (onAnswer: OnAnswer) => Promise<StepResult>): Promise<void> {
    const { clock, closed } = this.shared.protocol;
    for (;;) {
      const votes = newVotes(this);
      const { kind } = await step(votes.onAnswer);
      this.note(votes);
      if (kind !== "failed" && kind !== "lost") return;
      const pauseMs = kind === "lost" ? undefined : this.startPause();
      if (pauseMs === undefined || leftMs(end) <= pauseMs) throw this.error();
      await sleep(clock, pauseMs, closed, { keepAlive: true }).catch(() => undefined);
    }
  }

  error(more = ""): ExecutionError {
    const message = "The operation was unable to achieve a quorum during its retry window.";
    return new ExecutionError(message + more, [...this.attempts]);
  }
}

/**
 * Acquires with the loop of the core. During the pauses the call waits in the line, so a released lock is handed over
 * immediately. An attempt after a hint does not count as one of the `retryCount` attempts.
 */
export class Acquisition extends Call implements Acquirer<Grant, RefusedAttempt, Grant> {
  readonly isCorrectable: typeof isCorrectable = isCorrectable;
  readonly #started: Instant = readClock(this.shared.protocol.clock);
  #ttlMs = 0;
  /** Votes of the latest attempt. Undefined before the first attempt. */
  #votes: Votes | undefined;
  /** Place in the line. Undefined before the first refusal, because the first attempt does not join the line. */
  #place: PlaceInLine | undefined;
  /** When the next counted attempt is due, by the monotonic clock. Undefined until a counted attempt is refused. */
  #dueMs: number | undefined;

  /** Runs the attempts. Rejects with `ExecutionError` if all attempts fail. */
  acquire(duration: number): Promise<Grant> {
    this.checkDuration(duration);
    this.#ttlMs = duration;
    const { clock, closed } = this.shared.protocol;
    return untilGranted({ clock, started: this.#started, timeoutMs: Number.POSITIVE_INFINITY, closed }, this);
  }

  untilReady(): Promise<void> | undefined {
    return this.shared.untilUsable();
  }

  attempt(asked: Instant, _leftMs: number, owner: AttemptOwner<Grant, RefusedAttempt>): void {
    this.#votes = newVotes(this, this.#dueMs === undefined);
    this.steps.attempt({ asked, ttlMs: this.#ttlMs, place: this.#place }, this.#votes.onAnswer, owner);
  }

  hold(grant: Grant): Grant {
    this.#place?.onGranted();
    this.note(this.#votes);
    return grant;
  }

  drop(grant: Grant): void {
    this.steps.drop(grant);
  }

  /** Waits until the next counted attempt is due, or until this call has its turn, whose attempt is not counted. */
  async untilNext(refused: RefusedAttempt): Promise<void> {
    const { clock, closed } = this.shared.protocol;
    if (this.#dueMs === undefined) {
      this.note(this.#votes);
      const pauseMs = this.startPause();
      if (pauseMs === undefined) throw await this.#finalError(refused);
      this.#dueMs = clock.monotonicMs() + pauseMs;
    }
    this.#place ??= this.steps.placeAt(this.#started.wallMs);
    const pause = new CallDeadline(clock, { startMs: this.#dueMs, timeoutMs: 0, closed });
    const untilOver = (): Promise<void> => pause.untilCalled(() => () => undefined);
    try {
      if (refused.refusal === "held") await this.#place.untilTurn(refused.freeInMs, pause, untilOver);
      else await untilOver();
      if (pause.reason !== undefined) this.#dueMs = undefined;
    } finally {
      pause.dispose();
    }
  }

  errorOf(): ExecutionError {
    return this.error();
  }

  leave(): void {
    this.#place?.leave();
  }

  /**
   * Sends a request behind all releases and waits for its answers. Afterwards no client that answers has keys of this
   * call.
   */
  async #finalError({ refusal, votes, freeInMs }: RefusedAttempt): Promise<ExecutionError> {
    const leftMs = votes.flatMap(({ quarantineLeftMs = [] }) => quarantineLeftMs);
    const isQuarantine = refusal === "unreachable" && leftMs.length > 0;
    const quarantine = ` ${leftMs.length} of ${freeInMs.length} clients are in quarantine (new, restarted or without their data), for ${Math.max(...leftMs)} ms more.`;
    const error = this.error(isQuarantine ? quarantine : "");
    this.#place?.leave();
    await this.steps.release({ token: this.shared.protocol.newToken(), ttlMs: 0 }, () => undefined);
    return error;
  }
}
