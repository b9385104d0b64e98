/**
 * A subscription is a channel on every node. A node that refuses it is asked again, until the subscription is stopped
 * or `closed` aborts.
 */

import type { Clock } from "../kit/clock.ts";
import { onAbort } from "../kit/signals.ts";
import type { LockNode } from "../nodes/node.ts";
import { RESUBSCRIBE_MS } from "../nodes/subscriptions.ts";
import type { Engine } from "../rounds/engine.ts";

interface Listener {
  /** Takes a message of a node, given by its index; it must not throw. */
  onMessage(message: string, node: number): void;
  /** Messages of the node may have been missed. */
  onGap?(node: number): void;
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
    try {
      this.#unsubscribe = await this.#node.subscribe?.(
        this.#channel,
        (message) => this.#listener.onMessage(message, this.#index),
        (isHeard = true) => this.#onGap(isHeard),
      );
      this.isOpen = this.#unsubscribe !== undefined;
      if (this.#isStopped) this.stop();
    } catch {
      if (!this.#isStopped) this.#cancelAsking = this.#clock.schedule(RESUBSCRIBE_MS, () => void this.ask());
    }
  }

  #onGap(isHeard: boolean): void {
    if (!isHeard && !this.isOpen) return;
    this.isOpen = isHeard;
    this.#listener.onGap?.(this.#index);
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancelAsking?.();
    this.#unsubscribe?.();
    this.#unsubscribe = undefined;
  }
}
