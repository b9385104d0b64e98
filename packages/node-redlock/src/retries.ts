/**
 * The attempts of one call by node-redlock's rules: up to `retryCount` attempts after the first, with pauses in
 * between.
 */
import { CallDeadline } from "@x/redlock-core/protocol";
import type { SharedEngine } from "./shared-engine.ts";
import { ExecutionError, type ExecutionStats, type Settings } from "./types.ts";

/** Limit for the list of attempts, which would grow forever with `retryCount: -1`. */
const MAX_ATTEMPTS_KEPT = 1_000;

export const NO_QUORUM = "The operation was unable to achieve a quorum during its retry window.";

export class Retries {
  readonly #shared: SharedEngine;
  readonly #settings: Settings;
  readonly #attempts: Promise<ExecutionStats>[] = [];
  #pauses = 0;

  constructor(shared: SharedEngine, settings: Settings) {
    this.#shared = shared;
    this.#settings = settings;
  }

  /** Votes of the latest attempts. */
  get attempts(): readonly Promise<ExecutionStats>[] {
    return this.#attempts;
  }

  note(stats: Promise<ExecutionStats>): void {
    this.#attempts.push(stats);
    if (this.#attempts.length > MAX_ATTEMPTS_KEPT) void this.#attempts.shift();
  }

  /** Whether no further attempt may be made. */
  get isLast(): boolean {
    const { retryCount } = this.#settings;
    return (retryCount !== -1 && this.#pauses >= retryCount) || this.#shared.protocol.closed.aborted;
  }

  /**
   * Starts the pause before the next attempt, which ends early if the clients are closed. The caller must dispose the
   * pause.
   */
  startPause(): CallDeadline {
    const { clock, random, closed } = this.#shared.protocol;
    const { retryDelay, retryJitter } = this.#settings;
    this.#pauses += 1;
    const jitterMs = Math.floor((random.fraction() * 2 - 1) * retryJitter);
    return new CallDeadline(clock, { timeoutMs: Math.max(0, retryDelay + jitterMs), closed });
  }

  error(more = ""): ExecutionError {
    return new ExecutionError(NO_QUORUM + more, this.#attempts);
  }
}

export async function untilOver(pause: CallDeadline): Promise<void> {
  await pause.until(new Promise<never>(() => undefined));
}
