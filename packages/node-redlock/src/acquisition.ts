/**
 * Acquisition by node-redlock's rules, with the loop of the core.
 *
 * During the pauses the call waits in the line, so a released lock is handed over immediately. An attempt after a hint
 * does not count as one of the `retryCount` attempts.
 */

import { type Instant, readClock } from "@x/redlock-core/kit";
import {
  type Acquirer,
  type Attempted,
  type AttemptOwner,
  type AttemptResult,
  type CallDeadline,
  isCorrectable,
  type LeaseEnd,
  leaseEnd,
  type PlaceInLine,
  type RefusedAttempt,
  remainingMs,
  untilGranted,
} from "@x/redlock-core/protocol";
import { type Call, untilOver } from "./call.ts";
import { ExecutionError } from "./types.ts";
import type { VoteCount } from "./vote-count.ts";

interface Granted {
  readonly token: string;
  readonly fencingToken: number;
  readonly end: LeaseEnd;
}

/** Runs the attempts. Rejects with `ExecutionError` if all attempts fail. */
export async function acquire(call: Call, duration: number): Promise<Granted> {
  const { clock, closed } = call.shared.protocol;
  const started = readClock(clock);
  const acquirer = new Attempts(call, duration, started);
  try {
    return await untilGranted({ clock, started, timeoutMs: Number.POSITIVE_INFINITY, closed }, acquirer);
  } catch (error) {
    // The error was created in the callback of a reply or timer, so its stack does not contain the caller.
    if (error instanceof ExecutionError) Error.captureStackTrace(error);
    throw error;
  }
}

class Attempts implements Acquirer<Granted, RefusedAttempt, Granted> {
  readonly isCorrectable = isCorrectable;
  readonly #call: Call;
  readonly #duration: number;
  readonly #started: Instant;
  /** Votes of the latest attempt. Undefined before the first attempt. */
  #votes: VoteCount | undefined;
  /** Place in the line. Undefined before the first refusal, because the first attempt does not join the line. */
  #place: PlaceInLine | undefined;
  /** Pause before the next counted attempt. Undefined until a counted attempt is refused. */
  #pause: CallDeadline | undefined;

  constructor(call: Call, duration: number, started: Instant) {
    this.#call = call;
    this.#duration = duration;
    this.#started = started;
  }

  untilReady(): Promise<void> | undefined {
    return this.#call.shared.untilUsable();
  }

  attempt(asked: Instant, _leftMs: number, owner: AttemptOwner<Granted, RefusedAttempt>): void {
    const ttlMs = this.#duration;
    const end = leaseEnd(asked, ttlMs, this.#call.settings.driftFactor);
    const votes = this.#call.newVotes();
    this.#votes = votes;
    this.#call.steps.attempt({ asked, ttlMs, place: this.#place }, votes.onAnswer, (result) => {
      const conclude = (): void => owner.onResult(this.#conclude(result, end));
      if (votes.isSettled) conclude();
      else void votes.untilSettled().then(conclude);
    });
  }

  #conclude(result: AttemptResult, end: LeaseEnd): Attempted<Granted, RefusedAttempt> {
    if (result.kind === "refused") return result;
    const { token, fencingToken } = result.grant;
    const grant = { token, fencingToken, end };
    if (remainingMs(end, readClock(this.#call.shared.protocol.clock)) > 0) return { kind: "granted", grant };
    this.drop(grant);
    return TOO_LATE;
  }

  hold(granted: Granted): Granted {
    this.#place?.onGranted();
    this.#noteVotes();
    return granted;
  }

  drop({ token }: Granted): void {
    void this.#call.steps.release({ token, ttlMs: this.#duration }, () => undefined);
  }

  /**
   * Waits until the next counted attempt is due, or until this call has its turn. An attempt in its turn is not
   * counted.
   */
  async untilNext(refused: RefusedAttempt): Promise<void> {
    if (this.#pause === undefined) {
      this.#noteVotes();
      if (this.#call.isLast) throw await this.#finalError(refused);
      this.#pause = this.#call.startPause();
    }
    const pause = this.#pause;
    this.#place ??= this.#call.steps.placeAt(this.#started.wallMs);
    if (refused.refusal === "held") await this.#place.untilTurn(refused.freeInMs, pause, () => untilOver(pause));
    else await untilOver(pause);
    if (pause.reason !== undefined) this.#endPause();
  }

  #noteVotes(): void {
    if (this.#votes !== undefined) this.#call.note(this.#votes);
  }

  errorOf(): ExecutionError {
    return this.#call.error();
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
  async #finalError(refused: RefusedAttempt): Promise<ExecutionError> {
    const error = this.#call.error(quarantineOf(refused));
    this.#place?.leave();
    await this.#call.release(this.#call.shared.protocol.newToken(), 0);
    return error;
  }
}

/** Returns a text if all locks are refused because clients are in quarantine. Empty otherwise. */
function quarantineOf({ refusal, votes, freeInMs }: RefusedAttempt): string {
  const leftMs = votes.flatMap(({ vote, quarantineLeftMs }) => (vote === "quarantined" ? [quarantineLeftMs ?? 0] : []));
  if (refusal !== "unreachable" || leftMs.length === 0) return "";
  return ` ${leftMs.length} of ${freeInMs.length} clients are in quarantine (new, restarted or without their data), for ${Math.max(...leftMs)} ms more.`;
}

const TOO_LATE: RefusedAttempt = { kind: "refused", refusal: "unreachable", votes: [], freeInMs: [] };
