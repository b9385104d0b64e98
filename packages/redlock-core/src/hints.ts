/**
 * The messages by which nodes wake waiters: one channel per `Redlock`, on every node, opened at the first wait.
 *
 * They are hints and nothing more: a lost one costs a waiter at most the time until the lease that it was told ends, a
 * false one costs one attempt.
 */
import type { Engine } from "./engine.ts";
import { leaveOperation } from "./operation.ts";

export interface HintListener {
  /** The resource is free on this node, and reserved for us. */
  readonly onTurn: (node: number) => void;
  /** We are the `place`-th behind the one that has the reservation for a moment. */
  readonly onNext: (place: number) => void;
}

export class Hints {
  readonly #engine: Engine;
  readonly #channel: string;
  readonly #listeners = new Map<string, HintListener>();
  readonly #active: boolean[];
  readonly #unsubscribes: (() => void)[] = [];
  #opening: Promise<void> | undefined;
  #count = 0;
  #isClosed = false;

  constructor(engine: Engine, id: string = engine.random.token()) {
    this.#engine = engine;
    this.#channel = `x:redlock:${id}`;
    this.#active = engine.nodes.map(() => false);
  }

  /** Whether a quorum of nodes can wake us. */
  get isOpen(): boolean {
    return this.#active.filter((active) => active).length >= this.#engine.quorum;
  }

  /** Opens the channel on every node that can; resolves when a quorum has, or after `nodeTimeout`. Never rejects. */
  async open(): Promise<void> {
    this.#opening ??= this.#subscribeAll();
    if (!this.isOpen) await this.#opening;
  }

  /** A name for a waiter, by which the nodes' scripts find our channel. */
  nextMember(): string {
    this.#count += 1;
    return `${this.#channel}#${this.#count}`;
  }

  listen(member: string, listener: HintListener): () => void {
    this.#listeners.set(member, listener);
    return () => this.#listeners.delete(member);
  }

  close(): void {
    this.#isClosed = true;
    this.#listeners.clear();
    for (const unsubscribe of this.#unsubscribes.splice(0)) unsubscribe();
  }

  #subscribeAll(): Promise<void> {
    const { nodes, clock, options } = this.#engine;
    return new Promise((resolve) => {
      const done = (): void => {
        cancel();
        resolve();
      };
      const cancel = clock.schedule(options.nodeTimeout, done, { keepAlive: true });
      let open = nodes.length;
      for (const [index, node] of nodes.entries()) {
        const subscribed = node.subscribe?.(this.#channel, (message) => this.#onMessage(index, message));
        const settled = (): void => {
          open -= 1;
          if (this.isOpen || open === 0) done();
        };
        if (subscribed === undefined) {
          settled();
          continue;
        }
        subscribed.then((unsubscribe) => {
          if (this.#isClosed) unsubscribe();
          else this.#unsubscribes.push(unsubscribe);
          this.#active[index] = true;
          settled();
        }, settled);
      }
    });
  }

  #onMessage(node: number, message: string): void {
    const [what, member, ...rest] = message.split(" ");
    if (what === undefined || member === undefined) return;
    const listener = this.#listeners.get(member);
    if (what.startsWith("next")) listener?.onNext(Number(what.slice("next".length)));
    else if (listener !== undefined) listener.onTurn(node);
    else if (!this.#isClosed) this.#passOn(node, member, rest.join(" "));
  }

  /** The turn of a waiter that is not here any more: give it back, so that the next one gets it. */
  #passOn(node: number, member: string, key: string): void {
    this.#engine.batchers[node]?.submit({
      operation: leaveOperation(this.#engine.targetOf([key.slice(this.#engine.keyPrefix.length)]), member),
      abandoned: false,
      sent: false,
      onReply: () => undefined,
      onError: () => undefined,
    });
  }
}
