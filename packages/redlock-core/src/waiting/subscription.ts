/**
 * A subscription is a channel on every node, for messages of the sibling packages. A node that refuses it is asked
 * again, until the subscription is stopped.
 */

import type { Clock } from "../kit/clock.ts";
import { callQuietly } from "../kit/emitter.ts";
import { onAbort } from "../kit/signals.ts";
import type { LockNode } from "../nodes/node.ts";
import { RESUBSCRIBE_MS } from "../nodes/subscriptions.ts";
import type { Engine } from "../rounds/engine.ts";

/**
 * Subscribes on every node. Resolves with a function that stops it, when a quorum of nodes has confirmed, all have
 * answered, after `nodeTimeout`, or when `closed` aborts.
 */
export async function subscribeEverywhere(
  { nodes, clock, options, quorum }: Engine,
  closed: AbortSignal,
  channel: string,
  listener: (message: string, node: string) => void,
): Promise<() => void> {
  const subscriptions = nodes.map((node) => new Subscription(node, clock, channel, listener));
  const stopAll = (): void => {
    stopListening();
    for (const subscription of subscriptions) subscription.stop();
  };
  const stopListening = onAbort(closed, stopAll);
  await untilEnough(
    clock,
    { timeoutMs: options.nodeTimeout, closed },
    subscriptions.map((subscription) => subscription.ask()),
    () => subscriptions.filter(({ isOpen }) => isOpen).length >= quorum,
  );
  return stopAll;
}

/**
 * Resolves when an answer was enough, all have come, after `timeoutMs`, or when `closed` aborts. `answers` do not
 * reject. A client that never connected may leave them open for ever.
 */
export function untilEnough(
  clock: Clock,
  { timeoutMs, closed }: { readonly timeoutMs: number; readonly closed: AbortSignal },
  answers: readonly Promise<void>[],
  isEnough: () => boolean,
): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      cancel();
      stopListening();
      resolve();
    };
    const cancel = clock.schedule(timeoutMs, end, { keepAlive: true });
    const stopListening = onAbort(closed, end);
    let open = answers.length;
    const onAnswer = (): void => {
      open -= 1;
      if (open === 0 || isEnough()) end();
    };
    for (const answer of answers) void answer.then(onAnswer);
  });
}

class Subscription {
  readonly #node: LockNode;
  readonly #clock: Clock;
  readonly #channel: string;
  readonly #listener: (message: string, node: string) => void;
  #unsubscribe: (() => void) | undefined;
  #cancelAsking: (() => void) | undefined;
  #isStopped = false;

  constructor(node: LockNode, clock: Clock, channel: string, listener: (message: string, node: string) => void) {
    this.#node = node;
    this.#clock = clock;
    this.#channel = channel;
    this.#listener = listener;
  }

  get isOpen(): boolean {
    return this.#unsubscribe !== undefined;
  }

  /** Resolves when the node has confirmed or refused. */
  async ask(): Promise<void> {
    try {
      const { name } = this.#node;
      const unsubscribe = await this.#node.subscribe?.(this.#channel, (message) =>
        callQuietly(() => this.#listener(message, name)),
      );
      if (this.#isStopped) unsubscribe?.();
      else this.#unsubscribe = unsubscribe;
    } catch {
      if (!this.#isStopped) this.#cancelAsking = this.#clock.schedule(RESUBSCRIBE_MS, () => void this.ask());
    }
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancelAsking?.();
    this.#unsubscribe?.();
    this.#unsubscribe = undefined;
  }
}
