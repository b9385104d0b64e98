/**
 * Ends of jobs travel together (group commit). Those of a turn of the event loop are sent when it ends. While answers
 * are awaited, those that come are gathered until the next one is there.
 *
 * So a lone end waits for nothing, and the busier the worker, the less each end costs. An end is answered for itself. A
 * command that fails as a whole fails all its ends, as it would have failed each alone.
 */
import { setImmediate } from "node:timers";
import type { Clock } from "@x/redlock-core";
import { sleep } from "@x/redlock-core/protocol";

/**
 * What a request costs is shared by its ends: with 8 at most, a worker had 10 to 15 % fewer jobs/s than with 16. With
 * more, other clients would wait for longer than about a millisecond.
 */
const LARGEST_BATCH = 16;
/**
 * Once this many batches are under way, others are gathered: one that the server works on, and one that is on its way.
 * A full batch leaves at once, however many are.
 */
const MOST_UNDER_WAY = 2;

interface Waiting<End> {
  readonly end: End;
  readonly resolve: (reply: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** What becomes of an end is told here first, in the order of the ends. */
interface Outcomes<End> {
  /** Returns what `add` resolves with for this reply. */
  onReply(end: End, reply: unknown): unknown;
  onFailure(end: End): void;
}

export class EndBatches<End> {
  readonly #send: (ends: readonly End[]) => Promise<readonly unknown[]>;
  readonly #outcomes: Outcomes<End>;
  #waiting: Waiting<End>[] = [];
  #underWay = 0;
  #isDue = false;

  /**
   * Takes a `send` that resolves with the answers, in the order of the ends. An `Error` among them is that end's
   * failure.
   */
  constructor(
    send: (ends: readonly End[]) => Promise<readonly unknown[]>,
    outcomes: Outcomes<End> = { onReply: (_end, reply) => reply, onFailure: () => {} },
  ) {
    this.#send = send;
    this.#outcomes = outcomes;
  }

  add(end: End): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ end, resolve, reject });
      if (this.#waiting.length === LARGEST_BATCH) this.#sendWaiting();
      else if (!this.#isDue && this.#underWay < MOST_UNDER_WAY) this.#sendWithLoopTurn();
    });
  }

  #sendWithLoopTurn(): void {
    this.#isDue = true;
    setImmediate(() => {
      this.#isDue = false;
      this.#sendWaiting();
    });
  }

  #sendWaiting(): void {
    const batch = this.#waiting;
    if (batch.length === 0) return;
    this.#waiting = [];
    this.#underWay += 1;
    this.#send(batch.map(({ end }) => end)).then(
      (replies) => {
        this.#answered();
        for (let index = 0; index < batch.length; index += 1) this.#settle(batch[index], replies[index]);
      },
      (error: Error) => {
        this.#answered();
        for (const waiting of batch) this.#settle(waiting, error);
      },
    );
  }

  #settle(waiting: Waiting<End> | undefined, reply: unknown): void {
    if (waiting === undefined) return;
    const { end, resolve, reject } = waiting;
    try {
      if (reply instanceof Error) {
        this.#outcomes.onFailure(end);
        reject(reply);
      } else {
        resolve(this.#outcomes.onReply(end, reply));
      }
    } catch (error) {
      reject(error as Error);
    }
  }

  #answered(): void {
    this.#underWay -= 1;
    this.#sendWaiting();
  }
}

const REFUSAL = /^(?:Too many Cluster redirections\. Last error: \w*Error: )?(?:TRYAGAIN|ASK|MOVED|CLUSTERDOWN) /;
const AGAIN_MS = 100;

/**
 * Sends again for `forMs` what a Cluster refuses, and rejects then as the last one did.
 *
 * A Redis Cluster refuses scripts while it moves their keys to another master, and while it has no master for them. The
 * client gives up after some 1.6 s. A refused script has done nothing, so it may be sent again.
 */
export async function sendRefusedAgain<Value>(clock: Clock, forMs: number, send: () => Promise<Value>): Promise<Value> {
  const untilMs = clock.monotonicMs() + forMs;
  for (;;) {
    try {
      return await send();
    } catch (error) {
      if (!(error instanceof Error && REFUSAL.test(error.message)) || clock.monotonicMs() >= untilMs) throw error;
    }
    await sleep(clock, AGAIN_MS);
  }
}
