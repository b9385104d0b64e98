/**
 * Watches whether a node answers and accepts writes. A connection that is probably dead, or that leads to a read-only
 * replica, is replaced.
 */
import type { Clock } from "../kit/clock.ts";
import { NO_ANSWER } from "../nodes/connection.ts";
import type { LockNode } from "../nodes/node.ts";
import { deadConnectionMs, READ_ONLY_MS } from "../rules/silence.ts";

export class ConnectionWatch {
  readonly #node: LockNode;
  readonly #clock: Clock;
  readonly #nodeTimeoutMs: number;
  /** Returns the number of answers of the node. */
  readonly #answerCount: () => number;
  #cancel: (() => void) | undefined;
  /** Time of the connection's first refusal to write as a replica. Undefined if there was none. */
  #readOnlySinceMs: number | undefined;
  #isClosed = false;

  constructor(
    node: LockNode,
    clock: Clock,
    { nodeTimeoutMs, answerCount }: { readonly nodeTimeoutMs: number; readonly answerCount: () => number },
  ) {
    this.#node = node;
    this.#clock = clock;
    this.#nodeTimeoutMs = nodeTimeoutMs;
    this.#answerCount = answerCount;
  }

  /** Records that the node is silent if it has owed an answer for `silentMs`, longer than `nodeTimeout`. */
  suspectIfSilent(silentMs: number): void {
    if (silentMs > this.#nodeTimeoutMs) this.suspect();
  }

  /** Records that the node did not answer in time. If no answer follows for a long time, the connection is replaced. */
  suspect(): void {
    const node = this.#node;
    if (this.#isClosed || node.reconnect === undefined || node.state !== "ready") return;
    const count = this.#answerCount();
    this.#cancel ??= this.#clock.schedule(deadConnectionMs(this.#nodeTimeoutMs), () => {
      this.#cancel = undefined;
      if (this.#answerCount() === count && node.state === "ready") node.reconnect?.(NO_ANSWER);
    });
  }

  /**
   * Records a refusal to write as a replica. A refusal that follows the connection's first one after `READ_ONLY_MS` or
   * later replaces the connection. Other answers in between prove nothing, because a replica also answers the release
   * of a missing key.
   */
  refusedAsReplica(): void {
    const nowMs = this.#clock.monotonicMs();
    this.#readOnlySinceMs ??= nowMs;
    if (nowMs - this.#readOnlySinceMs < READ_ONLY_MS || this.#node.state !== "ready") return;
    this.#readOnlySinceMs = undefined;
    this.#node.reconnect?.("the server is a read-only replica, so its name is looked up again");
  }

  /** Called when the state of the node changes: a new connection starts without suspicion. */
  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
    this.#readOnlySinceMs = undefined;
  }

  close(): void {
    this.#isClosed = true;
    this.stop();
  }
}
