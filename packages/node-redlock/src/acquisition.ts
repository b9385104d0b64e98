/**
 * Acquisition by node-redlock's rules: up to `retryCount` attempts after the first, with a pause before each of them.
 * The loop is the loop of the core.
 *
 * During the pauses the call waits in the line, so a released lock is handed over immediately. An attempt after a hint
 * does not count as one of the `retryCount` attempts.
 */

import { type Instant, readClock } from "@x/redlock-core/kit";
import {
  type Acquirer,
  type Attempted,
  type AttemptResult,
  type CallDeadline,
  isCorrectable,
  type LeaseEnd,
  type LockSteps,
  leaseEnd,
  type PlaceInLine,
  type RefusedAttempt,
  remainingMs,
  untilGranted,
} from "@x/redlock-core/protocol";
import { Retries, untilOver } from "./retries.ts";
import type { SharedEngine } from "./shared-engine.ts";
import { ExecutionError, type ExecutionStats, type Settings } from "./types.ts";
import { VoteCount } from "./vote-count.ts";

interface AcquireRequest {
  readonly resources: readonly string[];
  readonly duration: number;
  readonly settings: Settings;
  readonly onError: (error: Error) => void;
}

interface Granted {
  readonly token: string;
  readonly fencingToken: number;
  readonly end: LeaseEnd;
  readonly stats: Promise<ExecutionStats>;
}

interface Refused extends RefusedAttempt {
  readonly stats: Promise<ExecutionStats>;
}

interface Acquired extends Omit<Granted, "stats"> {
  readonly attempts: readonly Promise<ExecutionStats>[];
}

/** Runs the attempts. Rejects with `ExecutionError` if all attempts fail. */
export async function acquire(shared: SharedEngine, request: AcquireRequest): Promise<Acquired> {
  const { clock, closed } = shared.protocol;
  const started = readClock(clock);
  const acquirer = new Attempts(shared, request, started);
  try {
    return await untilGranted({ clock, started, timeoutMs: Number.POSITIVE_INFINITY, closed }, acquirer);
  } catch (error) {
    // The error was created in the callback of a reply or timer, so its stack does not contain the caller.
    if (error instanceof ExecutionError) Error.captureStackTrace(error);
    throw error;
  }
}

class Attempts implements Acquirer<Granted, Refused, Acquired> {
  readonly #shared: SharedEngine;
  readonly #request: AcquireRequest;
  readonly #steps: LockSteps;
  readonly #started: Instant;
  readonly #retries: Retries;
  /** Place in the line. Undefined before the first refusal, because the first attempt does not join the line. */
  #place: PlaceInLine | undefined;
  /** Pause before the next counted attempt. Undefined until a counted attempt is refused. */
  #pause: CallDeadline | undefined;

  constructor(shared: SharedEngine, request: AcquireRequest, started: Instant) {
    this.#shared = shared;
    this.#request = request;
    this.#steps = shared.protocol.stepsOf(request.resources);
    this.#started = started;
    this.#retries = new Retries(shared, request.settings);
  }

  untilReady(): Promise<void> | undefined {
    return this.#shared.untilUsable();
  }

  attempt(asked: Instant, _leftMs: number, onResult: (result: Attempted<Granted, Refused>) => void): void {
    const { duration: ttlMs, settings } = this.#request;
    const votes = this.#newVotes();
    const { stats } = votes;
    const conclude = (result: AttemptResult): Attempted<Granted, Refused> => {
      if (result.kind === "refused") return { ...result, stats };
      const end = leaseEnd(asked, ttlMs, settings.driftFactor);
      const grant = { token: result.grant.token, fencingToken: result.grant.fencingToken, end, stats };
      if (remainingMs(end, readClock(this.#shared.protocol.clock)) > 0) return { kind: "granted", grant };
      this.drop(grant);
      return { ...TOO_LATE, stats };
    };
    this.#steps.attempt({ asked, ttlMs, place: this.#place }, votes.onAnswer, (result) => {
      void votes.settled().then(() => onResult(conclude(result)));
    });
  }

  hold({ stats, ...grant }: Granted): Acquired {
    this.#place?.onGranted();
    this.#retries.note(stats);
    return { ...grant, attempts: this.#retries.attempts };
  }

  drop({ token }: Granted): void {
    void this.#steps.release({ token, ttlMs: this.#request.duration }, this.#newVotes().onAnswer);
  }

  onRefused(): void {}

  isCorrectable(refused: Refused): boolean {
    return isCorrectable(refused);
  }

  /**
   * Waits until the next counted attempt is due, or until this call has its turn. An attempt in its turn is not
   * counted.
   */
  async untilNext(refused: Refused): Promise<void> {
    if (this.#pause === undefined) {
      this.#retries.note(refused.stats);
      if (this.#retries.isLast) {
        await this.#untilReleased();
        throw this.#retries.error(quarantineOf(refused));
      }
      this.#pause = this.#retries.startPause();
    }
    const pause = this.#pause;
    this.#place ??= this.#steps.placeAt(this.#started.wallMs);
    if (refused.refusal === "held") await this.#place.untilTurn(refused.freeInMs, pause, () => untilOver(pause));
    else await untilOver(pause);
    if (pause.reason !== undefined) this.#endPause();
  }

  errorOf(): ExecutionError {
    return this.#retries.error();
  }

  leave(): void {
    this.#endPause();
    this.#place?.leave();
  }

  #endPause(): void {
    this.#pause?.dispose();
    this.#pause = undefined;
  }

  /**
   * Sends a request behind all releases and waits for its answers. Afterwards no client that answers has keys of this
   * call.
   */
  async #untilReleased(): Promise<void> {
    this.#place?.leave();
    const votes = this.#newVotes();
    void this.#steps.release({ token: this.#shared.protocol.newToken(), ttlMs: 0 }, votes.onAnswer);
    await votes.settled();
  }

  #newVotes(): VoteCount {
    return new VoteCount(this.#shared, this.#steps.resourceCount, this.#request.onError);
  }
}

/** Returns a text if all locks are refused because clients are in quarantine. Empty otherwise. */
function quarantineOf({ refusal, votes, freeInMs }: RefusedAttempt): string {
  const leftMs = votes.flatMap(({ vote, quarantineLeftMs }) => (vote === "quarantined" ? [quarantineLeftMs ?? 0] : []));
  if (refusal !== "unreachable" || leftMs.length === 0) return "";
  return ` ${leftMs.length} of ${freeInMs.length} clients are in quarantine (new, restarted or without their data), for ${Math.max(...leftMs)} ms more.`;
}

const TOO_LATE: RefusedAttempt = { kind: "refused", refusal: "unreachable", votes: [], freeInMs: [] };
