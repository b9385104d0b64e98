/**
 * This acquisition follows node-redlock's rules: `retryCount` attempts after the first, with a pause between them.
 * Each attempt has a fresh token, and an attempt that failed leaves nothing behind.
 *
 * During the pauses it stands in the queue of waiters, so a lock that is released is handed over at once. Who comes
 * first is served first. What is asked because of a hint is not one of the `retryCount` attempts.
 */

import { readClock } from "../kit/clock.ts";
import { attempt, type Grant, isCorrectable, isGrant, MAX_CORRECTIONS, type RefusedAttempt } from "../lock/attempt.ts";
import { releaseEverywhere } from "../lock/release.ts";
import type { Target } from "../rules/operation.ts";
import { type LeaseEnd, leaseEnd, remainingMs } from "../rules/validity.ts";
import { CallDeadline } from "../waiting/call-deadline.ts";
import { type Enrolment, leaveQueues } from "../waiting/leave.ts";
import { Waiter } from "../waiting/waiter.ts";
import type { SharedEngine } from "./shared-engine.ts";
import { ExecutionError, type ExecutionStats, type Settings } from "./types.ts";
import { VoteCount } from "./vote-count.ts";

/** With `retryCount: -1` the list of attempts would grow for ever. */
const MAX_ATTEMPTS_KEPT = 1_000;

export const NO_QUORUM = "The operation was unable to achieve a quorum during its retry window.";

interface AcquisitionRequest {
  readonly resources: readonly string[];
  readonly duration: number;
  readonly settings: Settings;
  readonly onError: (error: Error) => void;
}

interface Granted {
  readonly kind: "granted";
  readonly grant: Grant;
  readonly end: LeaseEnd;
  readonly stats: Promise<ExecutionStats>;
}

type Asked = Granted | (RefusedAttempt & { readonly stats: Promise<ExecutionStats> });

export class Acquisition {
  readonly #shared: SharedEngine;
  readonly #request: AcquisitionRequest;
  readonly #target: Target;
  readonly #startedWallMs: number;
  /** The place in the queue, once it has been refused. Until then it is behind all that are there. */
  #place: number | undefined;
  #waiter: Waiter | undefined;

  constructor(shared: SharedEngine, request: AcquisitionRequest) {
    const { engine } = shared;
    this.#shared = shared;
    this.#request = request;
    this.#target = engine.targetOf(request.resources);
    this.#startedWallMs = engine.clock.wallMs();
  }

