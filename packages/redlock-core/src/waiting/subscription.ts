/**
 * A subscription to one channel on every node. A node that refuses is asked again after a pause, but only while the
 * channel is needed, until the subscription is stopped or `closed` aborts.
 */

import type { Clock } from "../kit/clock.ts";
import { onAbort } from "../kit/signals.ts";
import type { LockNode } from "../nodes/node.ts";
import type { RoundEngine } from "../rounds/round-engine.ts";

/** Pause before a node that has refused a subscription is asked again. */
const RESUBSCRIBE_MS = 5_000;

interface Listener {
  /** Called with a message and the index of its node. Must not throw. */
  onMessage(message: string, node: number): void;
  /** Called when messages of the node may have been missed. */
  onGap?(node: number): void;
  /**
   * Reports whether a node that refused is asked again after the pause. If false, `askAgain` does so later. Default:
   * true.
   */
  isNeeded?(): boolean;
}

export class Subscription {
  /**
   * Resolves when a quorum of nodes has confirmed, when all nodes have answered, after `nodeTimeout`, or when `closed`
   * aborts. A client that never connects may leave the request unanswered forever.
   */
  readonly opened: Promise<void>;
  readonly #channels: readonly NodeChannel[];
  readonly #quorum: number;
  readonly #stopListening: () => void;

  constructor(
    { nodes, clock, options, quorum }: RoundEngine,
    closed: AbortSignal,
    channel: string,
    listener: Listener,
  ) {
    this.#quorum = quorum;
    this.#channels = nodes.map((node, index) => new NodeChannel(node, index, clock, channel, listener));
    this.#stopListening = onAbort(closed, () => this.stop());
    this.opened = new Promise((resolve) => {
      const end = (): void => {
        cancel();
        stopListening();
        resolve();
      };
      const cancel = clock.schedule(options.nodeTimeout, end, { keepAlive: true });
      const stopListening = onAbort(closed, end);
      let open = nodes.length;
      for (const each of this.#channels) {
        void each.ask().then(() => {
          open -= 1;
          if (open === 0 || this.isOpen) end();
        });
      }
    });
    if (closed.aborted) this.stop();
  }

  /** Whether a quorum of nodes can send messages to this process. */
  get isOpen(): boolean {
    return this.#channels.filter(({ isOpen }) => isOpen).length >= this.#quorum;
  }

  /** Called when the channel is needed again. Repeats the requests that were refused and whose pause is over. */
  askAgain(): void {
    for (const each of this.#channels) each.askAgain();
  }

  stop(): void {
    this.#stopListening();
    for (const each of this.#channels) each.stop();
  }
}

class NodeChannel {
  /** Whether the node has confirmed the subscription and has not refused it since. */
  isOpen = false;
  readonly #node: LockNode;
  readonly #index: number;
  readonly #clock: Clock;
  readonly #channel: string;
  readonly #listener: Listener;
  #unsubscribe: (() => void) | undefined;
  #cancelAsking: (() => void) | undefined;
  /** Whether the request was refused, and is repeated as soon as the channel is needed. */
  #isDue = false;
  /** Whether a request was ever refused, so that messages may have been missed until the confirmation. */
  #wasRefused = false;
  #isStopped = false;

  constructor(node: LockNode, index: number, clock: Clock, channel: string, listener: Listener) {
    this.#node = node;
    this.#index = index;
    this.#clock = clock;
    this.#channel = channel;
    this.#listener = listener;
  }

  /** Requests the subscription. Resolves when the node has confirmed or refused it. */
  async ask(): Promise<void> {
    this.#isDue = false;
    this.#endSubscription();
    try {
      this.#unsubscribe = await this.#node.subscribe?.(
        this.#channel,
        (message) => this.#listener.onMessage(message, this.#index),
        (isSubscribed = true) => this.#onGap(isSubscribed),
      );
    } catch {
      this.#askLater();
      return;
    }
    this.isOpen = this.#unsubscribe !== undefined;
    if (this.#isStopped) this.stop();
    else if (this.#wasRefused) this.#listener.onGap?.(this.#index);
  }

  askAgain(): void {
    if (this.#isDue) void this.ask();
  }

  /** Handles a gap. A replaced connection may have subscribed again before the pause is over. */
  #onGap(isSubscribed: boolean): void {
    if (isSubscribed) this.#cancelAsking?.();
    else if (this.isOpen) this.#askLater();
    else return;
    this.isOpen = isSubscribed;
    this.#isDue = false;
    this.#listener.onGap?.(this.#index);
  }

  #askLater(): void {
    if (this.#isStopped) return;
    this.#wasRefused = true;
    this.#cancelAsking = this.#clock.schedule(RESUBSCRIBE_MS, () => {
      this.#isDue = true;
      if (this.#listener.isNeeded?.() !== false) this.askAgain();
    });
  }

  #endSubscription(): void {
    this.#unsubscribe?.();
    this.#unsubscribe = undefined;
  }

  stop(): void {
    this.#isStopped = true;
    this.#isDue = false;
    this.#cancelAsking?.();
    this.#endSubscription();
  }
}
