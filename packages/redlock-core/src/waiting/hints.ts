/**
 * Hints are the messages by which nodes wake waiters. Each `Redlock` has one channel on every node, opened at the
 * first wait.
 *
 * They are hints and nothing more: a false one costs one attempt. One that is lost with its connection costs the time
 * until there is another connection. One that the node itself forgot, because its data was flushed, costs at most the
 * rest of the lease that the waiter was told of.
 */

import type { Engine } from "../rounds/engine.ts";
import { lockKeyOf } from "../rules/keys.ts";
import type { Target } from "../rules/operation.ts";
import { messageCheckMs } from "../rules/silence.ts";
import { leaveLines } from "./leave.ts";
import { Subscription } from "./subscription.ts";

/**
 * This many keys are kept for turns that come too late: about a megabyte. If a key is forgotten, its turn is reserved
 * in vain for a second.
 */
const MAX_KEYS = 10_000;

interface HintListener {
  /** The resource is free on this node, and reserved for us. */
  readonly onTurn: (node: number) => void;
  /** The resource may have been free meanwhile, and be another's now, because nobody here received its messages. */
  readonly onGap: (node: number) => void;
  /** We are the `position`-th behind the one that has the reservation for a moment. */
  readonly onNext: (position: number) => void;
}

export class Hints {
  readonly #engine: Engine;
  readonly #channel: string;
  readonly #listeners = new Map<string, HintListener>();
  /** The lock keys that were waited for, the oldest first. */
  readonly #waitedFor = new Set<string>();
  readonly #closing = new AbortController();
  #subscription: Subscription | undefined;
  #cancelCheck: (() => void) | undefined;
  #count = 0;

  constructor(engine: Engine, id: string = engine.random.token()) {
    this.#engine = engine;
    this.#channel = `x:redlock:${id}`;
  }

  /** Whether a quorum of nodes can wake us. */
  get isOpen(): boolean {
    return this.#subscription?.isOpen === true;
  }

  /** Opens the channel on every node that can have one. Resolves as `Subscription.opened` does. */
  async open(): Promise<void> {
    this.#subscription ??= new Subscription(this.#engine, this.#closing.signal, this.#channel, {
      onMessage: (message, node) => this.#onMessage(node, message),
      onGap: (node) => {
        for (const { onGap } of [...this.#listeners.values()]) onGap(node);
      },
      isNeeded: () => this.#listeners.size > 0,
    });
    if (!this.isOpen) await this.#subscription.opened;
  }

  /** Returns a name for a waiter, by which the nodes' scripts find our channel. */
  nextMember(): string {
    this.#count += 1;
    return `${this.#channel}#${this.#count}`;
  }

  listen(member: string, { resources }: Target, listener: HintListener): () => void {
    for (const resource of resources) this.#noteWait(lockKeyOf(this.#engine.keyPrefix, resource));
    this.#listeners.set(member, listener);
    this.#subscription?.askAgain();
    if (this.#cancelCheck === undefined) this.#check();
    return () => this.#listeners.delete(member);
  }

  close(): void {
    this.#closing.abort();
    this.#listeners.clear();
    this.#cancelCheck?.();
  }

  #noteWait(key: string): void {
    this.#waitedFor.add(key);
    if (this.#waitedFor.size <= MAX_KEYS) return;
    const [oldest] = this.#waitedFor;
    if (oldest !== undefined) this.#waitedFor.delete(oldest);
  }

  /** Asks the connections for messages, which are idle, for a sign of life: a firewall may have forgotten them. */
  #check(): void {
    const { nodes, clock, options } = this.#engine;
    if (nodes.every((node) => node.checkMessages === undefined)) return;
    for (const node of nodes) node.checkMessages?.();
    this.#cancelCheck = clock.schedule(messageCheckMs(options.nodeTimeout), () => {
      this.#cancelCheck = undefined;
      if (this.#listeners.size > 0) this.#check();
    });
  }

  /**
   * Handles a message. Anybody who may write to channels at all may write here, so no message may make this throw. It
   * only affects this process's own waiters, and keys that it has waited for.
   */
  #onMessage(node: number, message: string): void {
    const [what = "", member = "", ...rest] = message.split(" ");
    const listener = this.#listeners.get(member);
    if (what === "turn") {
      if (listener !== undefined) listener.onTurn(node);
      else if (member.startsWith(`${this.#channel}#`)) this.#passOn(node, member, rest.join(" "));
    } else if (/^next[1-9]$/.test(what)) listener?.onNext(Number(what.slice("next".length)));
  }

  /** Gives back the turn of a waiter that is not here any more, so that the next one gets it. */
  #passOn(node: number, member: string, key: string): void {
    if (this.#closing.signal.aborted || !this.#waitedFor.has(key)) return;
    const target = this.#engine.targetOf([key.slice(this.#engine.keyPrefix.length)]);
    leaveLines(this.#engine, target, { member, enrolledOn: 1 << node }, { nodes: 1 << node });
  }
}
