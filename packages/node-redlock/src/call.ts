/**
 * A call of a user, by node-redlock's rules: up to `retryCount` attempts after the first, with pauses in between. The
 * votes of each attempt are counted.
 */
import { readClock } from "@x/redlock-core/kit";
import { CallDeadline, type LeaseEnd, type LockSteps, remainingMs } from "@x/redlock-core/protocol";
import type { SharedEngine } from "./shared-engine.ts";
import { ExecutionError, type ExecutionStats, type Settings } from "./types.ts";
import { VoteCount } from "./vote-count.ts";

/** Limit for the list of attempts, which would grow forever with `retryCount: -1`. */
const MAX_ATTEMPTS_KEPT = 1_000;

/** Result of one extension or release. After `failed`, another attempt may help. */
export type Outcome = "done" | "failed" | "lost";

export class Call {
  readonly shared: SharedEngine;
  readonly steps: LockSteps;
  readonly settings: Settings;
  /** Votes of the latest attempts that count. */
  readonly attempts: Promise<ExecutionStats>[] = [];
  readonly #onError: (error: Error) => void;
  #pauses = 0;

  /** `onError` is called for each client that failed. Contention is not an error. */
  constructor(
    shared: SharedEngine,
    resources: string | readonly string[],
    settings: Settings,
    onError: (error: Error) => void,
  ) {
    this.shared = shared;
    this.steps = shared.protocol.stepsOf(resources);
    this.settings = settings;
    this.#onError = onError;
  }

  newVotes(): VoteCount {
    return new VoteCount(this.shared, this.steps.resourceCount, this.#onError);
  }

  /** Adds the votes of an attempt that counts. */
  note({ stats }: VoteCount): void {
    this.attempts.push(stats);
    if (this.attempts.length > MAX_ATTEMPTS_KEPT) void this.attempts.shift();
  }

  /** Whether no further attempt may be made. */
  get isLast(): boolean {
    const { retryCount } = this.settings;
    return (retryCount !== -1 && this.#pauses >= retryCount) || this.shared.protocol.closed.aborted;
  }

  /**
   * Starts the pause before the next attempt, which ends early if the clients are closed. The caller must dispose the
   * pause.
   */
  startPause(): CallDeadline {
    const { clock, random, closed } = this.shared.protocol;
    const { retryDelay, retryJitter } = this.settings;
    this.#pauses += 1;
    const jitterMs = Math.floor((random.fraction() * 2 - 1) * retryJitter);
    return new CallDeadline(clock, { timeoutMs: Math.max(0, retryDelay + jitterMs), closed });
  }

  /**
   * Repeats an operation until it succeeds or cannot succeed any more, or until the retries or the lock's time are used
   * up.
   */
  async repeat(end: LeaseEnd, operation: () => Promise<Outcome>): Promise<void> {
    for (;;) {
      const outcome = await operation();
      if (outcome === "done") return;
      if (outcome === "lost" || this.isLast) throw this.error();
      const pause = this.startPause();
      if (remainingMs(end, readClock(this.shared.protocol.clock)) <= pause.leftMs) throw this.error();
      await untilOver(pause);
      pause.dispose();
    }
  }

  /** Releases once. `lost` means that fewer clients than a quorum can still have the lock. */
  async release(token: string, ttlMs: number): Promise<Outcome> {
    const votes = this.newVotes();
    const isReleased = await this.steps.release({ token, ttlMs }, votes.onAnswer);
    if (!votes.isSettled) await votes.untilSettled();
    this.note(votes);
    const { clients, redlock } = this.shared;
    if (isReleased) return "done";
    return votes.refusals > clients.length - redlock.quorum ? "lost" : "failed";
  }

  /** Extends once. `lost` means that a quorum has reported another holder. */
  async extend(lease: Parameters<LockSteps["extend"]>[0]): Promise<Outcome> {
    const votes = this.newVotes();
    const { kind } = await this.steps.extend(lease, votes.onAnswer);
    if (!votes.isSettled) await votes.untilSettled();
    this.note(votes);
    return kind === "extended" ? "done" : kind;
  }

  error(more = ""): ExecutionError {
    const message = "The operation was unable to achieve a quorum during its retry window.";
    return new ExecutionError(message + more, [...this.attempts]);
  }
}

export async function untilOver(pause: CallDeadline): Promise<void> {
  await pause.until(new Promise<never>(() => undefined));
}
