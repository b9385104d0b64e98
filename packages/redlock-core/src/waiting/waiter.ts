/**
 * A waiter for a lock that is held has a place in the line on the nodes, and is told the moment to attempt again.
 *
 * A refused attempt enrols the waiter in the same script, so no wake-up can be lost between the two. The waiter
 * attempts again in these cases:
 * - A quorum of nodes says that it is its turn, or the first of them said so shortly before.
 * - The waiter before it did not take its turn.
 * - Hints may have been lost.
 * - The lease that it was told of must have ended.
 *
 * Nobody polls faster than that, except while another library holds the lock, which tells nobody of its release
 * (`askAgainMs` in scripts/hand-over.lua.ts).
 */
import { type Engine, GRANT_TTL_MS } from "../rounds/engine.ts";
import { Round } from "../rounds/round.ts";
import { type Target, waitText } from "../rules/operation.ts";
import { quorumFreeMs } from "../rules/quorum.ts";
import type { CallDeadline } from "./call-deadline.ts";
import type { Hints } from "./hints.ts";
import { type Enrolment, leaveLines } from "./leave.ts";

/** After the first node's hint, the others' should follow within a round trip. After this time we ask anyway. */
const GATHER_MS = 10;

/** Nodes that cannot tell when they are free (a key without expiry, no answer) are asked again after this time. */
const UNKNOWN_MS = 1_000;

export class Waiter implements Enrolment {
  readonly member: string;
  enrolledOn = 0;
  readonly place: number;
  readonly #engine: Engine;
  readonly #target: Target;
  readonly #stopListening: () => void;
  /** The nodes that said that it is our turn, and those that may have said so while nobody listened. */
  #turns = new Set<number>();
  #gaps = new Set<number>();
  #position: number | undefined;
  #wake: (() => void) | undefined;

  constructor(engine: Engine, hints: Hints, target: Target, place: number) {
    this.#engine = engine;
    this.#target = target;
    this.place = place;
    this.member = hints.nextMember();
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

  /** Forgets earlier hints before each attempt. A hint that comes during the attempt counts for the wait after it. */
  reset(): void {
    this.#turns = new Set();
    this.#gaps = new Set();
    this.#position = undefined;
  }

  /** Whether a quorum of nodes has taken us out of the line, and reserved the lock for us. */
  get hasTurn(): boolean {
    return this.#turns.size >= this.#engine.quorum;
  }

  /**
   * Resolves when it is time to attempt again, or when the deadline is reached. `heed` says whose hints count.
   *
   * One node may be free while a quorum is held, because it restarted or did not answer the holder. That is worth an
   * attempt, but it is nobody's turn.
   */
  async untilTurn(freeInMs: readonly number[], deadline: CallDeadline, heed: "any" | "quorum" = "any"): Promise<void> {
    const { clock, quorum, random, options } = this.#engine;
    const freeMs = quorumFreeMs(freeInMs);
    const pollMs = (Number.isFinite(freeMs) ? freeMs : UNKNOWN_MS) + random.fraction() * options.retryJitter;
    let cancelTimer: () => void = () => undefined;
    const pollDueMs = clock.monotonicMs() + pollMs;
    let dueMs = pollDueMs;
    const turn = new Promise<void>((resolve) => {
      const arm = (): void => {
        cancelTimer();
        cancelTimer = clock.schedule(dueMs - clock.monotonicMs(), resolve, { keepAlive: true });
      };
      const hinted = (): void => {
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
        arm();
      };
      this.#wake = hinted;
      hinted();
    });
    await deadline.until(turn);
    this.#wake = undefined;
    cancelTimer();
  }

  /** Stops listening, and sends nothing. */
  close(): void {
    this.#stopListening();
  }

  leave(): void {
    this.close();
    leaveLines(this.#engine, this.#target, this);
  }
}

/**
 * Waits for a turn without attempting: stands in the line, and is told when it is its turn. It serves callers that
 * wait without a call of `acquire` in hand, like a job that went back to its queue.
 *
 * It resolves at the latest a moment after the lease ends that the nodes told of. Where they cannot tell, it resolves
 * sooner: see `UNKNOWN_MS` and `askAgainMs` in scripts/hand-over.lua.ts.
 *
 * It is not guaranteed that the lock is free then. From the turn on, the lock is reserved for this place for
 * `GRANT_TTL_MS`.
 */
export async function waitForTurn(
  engine: Engine,
  hints: Hints,
  request: { readonly resource: string; readonly place: number | undefined; readonly deadline: CallDeadline },
): Promise<"turn" | "cancelled"> {
  const { deadline } = request;
  const target = engine.targetOf([request.resource]);
  await deadline.until(hints.open());
  const waiter = new Waiter(engine, hints, target, request.place ?? engine.fencingClock.place(engine.clock.wallMs()));
  const freeInMs = await deadline.until(enrol(engine, waiter, target));
  if (freeInMs !== undefined) await waiter.untilTurn(freeInMs, deadline, "quorum");
  // A waiter that ends by the clock still stands in line, for a turn that nobody would take.
  // Asking again from the same place keeps it.
  if (deadline.reason === undefined && waiter.hasTurn) waiter.close();
  else waiter.leave();
  return deadline.reason === undefined ? "turn" : "cancelled";
}

/**
 * Asks the nodes to enrol the waiter. Resolves when a quorum has told it or all have answered, with the milliseconds
 * until each node's key expires. Infinity means that this is not known.
 */
function enrol(engine: Engine, waiter: Waiter, target: Target): Promise<readonly number[]> {
  const freeInMs = engine.nodes.map(() => Number.POSITIVE_INFINITY);
  let open = freeInMs.length;
  let replies = 0;
  return new Promise((resolve) => {
    const text = waitText(target.keys.length, waiter.place, waiter.member);
    const round = new Round(
      engine,
      {
        onAnswer: (node, answer) => {
          if (round.isSentTo(node)) waiter.enrolledOn |= 1 << node;
          const pttl = answer.kind === "reply" ? Number(answer.value) : -1;
          // Free now, or reserved for the first in line: the hint decides, not the clock.
          freeInMs[node] = pttl === -1 ? Number.POSITIVE_INFINITY : Math.max(pttl, 0);
          open -= 1;
          if (answer.kind === "reply") replies += 1;
          if (replies >= engine.quorum || open === 0) resolve([...freeInMs]);
          return open === 0;
        },
      },
      { kind: "other", target, text, timeoutMs: engine.options.nodeTimeout },
    );
    round.ask(engine.clock.monotonicMs());
  });
}
