/**
 * This acquisition follows node-redlock's rules: `retryCount` attempts after the first, with a pause between them.
 * Each attempt has a fresh token, and an attempt that failed leaves nothing behind.
 *
 * During the pauses it stands in the line of waiters, so a lock that is released is handed over at once. Who comes
 * first is served first. What is asked because of a hint is not one of the `retryCount` attempts.
 */

import { CallDeadline, type Instant, type LeaseEnd, leaseEnd, readClock, remainingMs } from "@x/redlock-core/protocol";
import {
  type AttemptRequest,
  type AttemptResult,
  type Enrolment,
  type Grant,
  isCorrectable,
  isGrant,
  leaveLines,
  MAX_CORRECTIONS,
  type RefusedAttempt,
  releaseEverywhere,
  startAttempt,
  type Target,
  Waiter,
} from "@x/redlock-core/steps";
import type { SharedEngine } from "./shared-engine.ts";
import { ExecutionError, type ExecutionStats, type Settings } from "./types.ts";
import { VoteCount } from "./vote-count.ts";

/** With `retryCount: -1` the list of attempts would grow for ever. */
const MAX_ATTEMPTS_KEPT = 1_000;

export const NO_QUORUM = "The operation was unable to achieve a quorum during its retry window.";

interface Acquired {
  readonly grant: Grant;
  readonly end: LeaseEnd;
  readonly attempts: readonly Promise<ExecutionStats>[];
}

type Asked =
  | { readonly kind: "granted"; readonly grant: Grant; readonly end: LeaseEnd; readonly stats: Promise<ExecutionStats> }
  | { readonly kind: "refused"; readonly refused: RefusedAttempt; readonly stats: Promise<ExecutionStats> };

export class Acquisition {
  readonly #shared: SharedEngine;
  readonly #resources: readonly string[];
  readonly #target: Target;
  readonly #duration: number;
  readonly #settings: Settings;
  readonly #onError: (error: Error) => void;
  readonly #startedWallMs: number;
  /** The place in the line, once it has been refused. Until then it is behind all that are there. */
  #place: number | undefined;
  #waiter: Waiter | undefined;

  constructor(
    shared: SharedEngine,
    request: {
      readonly resources: readonly string[];
      readonly duration: number;
      readonly settings: Settings;
      readonly onError: (error: Error) => void;
    },
  ) {
    const { engine } = shared;
    this.#shared = shared;
    this.#resources = request.resources;
    this.#target = engine.targetOf(request.resources);
    this.#duration = request.duration;
    this.#settings = request.settings;
    this.#onError = request.onError;
    this.#startedWallMs = engine.clock.wallMs();
  }

  /** Runs the attempts. Rejects with `ExecutionError` when all attempts have failed. */
  async run(): Promise<Acquired> {
    const attempts: Promise<ExecutionStats>[] = [];
    if (!this.#shared.isConnected) await this.#shared.connected;
    for (let retries = 0; ; retries += 1) {
      if (!this.#shared.hasQuorum) await this.#shared.untilUsable();
      const first = await this.#ask();
      const asked = first.kind === "granted" ? first : await this.#corrected(first);
      remember(attempts, asked.stats);
      if (asked.kind === "granted") return this.#acquired(asked, attempts);
      if (isLast(this.#shared, this.#settings, retries)) {
        await this.#leave();
        throw new ExecutionError(`${NO_QUORUM}${quarantineOf(asked.refused)}`, attempts);
      }
      const early = await this.#pause(asked.refused);
      if (early === undefined) continue;
      remember(attempts, early.stats);
      return this.#acquired(early, attempts);
    }
  }

  /**
   * Leaves the line. The answers follow those of the releases, so nothing of ours is left on a client that answers.
   */
  async #leave(): Promise<void> {
    const { engine } = this.#shared;
    this.#waiter?.close();
    const votes = this.#countVotes();
    leaveLines(engine, this.#target, this.#waiter ?? NOBODY, { observe: votes.observe });
    await new Promise<void>((resolve) => votes.whenSettled(resolve));
  }

  #countVotes(): VoteCount {
    return new VoteCount(this.#shared, {
      resourceCount: this.#resources.length,
      applied: isGrant,
      onError: this.#onError,
    });
  }

  #acquired(asked: Asked & { kind: "granted" }, attempts: readonly Promise<ExecutionStats>[]): Acquired {
    this.#waiter?.close();
    return { grant: asked.grant, end: asked.end, attempts };
  }

