/**
 * Watches whether a node answers and may be written to. A connection that is likely to be dead, or that leads to a
 * read-only replica, is replaced.
 */
import type { Clock } from "../kit/clock.ts";
import { NO_ANSWER } from "../nodes/connection.ts";
import type { LockNode } from "../nodes/node.ts";
import { deadConnectionMs, READ_ONLY_MS } from "../rules/silence.ts";

export class NodeWatch {
  readonly #node: LockNode;
  readonly #clock: Clock;
  readonly #nodeTimeoutMs: number;
  /** The number of answers of the node, to requests of any kind. */
  #heard = 0;
  #cancel: (() => void) | undefined;
  /** The times of the first and the last of the latest refusals to write as a replica. */
  #readOnlySinceMs = 0;
  #lastReadOnlyMs = Number.NEGATIVE_INFINITY;
  #isClosed = false;

  constructor(node: LockNode, clock: Clock, nodeTimeoutMs: number) {
    this.#node = node;
    this.#clock = clock;
    this.#nodeTimeoutMs = nodeTimeoutMs;
  }

  /** Notes that the node answered, with an error or without. */
  heard(): void {
    this.#heard += 1;
  }

  /** Notes that the node did not answer in time. If no answer follows for long, the connection is replaced. */
  suspect(): void {
    const node = this.#node;
    if (this.#isClosed || node.reconnect === undefined || node.state !== "ready") return;
    const heard = this.#heard;
    this.#cancel ??= this.#clock.schedule(deadConnectionMs(this.#nodeTimeoutMs), () => {
      this.#cancel = undefined;
      if (this.#heard === heard && node.state === "ready") node.reconnect?.(NO_ANSWER);
    });
  }

  /**
   * Notes a refusal to write as a replica. After refusals for `READ_ONLY_MS`, without a pause as long, the connection
   * is replaced. Other answers say nothing: a replica reads, and so it answers the release of a key that is missing.
   */
  refusedAsReplica(): void {
    const nowMs = this.#clock.monotonicMs();
    const isFirst = nowMs - this.#lastReadOnlyMs > READ_ONLY_MS;
    this.#lastReadOnlyMs = nowMs;
    if (isFirst) this.#readOnlySinceMs = nowMs;
    if (nowMs - this.#readOnlySinceMs < READ_ONLY_MS || this.#node.state !== "ready") return;
    this.#lastReadOnlyMs = Number.NEGATIVE_INFINITY;
    this.#node.reconnect?.("the server is a read-only replica, so its name is looked up again");
  }

  /** Called when the state of the node changes: a new connection starts without suspicion. */
  stop(): void {
    this.#cancel?.();
    this.#cancel = undefined;
  }

  close(): void {
    this.#isClosed = true;
    this.stop();
  }
}
