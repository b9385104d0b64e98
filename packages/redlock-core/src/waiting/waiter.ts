/**
 * A waiter for a lock that is held. It has a place in the lines of the nodes, and is notified when to attempt again.
 *
 * A refused attempt enrols the waiter in the same script, so no wake-up can be lost in between. The waiter attempts
 * again in these cases:
 * - A quorum of nodes has given it the turn, or a first node has done so shortly before.
 * - The waiter in front has not used its turn.
 * - Hints may have been lost.
 * - The lease that the nodes reported must have ended.
 *
 * Waiters poll more often only while another library holds the lock, because other libraries do not notify waiters of a
 * release (`askAgainMs` in scripts/hand-over.lua.ts).
 */

import type { CallDeadline } from "../kit/deadlines.ts";
import { Round } from "../rounds/round.ts";
import type { RoundEngine } from "../rounds/round-engine.ts";
import { GRANT_TTL_MS, type Target, waitText } from "../rules/operation.ts";
import { quorumFreeMs } from "../rules/quorum.ts";
import type { Hints } from "./hints.ts";
import { type Enrolment, leaveLines } from "./leave.ts";

/**
 * After the hint of the first node, the hints of the others should follow within a round trip. After this time the
 * waiter attempts even without them.
 */
const GATHER_MS = 10;

/** Nodes without a known time (a key without expiry, no answer) are asked again after this time. */
const UNKNOWN_MS = 1_000;

export class Waiter implements Enrolment {
  readonly member: string;
  enrolledOn = 0;
  readonly #engine: RoundEngine;
  readonly #target: Target;
  readonly #stopListening: () => void;
  /** Nodes that have given this waiter the turn, and nodes whose hints may have been lost. */
  #turns = new Set<number>();
  #gaps = new Set<number>();
  #position: number | undefined;
  #wake: (() => void) | undefined;

  constructor(engine: RoundEngine, hints: Hints, target: Target, place: number) {
    this.#engine = engine;
    this.#target = target;
    this.member = hints.nextMember(place);
    this.#stopListening = hints.listen(this.member, target, {
      onTurn: (node) => {
        this.#turns.add(node);
        this.#wake?.();
      },
      onGap: (node) => {
        this.#gaps.add(node);
        this.#wake?.();
      },
      onNext: (position) => {
        this.#position = position;
        this.#wake?.();
      },
    });
  }

  /**
   * Forgets earlier hints before an attempt. A hint that arrives during the attempt counts for the wait after the
   * attempt.
   */
  reset(): void {
    this.#turns = new Set();
    this.#gaps = new Set();
    this.#position = undefined;
  }

  /** Whether a quorum of nodes has removed this waiter from the line and reserved the lock for it. */
  get hasTurn(): boolean {
    return this.#turns.size >= this.#engine.quorum;
  }

  /**
   * Resolves when it is time to attempt again, or when the deadline is reached. With `heed` "any" a single node's hint
   * counts; with "quorum" only the hints of a quorum do.
   *
   * A single node may be free while a quorum is held, because the node has restarted or did not answer the holder. Its
   * hint is worth an attempt, but it does not mean that the turn of this waiter has come.
   */
  async untilTurn(freeInMs: readonly number[], deadline: CallDeadline, heed: "any" | "quorum" = "any"): Promise<void> {
    const { clock, quorum, random, options } = this.#engine;
    const freeMs = quorumFreeMs(freeInMs);
    const pollMs = (Number.isFinite(freeMs) ? freeMs : UNKNOWN_MS) + random.fraction() * options.retryJitter;
    let cancelTimer: () => void = () => undefined;
    const pollDueMs = clock.monotonicMs() + pollMs;
    let dueMs = pollDueMs;
    const turn = new Promise<void>((resolve) => {
      const startTimer = (): void => {
        cancelTimer();
        cancelTimer = clock.schedule(dueMs - clock.monotonicMs(), resolve, { keepAlive: true });
      };
      const onHint = (): void => {
        const hints = new Set([...this.#turns, ...this.#gaps]).size;
        if (hints >= quorum) {
          resolve();
          return;
        }
        const now = clock.monotonicMs();
        if (hints > 0 && heed === "any") dueMs = Math.min(dueMs, now + GATHER_MS * (1 + random.fraction()));
        else if (this.#position !== undefined) {
          dueMs = Math.min(pollDueMs, now + this.#position * GRANT_TTL_MS + random.fraction() * options.retryJitter);
        }
        startTimer();
      };
      this.#wake = onHint;
      onHint();
    });
    await deadline.until(turn);
    this.#wake = undefined;
    cancelTimer();
  }

  /** Stops listening without sending a request. */
  close(): void {
    this.#stopListening();
  }

  leave(): void {
    this.close();
    leaveLines(this.#engine, this.#target, this);
  }
}

/**
 * Waits for a turn without attempting to lock: joins the lines, and resolves when the turn comes. Meant for callers
 * that wait outside a call of `acquire`, like a job that went back to its queue.
 *
 * Resolves at the latest a moment after the end of the lease that the nodes reported. If the nodes do not know the end,
 * resolves sooner: see `UNKNOWN_MS` and `askAgainMs` in scripts/hand-over.lua.ts.
 *
 * The lock is not guaranteed to be free at this moment. From the turn on it is reserved for this place for
 * `GRANT_TTL_MS`.
 */
export async function waitForTurn(
  engine: RoundEngine,
  hints: Hints,
  request: { readonly resource: string; readonly place: number | undefined; readonly deadline: CallDeadline },
): Promise<"turn" | "cancelled"> {
  const { deadline } = request;
  const target = engine.targets.of([request.resource]);
  await deadline.until(hints.open());
  const waiter = new Waiter(engine, hints, target, request.place ?? engine.fencingClock.place(engine.clock.wallMs()));
  const freeInMs = await deadline.until(enrol(engine, waiter, target));
  if (freeInMs !== undefined) await waiter.untilTurn(freeInMs, deadline, "quorum");
  // A waiter that ends by the clock is still in line, for a turn that nobody would use. A new request with the same
  // place keeps the position.
  if (deadline.reason === undefined && waiter.hasTurn) waiter.close();
  else waiter.leave();
  return deadline.reason === undefined ? "turn" : "cancelled";
}

/**
 * Asks the nodes to enrol the waiter. Resolves when a quorum has answered or all nodes have answered or failed. The
 * result is the number of milliseconds until each node's key expires; Infinity if unknown.
 */
function enrol(engine: RoundEngine, waiter: Waiter, target: Target): Promise<readonly number[]> {
  const freeInMs = engine.nodes.map(() => Number.POSITIVE_INFINITY);
  let open = freeInMs.length;
  let replies = 0;
  return new Promise((resolve) => {
    const text = waitText(target.keys.length, waiter.member);
    const round = new Round(engine, {
      kind: "wait",
      target,
      text,
      timeoutMs: engine.options.nodeTimeout,
      onAnswer: (node, answer) => {
        if (round.isSentTo(node)) waiter.enrolledOn |= 1 << node;
        const pttl = answer.kind === "reply" ? Number(answer.value) : -1;
        // -1: unknown, because the key has no expiry or the node did not answer. -2: the key was missing; the node
        // now reserves the lock for the first in line.
        freeInMs[node] = pttl === -1 ? Number.POSITIVE_INFINITY : Math.max(pttl, 0);
        open -= 1;
        if (answer.kind === "reply") replies += 1;
        if (replies >= engine.quorum || open === 0) resolve([...freeInMs]);
        return open === 0;
      },
    });
    round.ask(engine.clock.monotonicMs());
  });
}
