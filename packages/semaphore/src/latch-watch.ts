/**
 * The callers of one process that wait for the same latch share a watch. A watch has one channel, and reads the latch
 * with one request at a time. So a wait costs the node the same for any number of callers.
 */
import type { Redlock } from "@x/redlock-core";
import { backOffMs, type Deferred, deferred } from "@x/redlock-core/kit";
import { type NodeReply, protocolOf, type RedlockProtocol } from "@x/redlock-core/protocol";

/** The watch reads the latch at least this often, because the node's message may be lost. */
const LOOK_AGAIN_MS = 2_000;

interface WatchParts {
  readonly redlock: Redlock;
  readonly key: string;
  readonly channel: string;
  /** Asks the node how many count-downs are left. */
  readonly read: () => Promise<NodeReply | undefined>;
}

const watchesOf = new WeakMap<Redlock, Map<string, LatchWatch>>();

export class LatchWatch {
  readonly #parts: WatchParts;
  readonly #protocol: RedlockProtocol;
  /** Resolves when the node has confirmed the channel, with a function that unsubscribes. */
  readonly subscribed: Promise<() => void>;
  #callers = 0;
  /** The last look whose request was sent. */
  #sentLook: Promise<NodeReply | undefined> | undefined;
  /** The look whose request is sent after the reply to the last one. */
  #nextLook: Promise<NodeReply | undefined> | undefined;
  #due: Deferred<void> = deferred();
  #isDue = false;
  #failures = 0;
  #cancelTimer: () => void = () => undefined;

  private constructor(parts: WatchParts) {
    this.#parts = parts;
    this.#protocol = protocolOf(parts.redlock);
    this.subscribed = this.#protocol.subscribe(parts.channel, () => this.#becomeDue());
  }

  /** Returns the watch of a latch. The caller calls `leave` at the end of its wait. */
  static enter(parts: WatchParts): LatchWatch {
    const watches = watchesOf.get(parts.redlock) ?? new Map<string, LatchWatch>();
    watchesOf.set(parts.redlock, watches);
    const watch = watches.get(parts.key) ?? new LatchWatch(parts);
    watches.set(parts.key, watch);
    watch.#callers += 1;
    return watch;
  }

  /** Unsubscribes with the last caller. */
  leave(): void {
    this.#callers -= 1;
    if (this.#callers > 0) return;
    this.#cancelTimer();
    watchesOf.get(this.#parts.redlock)?.delete(this.#parts.key);
    this.subscribed.then((unsubscribe) => unsubscribe()).catch(() => undefined);
  }

  /**
   * Reads the latch by a request that is sent after this call. All callers until then share the request. An earlier
   * request would not do: the latch may have opened after the node answered it.
   */
  look(): Promise<NodeReply | undefined> {
    this.#nextLook ??= this.#lookAfter(this.#sentLook);
    return this.#nextLook;
  }

  /** Resolves when the latch may have changed since the last request was sent, or when its message may be lost. */
  untilDue(): Promise<void> {
    return this.#due.promise;
  }

  async #lookAfter(sentLook: Promise<unknown> | undefined): Promise<NodeReply | undefined> {
    await sentLook?.catch(() => undefined);
    this.#sentLook = this.#nextLook;
    this.#nextLook = undefined;
    if (this.#isDue) this.#due = deferred();
    this.#isDue = false;
    const reply = await this.#parts.read();
    this.#failures = reply?.ok === true ? 0 : this.#failures + 1;
    // This process may have missed the message, for which the callers that did not share this look still wait.
    if (reply?.ok === true && Number(reply.value) === 0) this.#becomeDue();
    this.#armTimer();
    return reply;
  }

  #armTimer(): void {
    this.#cancelTimer();
    if (this.#callers === 0) return;
    const { retryDelay: delayMs } = this.#parts.redlock.options;
    const failures = this.#failures;
    const pauseMs = failures === 0 ? LOOK_AGAIN_MS : backOffMs({ failures, delayMs, maxDelayMs: LOOK_AGAIN_MS });
    this.#cancelTimer = this.#protocol.clock.schedule(pauseMs, () => this.#becomeDue(), { keepAlive: true });
  }

  #becomeDue(): void {
    this.#isDue = true;
    this.#due.resolve();
  }
}
