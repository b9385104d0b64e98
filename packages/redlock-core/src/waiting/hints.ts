/**
 * Hints: the messages by which nodes wake waiters. Each `Redlock` has one channel on every node, opened by the first
 * wait.
 *
 * Correctness never depends on hints. A false hint costs one attempt. A hint that is lost with its connection costs the
 * time until the next connection. A hint that the node itself has lost, because its data was flushed, costs at most the
 * rest of the lease that the node reported to the waiter.
 */

import type { RoundEngine } from "../rounds/round-engine.ts";
import { lockKeyOf } from "../rules/keys.ts";
import { memberOf, type Target } from "../rules/operation.ts";
import { messageCheckMs } from "../rules/silence.ts";
import { leaveLines } from "./leave.ts";
import { Subscription } from "./subscription.ts";

/**
 * Number of keys that are remembered for turns that come too late: about a megabyte. If the key of a turn is forgotten,
 * the lock is reserved in vain for a second.
 */
const MAX_KEYS = 10_000;

interface HintListener {
  /** The resource is free on this node, and reserved for this waiter. */
  readonly onTurn: (node: number) => void;
  /**
   * Called when hints of a node may have been lost. The resource may have been released and acquired by another process
   * in the meantime.
   */
  readonly onGap: (node: number) => void;
  /** Another waiter holds a short reservation, and this waiter is the `position`-th after it. */
  readonly onNext: (position: number) => void;
}

export class Hints {
  readonly #engine: RoundEngine;
  readonly #channel: string;
  readonly #listeners = new Map<string, HintListener>();
  /** Lock keys of the latest waits, oldest first. */
  readonly #recentKeys = new Set<string>();
  readonly #closing = new AbortController();
  #subscription: Subscription | undefined;
  #cancelCheck: (() => void) | undefined;
  #count = 0;

  constructor(engine: RoundEngine, id: string = engine.random.token()) {
    this.#engine = engine;
    this.#channel = `x:redlock:${id}`;
  }

  /** Whether a quorum of nodes can wake the waiters of this process. */
  get isOpen(): boolean {
    return this.#subscription?.isOpen === true;
  }

  /** Opens the channel on every node that supports channels. Resolves like `Subscription.opened`. */
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

  /**
   * Returns a new name for a waiter with this place. The name contains the channel, so that scripts on the nodes can
   * publish to it.
   */
  nextMember(place: number): string {
    this.#count += 1;
    return memberOf(place, `${this.#channel}#${this.#count}`);
  }

  listen(member: string, { resources }: Target, listener: HintListener): () => void {
    for (const resource of resources) this.#rememberKey(lockKeyOf(this.#engine.targets.keyPrefix, resource));
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

  #rememberKey(key: string): void {
    this.#recentKeys.add(key);
    if (this.#recentKeys.size <= MAX_KEYS) return;
    const [oldest] = this.#recentKeys;
    if (oldest !== undefined) this.#recentKeys.delete(oldest);
  }

  /**
   * Asks the connections for messages for a sign of life, because a firewall may have dropped the idle connections.
   * Repeats itself while there are listeners.
   */
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
   * Handles a message. Any client with the right to publish may publish here, so the function must accept every
   * message. A message only affects waiters of this process, and keys for which this process has waited.
   */
  #onMessage(node: number, message: string): void {
    const [what = "", member = "", ...rest] = message.split(" ");
    const listener = this.#listeners.get(member);
    if (what === "turn") {
      if (listener !== undefined) listener.onTurn(node);
      else if (member.includes(`:${this.#channel}#`)) this.#giveBackTurn(node, member, rest.join(" "));
    } else if (/^next[1-9]$/.test(what)) listener?.onNext(Number(what.slice("next".length)));
  }

  /** Gives back the turn of a waiter that has left, so that the next waiter gets the turn. */
  #giveBackTurn(node: number, member: string, key: string): void {
    if (this.#closing.signal.aborted || !this.#recentKeys.has(key)) return;
    const target = this.#engine.targets.of([key.slice(this.#engine.targets.keyPrefix.length)]);
    leaveLines(this.#engine, target, { member, enrolledOn: 1 << node }, { nodes: 1 << node });
  }
}