  /** Runs the attempts. Rejects with `ExecutionError` when all attempts have failed. */
  async run(): Promise<Granted & { readonly attempts: readonly Promise<ExecutionStats>[] }> {
    const { settings } = this.#request;
    const attempts: Promise<ExecutionStats>[] = [];
    if (!this.#shared.isConnected) await this.#shared.connected;
    for (let retries = 0; ; retries += 1) {
      if (!this.#shared.hasQuorum) await this.#shared.untilUsable();
      const asked = await this.#ask();
      remember(attempts, asked.stats);
      if (asked.kind === "refused" && isLast(this.#shared, settings, retries)) {
        await this.#leave();
        throw new ExecutionError(`${NO_QUORUM}${quarantineOf(asked)}`, attempts);
      }
      const granted = asked.kind === "granted" ? asked : await this.#pause(asked);
      if (granted === undefined) continue;
      if (granted !== asked) remember(attempts, granted.stats);
      this.#waiter?.close();
      return { ...granted, attempts };
    }
  }

  /**
   * Leaves the queue. The answers follow those of the releases, so nothing of ours is left on a client that answers.
   */
  async #leave(): Promise<void> {
    this.#waiter?.close();
    const votes = this.#countVotes();
    leaveQueues(this.#shared.engine, this.#target, this.#waiter ?? NOBODY, { observe: votes.observe });
    await votes.settled();
  }

  #countVotes(): VoteCount {
    const { resources, onError } = this.#request;
    return new VoteCount(this.#shared, { resourceCount: resources.length, applied: isGrant, onError });
  }

  /** Waits for the next attempt's time; a grant that a hint led to ends it early. */
  async #pause(refused: RefusedAttempt): Promise<Granted | undefined> {
    const { engine, hints } = this.#shared;
    this.#place ??= engine.fencingClock.place(this.#startedWallMs);
    const pause = startPause(this.#shared, this.#request.settings);
    let last = refused;
    try {
      if (refused.refusal !== "held") await untilOver(pause);
      else
        do {
          if (this.#waiter === undefined) {
            if (!hints.isOpen) await pause.until(hints.open());
            this.#place = engine.fencingClock.correctPlace(this.#place, this.#startedWallMs);
            this.#waiter = new Waiter(engine, hints, this.#target, this.#place);
          } else {
            await (hints.isOpen ? this.#waiter.untilTurn(last.freeInMs, pause) : untilOver(pause));
            if (pause.reason !== undefined) break;
          }
          const asked = await this.#ask();
          if (asked.kind === "granted") return asked;
          last = asked;
        } while (pause.reason === undefined);
      return undefined;
    } finally {
      pause.dispose();
    }
  }

  /** Makes one attempt, again for what nobody else has. Resolves when every client that answers in time has voted. */
  async #ask(): Promise<Asked> {
    const { engine } = this.#shared;
    const { duration, settings } = this.#request;
    for (let corrections = 0; ; corrections += 1) {
      const votes = this.#countVotes();
      const { stats } = votes;
      this.#waiter?.reset();
      const asked = readClock(engine.clock);
      const result = await attempt(engine, {
        target: this.#target,
        asked,
        ttlMs: duration,
        timeoutMs: engine.options.nodeTimeout,
        place: this.#place,
        enrolment: this.#waiter,
        observe: votes.observe,
      });
      await votes.settled();
      if (result.kind === "granted") {
        const end = leaseEnd(asked, duration, settings.driftFactor);
        if (remainingMs(end, readClock(engine.clock)) > 0) return { kind: "granted", grant: result.grant, end, stats };
        void releaseEverywhere(engine, result.grant);
        return { ...TOO_LATE, stats };
      }
      if (corrections === MAX_CORRECTIONS || !isCorrectable(result)) return { ...result, stats };
    }
  }
}

/** Returns why nobody can have a lock now although the clients answer, or nothing. */
function quarantineOf({ refusal, votes, freeInMs }: RefusedAttempt): string {
  const leftMs = votes.flatMap(({ vote, quarantineLeftMs }) => (vote === "quarantined" ? [quarantineLeftMs ?? 0] : []));
  if (refusal !== "unreachable" || leftMs.length === 0) return "";
  return ` ${leftMs.length} of ${freeInMs.length} clients are in quarantine (new, restarted or without their data), for ${Math.max(...leftMs)} ms more.`;
}

const NOBODY: Enrolment = { member: "", on: new Set() };

const TOO_LATE: RefusedAttempt = { kind: "refused", refusal: "unreachable", votes: [], freeInMs: [] };

/** Adds an attempt to a list that is bounded. */
export function remember(attempts: Promise<ExecutionStats>[], stats: Promise<ExecutionStats>): void {
  attempts.push(stats);
  if (attempts.length > MAX_ATTEMPTS_KEPT) void attempts.shift();
}

/** Tells whether no attempt follows the one after `retries` others. */
export function isLast({ closed }: SharedEngine, { retryCount }: Settings, retries: number): boolean {
  return (retryCount !== -1 && retries >= retryCount) || closed.aborted;
}

/** Starts the time between two attempts, which closing the clients ends. The caller must dispose it. */
export function startPause({ engine, closed }: SharedEngine, { retryDelay, retryJitter }: Settings): CallDeadline {
  const { clock, random } = engine;
  const jitterMs = Math.floor((random.fraction() * 2 - 1) * retryJitter);
  const timeoutMs = Math.max(0, retryDelay + jitterMs);
  return new CallDeadline(clock, { timeoutMs, closed });
}

export async function untilOver(pause: CallDeadline): Promise<void> {
  await pause.until(new Promise<never>(() => undefined));
}
