/**
 * The class `CountDownLatch`: processes wait until other processes have counted down a given number of times.
 *
 * While the node keeps its data, no waiter passes before the count reaches 0, and every waiter passes soon after. A
 * latch that does not exist is closed. So a node that lost its data lets nobody through until the latch is set again.
 */
import { QuorumUnreachableError, type Redlock, RedlockClosedError, type Vote } from "@x/redlock-core";
import { abortable, linkSignals, sleep } from "@x/redlock-core/kit";
import { CallDeadline, type NodeReply, protocolOf, type RedlockProtocol } from "@x/redlock-core/protocol";
import { LatchClosedError, LatchNotSetError } from "./errors.ts";
import { latchScript } from "./latch.lua.ts";
import { LatchWatch } from "./latch-watch.ts";
import {
  checkSinglePlace,
  ID,
  type LatchOptions,
  resolveLatchOptions,
  resolveWait,
  SET_COUNT,
  type WaitOptions,
} from "./options.ts";

/** Number of times that an unanswered request is sent. The node counts the request once. */
const MAX_TRIES = 3;

export class CountDownLatch {
  readonly name: string;
  readonly #redlock: Redlock;
  readonly #protocol: RedlockProtocol;
  readonly #key: string;
  readonly #before: string;
  readonly #keepFor: number;

  /**
   * Makes a latch on the node of the `Redlock`. All processes that use the same name on the same node share the latch.
   * @throws RangeError for a `Redlock` of several independent nodes. A Cluster counts as one node.
   */
  constructor(redlock: Redlock, name: string, options: LatchOptions = {}) {
    checkSinglePlace(redlock, name);
    this.#keepFor = resolveLatchOptions(options).keepFor;
    this.name = name;
    this.#redlock = redlock;
    this.#protocol = protocolOf(redlock);
    this.#protocol.keys.checkResource(name);
    this.#key = this.#protocol.keys.sideKey(name, "latch");
    this.#before = this.#protocol.keys.sideKey(name, "latch:before");
  }

  /**
   * Sets the latch to open after `count` count-downs, from 0 to 1000000; with 0 the latch is open immediately. Resolves
   * with false, and changes nothing, if the latch is set and not open yet. Rejects with `QuorumUnreachableError` if the
   * node did not answer, as `countDown` and `count` do.
   *
   * An open latch closes again for its next round. A count-down of the previous round that rejected may still arrive
   * in the next round and count there. To rule this out, give each round its own name.
   */
  async set(count: number): Promise<boolean> {
    return (await this.#ask("set", String(SET_COUNT.of("count", count)))) === 1;
  }

  /**
   * Counts down by one. Resolves with the number of count-downs left; at 0 the latch opens.
   *
   * Each `id` of 1 to 512 characters counts once. Pass the ID of the finished work, so that a retry after an error does
   * not count twice. Default: a new ID per call. Rejects with `LatchNotSetError` if the latch is not set.
   */
  async countDown(id?: string): Promise<number> {
    const left = await this.#ask("down", id === undefined ? undefined : ID.of("id", id));
    if (left < 0) throw new LatchNotSetError(this.name);
    return left;
  }

  /** Resolves with the number of count-downs left: 0 if the latch is open, undefined if the latch is not set. */
  async count(): Promise<number | undefined> {
    const left = await this.#ask("left");
    return left < 0 ? undefined : left;
  }

  /**
   * Waits until the latch is open. The latch may be set during the wait.
   *
   * Rejects with `LatchClosedError` if the latch did not open in time, and with `signal.reason` if the caller cancels.
   * If the node does not answer, the wait continues until `timeout` and then rejects with `QuorumUnreachableError`.
   */
  async wait(options: WaitOptions = {}): Promise<void> {
    const { timeout, signal } = resolveWait(options, this.#redlock);
    const { clock, closed } = this.#protocol;
    await this.#protocol.call(this.name, signal, async () => {
      const startedMs = clock.monotonicMs();
      const ends = linkSignals(signal, closed);
      const deadline = new CallDeadline(clock, { startMs: startedMs, timeoutMs: timeout, signal, closed });
      const watch = LatchWatch.enter({
        redlock: this.#redlock,
        key: this.#key,
        channel: this.#channel,
        read: async () => (await this.#run("left"))[0],
      });
      try {
        await abortable(watch.subscribed, ends.signal);
        for (;;) {
          const left = leftOf(await abortable(watch.look(), ends.signal));
          if (left === 0) return;
          if (deadline.leftMs <= 0) throw this.#inVain(left, clock.monotonicMs() - startedMs);
          await deadline.until(watch.untilDue());
          ends.signal.throwIfAborted();
        }
      } catch (error) {
        if (signal?.aborted !== true && closed.aborted) throw new RedlockClosedError([this.name]);
        throw error;
      } finally {
        watch.leave();
        deadline.dispose();
        ends.unlink();
      }
    });
  }

  #inVain(left: number | readonly Vote[], waitedMs: number): Error {
    if (typeof left !== "number") return this.#unreachable(left, { attempts: 1, elapsedMs: waitedMs });
    return new LatchClosedError(this.name, { left: left < 0 ? undefined : left, waitedMs });
  }

  /** Sends an operation, and sends it again if the node does not answer. Default for `argument`: a new ID. */
  async #ask(operation: string, argument?: string): Promise<number> {
    const { clock, closed } = this.#protocol;
    const call = this.#protocol.newToken();
    const startedMs = clock.monotonicMs();
    return await this.#protocol.call(this.name, undefined, async () => {
      for (let attempts = 1; ; attempts += 1) {
        const [reply] = await this.#run(operation, argument ?? call, call);
        if (reply?.ok === true) return Number(reply.value);
        const votes = reply === undefined ? [] : [failedVote(reply)];
        if (attempts === MAX_TRIES)
          throw this.#unreachable(votes, { attempts, elapsedMs: clock.monotonicMs() - startedMs });
        await sleep(clock, this.#redlock.options.retryDelay, closed, { keepAlive: true }).catch(() => {
          throw new RedlockClosedError([this.name]);
        });
      }
    });
  }

  #run(operation: string, argument = "", call = ""): ReturnType<RedlockProtocol["run"]> {
    const args = [operation, argument, this.#keepFor, this.#channel, call];
    return this.#protocol.run(latchScript, { keys: [this.#key, this.#before], args });
  }

  get #channel(): string {
    return `x:semaphore:${this.#key}`;
  }

  #unreachable(
    votes: readonly Vote[],
    facts: { readonly attempts: number; readonly elapsedMs: number },
  ): QuorumUnreachableError {
    const asked = `latch "${this.name}"`;
    return new QuorumUnreachableError({ resources: [this.name], votes, nodeCount: 1, quorum: 1, asked, ...facts });
  }
}

/** Returns how many count-downs are left, -1 if there is no latch, or the votes of a node that did not answer. */
function leftOf(reply: NodeReply | undefined): number | readonly Vote[] {
  if (reply?.ok === true) return Number(reply.value);
  return reply === undefined ? [] : [failedVote(reply)];
}

function failedVote(reply: { readonly node: string; readonly tookMs: number; readonly error?: Error }): Vote {
  const { node, tookMs, error } = reply;
  return { node, tookMs: Math.round(tookMs), vote: "failed", ...(error === undefined ? {} : { error: error.message }) };
}
