/**
 * Sends the ends of jobs in batches (group commit). Ends that are added in one turn of the event loop are sent when the
 * turn is over. While the limit of batches is under way, further ends are collected until a reply arrives.
 *
 * A single end therefore never waits, and each end costs less the busier the worker is. Every end receives its own
 * reply. If the command fails as a whole, all its ends fail, as each would have failed alone.
 */
import { setImmediate } from "node:timers";
import type { Clock } from "@x/redlock-core";
import { sleep } from "@x/redlock-core/kit";

/**
 * The ends in a batch share the cost of a request. With at most 8, a worker completed 10 to 15 % fewer jobs/s than with
 * 16. With more than 16, other clients would wait longer than about a millisecond.
 */
const LARGEST_BATCH = 16;
/**
 * The number of batches under way from which on further ends are collected: the server works on one while the next one
 * travels. A full batch is sent immediately, regardless of this limit.
 */
const MOST_UNDER_WAY = 2;

interface Waiting<End> {
  readonly end: End;
  readonly resolve: (reply: unknown) => void;
  readonly reject: (error: Error) => void;
}

/** Called for each end, in the order of the ends, before the promise that `add` returned is settled. */
interface Outcomes<End> {
  /** Returns the value that `add` resolves with. */
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
   * `send` resolves with one reply for each end, in the order of the ends. An `Error` among the replies is the failure
   * of its end.
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
        this.#onAnswered();
        for (let index = 0; index < batch.length; index += 1) this.#settle(batch[index], replies[index]);
      },
      (error: Error) => {
        this.#onAnswered();
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

  #onAnswered(): void {
    this.#underWay -= 1;
    this.#sendWaiting();
  }
}

const REFUSAL = /^(?:Too many Cluster redirections\. Last error: \w*Error: )?(?:TRYAGAIN|ASK|MOVED|CLUSTERDOWN) /;
const AGAIN_MS = 100;

/**
 * Repeats a request that a Redis Cluster refuses for up to `forMs`, then rejects with the last error.
 *
 * A Cluster refuses scripts while it moves their keys to another master, and while their keys have no master. The
 * client gives up after about 1.6 s. A refused script has changed nothing, so it is safe to send it again.
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