  /** Waits for the next attempt's time; a grant that a hint led to ends it early. */
  async #pause(refused: RefusedAttempt): Promise<(Asked & { kind: "granted" }) | undefined> {
    const { engine, hints } = this.#shared;
    this.#place ??= engine.fencingClock.place(this.#startedWallMs);
    const pause = startPause(this.#shared, this.#settings);
    try {
      if (refused.refusal !== "held") {
        await untilOver(pause);
        return undefined;
      }
      let last = refused;
      if (this.#waiter === undefined) {
        if (!hints.isOpen) await pause.until(hints.open());
        this.#place = engine.fencingClock.correctPlace(this.#place, this.#startedWallMs);
        this.#waiter = new Waiter(engine, hints, this.#target, this.#place);
        const asked = await this.#corrected(await this.#ask());
        if (asked.kind === "granted") return asked;
        last = asked.refused;
      }
      while (pause.reason === undefined) {
        if (hints.isOpen) await this.#waiter.untilTurn(last.freeInMs, pause);
        else await untilOver(pause);
        if (pause.reason !== undefined) break;
        const asked = await this.#corrected(await this.#ask());
        if (asked.kind === "granted") return asked;
        last = asked.refused;
      }
      return undefined;
    } finally {
      pause.dispose();
    }
  }

  /** Asks again what nobody else has. */
  async #corrected(first: Asked): Promise<Asked> {
    let asked = first;
    for (let corrections = 0; corrections < MAX_CORRECTIONS; corrections += 1) {
      if (asked.kind === "granted" || !isCorrectable(asked.refused)) return asked;
      asked = await this.#ask();
    }
    return asked;
  }

  /** Makes one attempt. Resolves when every client that answers in time has voted. */
  #ask(): Promise<Asked> {
    const { engine } = this.#shared;
    const votes = this.#countVotes();
    this.#waiter?.reset();
    const request: AttemptRequest = {
      target: this.#target,
      asked: readClock(engine.clock),
      ttlMs: this.#duration,
      timeoutMs: engine.options.nodeTimeout,
      place: this.#place,
      enrolment: this.#waiter,
      observe: votes.observe,
    };
    return new Promise((resolve) => {
      startAttempt(engine, request, (result) =>
        votes.whenSettled(() => resolve(this.#conclude(result, request.asked, votes))),
      );
    });
  }

  #conclude(result: AttemptResult, asked: Instant, { stats }: VoteCount): Asked {
    if (result.kind === "refused") return { kind: "refused", refused: result, stats };
    const { engine } = this.#shared;
    const end = leaseEnd(asked, this.#duration, this.#settings.driftFactor);
    if (remainingMs(end, readClock(engine.clock)) > 0) return { kind: "granted", grant: result.grant, end, stats };
    void releaseEverywhere(engine, result.grant);
    return { kind: "refused", refused: TOO_LATE, stats };
  }
}

/** Returns why nobody can have a lock now although the clients answer, or nothing. */
function quarantineOf({ refusal, votes, freeInMs }: RefusedAttempt): string {
  const leftMs = votes.flatMap(({ vote, quarantineLeftMs }) => (vote === "quarantined" ? [quarantineLeftMs ?? 0] : []));
  if (refusal !== "unreachable" || leftMs.length === 0) return "";
  return ` ${leftMs.length} of ${freeInMs.length} clients are in quarantine (new, restarted or without their data), for ${Math.max(...leftMs)} ms more.`;
}

const NOBODY: Enrolment = { member: "", enrolledOn: 0 };

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
export function startPause(
  { engine, closed }: SharedEngine,
  settings: Pick<Settings, "retryDelay" | "retryJitter">,
): CallDeadline {
  const { clock, random } = engine;
  const jitterMs = Math.floor((random.fraction() * 2 - 1) * settings.retryJitter);
  const timeoutMs = Math.max(0, settings.retryDelay + jitterMs);
  return new CallDeadline(clock, { timeoutMs, closed });
}

export async function untilOver(pause: CallDeadline): Promise<void> {
  await pause.until(new Promise<never>(() => undefined));
}
