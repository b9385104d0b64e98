/**
 * This file has the class `CountDownLatch`: processes wait until others have done so many things.
 *
 * It guarantees, while the node keeps its data, that nobody passes before the count is down, and that whoever waits
 * passes soon after. A latch that does not exist is closed. So a node that lost its data lets nobody through, and
 * whoever set the latch has to set it again.
 */
import { QuorumUnreachableError, type Redlock, RedlockClosedError, type Vote } from "@x/redlock-core";
import {
  abortable,
  CallDeadline,
  linkSignals,
  type NodeReply,
  protocolOf,
  type RedlockProtocol,
  sleep,
} from "@x/redlock-core/protocol";
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

/** A request that was not answered is sent again so often; it counts once, however often it is sent. */
const MAX_TRIES = 3;

export class CountDownLatch {
  readonly name: string;
  readonly #redlock: Redlock;
  readonly #protocol: RedlockProtocol;
  readonly #key: string;
  readonly #before: string;
  readonly #keepFor: number;

  /**
   * Makes a latch on the node of the `Redlock`. Latches of one name on one node are one, in whatever process they are.
   * @throws RangeError for a `Redlock` of several independent nodes; a Cluster is one.
   */
  constructor(redlock: Redlock, name: string, options: LatchOptions = {}) {
    checkSinglePlace(redlock, name);
    this.#keepFor = resolveLatchOptions(options).keepFor;
    this.name = name;
    this.#redlock = redlock;
    this.#protocol = protocolOf(redlock);
    this.#protocol.checkResource(name);
    this.#key = this.#protocol.sideKey(name, "latch");
    this.#before = this.#protocol.sideKey(name, "latch:before");
  }

  /**
   * Sets the latch: so many have to count down before it opens. Resolves false, and changes nothing, if it is set and
   * not open yet. An open one is closed again; a count-down that had rejected may still arrive then, and count. A name
   * of its own for each round rules that out.
   */
  async set(count: number): Promise<boolean> {
    return (await this.#ask("set", String(SET_COUNT.of("count", count)))) === 1;
  }

  /**
   * Counts down by one, and resolves with what is left; at 0 the latch opens. Each `id` counts once, so give the id of
   * what was done: what is tried again after an error is then not counted twice. Default: an id of its own per call.
   *
   * The call rejects with `LatchNotSetError` if there is no such latch.
   */
  async countDown(id?: string): Promise<number> {
    const left = await this.#ask("down", id === undefined ? undefined : ID.of("id", id));
    if (left < 0) throw new LatchNotSetError(this.name);
    return left;
  }

  /** Resolves with what is left to count down: 0 if the latch is open, undefined if there is none. */
  async count(): Promise<number | undefined> {
    const left = await this.#ask("left");
    return left < 0 ? undefined : left;
  }

  /**
   * Waits until the latch is open, also for one that is yet to be set.
   *
   * The call rejects with `LatchClosedError` if that was not in time, and with `signal.reason` if the caller cancels. A
   * node that does not answer is asked again until the time is over; then it rejects with `QuorumUnreachableError`.
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

  /** `argument`: by default an id of its own. */
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
