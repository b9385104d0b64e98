/**
 * A subscription is a channel on every node. A node that refuses it is asked again a while later, but not while nobody
 * needs it, until the subscription is stopped or `closed` aborts.
 */

import type { Clock } from "../kit/clock.ts";
import { onAbort } from "../kit/signals.ts";
import type { LockNode } from "../nodes/node.ts";
import type { Engine } from "../rounds/engine.ts";

/** The pause before a node that refused a subscription is asked again. */
const RESUBSCRIBE_MS = 5_000;

interface Listener {
  /** Takes a message of a node, given by its index; it must not throw. */
  onMessage(message: string, node: number): void;
  /** Messages of the node may have been missed. */
  onGap?(node: number): void;
  /** Whether a node that refused is asked again when that is due, or only by `askAgain`. Default: it is. */
  isNeeded?(): boolean;
}

export class Subscription {
  /**
   * Resolves when a quorum of nodes has confirmed, all have answered, after `nodeTimeout`, or when `closed` aborts. A
   * client that never connected may leave it without an answer for ever.
   */
  readonly opened: Promise<void>;
  readonly #channels: readonly NodeChannel[];
  readonly #quorum: number;
  readonly #stopListening: () => void;

  constructor({ nodes, clock, options, quorum }: Engine, closed: AbortSignal, channel: string, listener: Listener) {
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

  /** Whether a quorum of nodes can reach us. */
  get isOpen(): boolean {
    return this.#channels.filter(({ isOpen }) => isOpen).length >= this.#quorum;
  }

  /** Somebody needs the channel: asks the nodes again that refused it a while ago. */
  askAgain(): void {
    for (const each of this.#channels) each.askAgain();
  }

  stop(): void {
    this.#stopListening();
    for (const each of this.#channels) each.stop();
  }
}

class NodeChannel {
  /** Whether the node has confirmed the subscription, and has not refused it since. */
  isOpen = false;
  readonly #node: LockNode;
  readonly #index: number;
  readonly #clock: Clock;
  readonly #channel: string;
  readonly #listener: Listener;
  #unsubscribe: (() => void) | undefined;
  #cancelAsking: (() => void) | undefined;
  /** Whether it was refused, and is to be asked for when somebody needs it. */
  #isDue = false;
  /** Whether it was refused at some time, so that messages may be missed until it is confirmed again. */
  #wasRefused = false;
  #isStopped = false;

  constructor(node: LockNode, index: number, clock: Clock, channel: string, listener: Listener) {
    this.#node = node;
    this.#index = index;
    this.#clock = clock;
    this.#channel = channel;
    this.#listener = listener;
  }

  /** Resolves when the node has confirmed or refused. */
  async ask(): Promise<void> {
    this.#isDue = false;
    this.#leave();
    try {
      this.#unsubscribe = await this.#node.subscribe?.(
        this.#channel,
        (message) => this.#listener.onMessage(message, this.#index),
        (isHeard = true) => this.#onGap(isHeard),
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

  /** A connection that replaces another may have the channel before it is due. */
  #onGap(isHeard: boolean): void {
    if (isHeard) this.#cancelAsking?.();
    else if (this.isOpen) this.#askLater();
    else return;
    this.isOpen = isHeard;
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

  #leave(): void {
    this.#unsubscribe?.();
    this.#unsubscribe = undefined;
  }

  stop(): void {
    this.#isStopped = true;
    this.#isDue = false;
    this.#cancelAsking?.();
    this.#leave();
  }
}
