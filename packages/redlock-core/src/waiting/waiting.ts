/**
 * A waiter for a lock that is held has a place in the queue on the nodes, and is told the moment to attempt again.
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
import type { Engine } from "../rounds/engine.ts";
import { GRANT_TTL_MS } from "../rounds/engine.ts";
import type { Target } from "../rules/operation.ts";
import { quorumFreeMs } from "../rules/quorum.ts";
import type { Hints } from "./hints.ts";
import { type Enrolment, leaveQueues } from "./leave.ts";
import type { Limit } from "./limit.ts";

/**
 * After the first node's hint, the others' should follow within a round trip. After this time we ask even if they did
 * not.
 */
const GATHER_MS = 10;

/** Nodes that cannot tell when they are free (a key without expiry, no answer) are asked again after this time. */
const UNKNOWN_MS = 1_000;

export class Waiter implements Enrolment {
  readonly member: string;
  readonly on: Set<number> = new Set();
  readonly order: number;
  readonly #engine: Engine;
  readonly #target: Target;
  readonly #stopListening: () => void;
  /** The nodes that said that it is our turn, and those that may have said so while nobody listened. */
  #turns = new Set<number>();
  #gaps = new Set<number>();
  #place: number | undefined;
  #wake: (() => void) | undefined;

  constructor(engine: Engine, hints: Hints, target: Target, order: number) {
    this.#engine = engine;
    this.#target = target;
    this.order = order;
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
      onNext: (place) => {
        this.#place = place;
        this.#wake?.();
      },
    });
  }

  /** Forgets earlier hints before each attempt. A hint that comes during the attempt counts for the wait after it. */
  reset(): void {
    this.#turns = new Set();
    this.#gaps = new Set();
    this.#place = undefined;
  }

  /** Whether a quorum of nodes has taken us out of the queue, and reserved the lock for us. */
  get hasTurn(): boolean {
    return this.#turns.size >= this.#engine.quorum;
  }

  /**
   * Resolves when it is time to attempt again, or when the limit is reached. `heed` says whose hints count.
   *
   * One node may be free while a quorum is held, because it restarted or did not answer the holder. That is worth an
   * attempt, but it is nobody's turn.
   */
  async untilTurn(freeInMs: readonly number[], limit: Limit, heed: "any" | "quorum" = "any"): Promise<void> {
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
        else if (this.#place !== undefined) {
          dueMs = Math.min(pollDueMs, now + this.#place * GRANT_TTL_MS + random.fraction() * options.retryJitter);
        }
        arm();
      };
      this.#wake = hinted;
      hinted();
    });
    await limit.until(turn);
    this.#wake = undefined;
    cancelTimer();
  }

  /** Stops listening, and sends nothing. */
  close(): void {
    this.#stopListening();
  }

  leave(): void {
    this.close();
    leaveQueues(this.#engine, this.#target, this);
  }
}
