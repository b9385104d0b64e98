/**
 * Requests that must reach one node sooner or later: releases, waiters that leave their lines, and scripts that take
 * back leases of siblings. A request is sent again when the node becomes ready, or after a pause if a ready node has
 * refused the request. The number of requests is limited, because everything that they would free also expires.
 */
import type { Clock } from "../kit/clock.ts";
import type { LockNode } from "../nodes/node.ts";
import type { BatchOperation } from "./batch-request.ts";

/** An operation that travels with the other operations of its turn. */
export interface UndeliveredOperation extends BatchOperation {
  readonly kind: "release" | "leave";
  /** Time of the monotonic clock after which nothing is left to free. */
  readonly untilMs: number;
}

/** A script that is sent alone. */
export interface UndeliveredScript {
  readonly kind: "script";
  readonly untilMs: number;
  /** Sends the script once. Resolves with true if the node has answered. Never rejects. */
  send(): Promise<boolean>;
}

/**
 * Number of requests kept of each kind. The separate limits keep leaving waiters from displacing releases, which free
 * more.
 */
const MAX_KEPT = 10_000;

/** Pause before requests are sent again that a connected node has refused or not answered. */
const REDELIVERY_MS = 250;

export class UndeliveredRequests {
  readonly #node: LockNode;
  readonly #clock: Clock;
  /** Called when a pause is over, because `take` may return operations again. */
  readonly #onDue: () => void;
  #releases: UndeliveredOperation[] = [];
  #others: UndeliveredOperation[] = [];
  readonly #scripts: UndeliveredScript[] = [];
  #areScriptsUnderWay = false;
  /** Cancels the pause. Undefined if there is no pause. */
  #cancelPause: (() => void) | undefined;
  #isClosed = false;

  constructor(node: LockNode, clock: Clock, onDue: () => void) {
    this.#node = node;
    this.#clock = clock;
    this.#onDue = onDue;
  }

  /**
   * Keeps a request until the node is ready. A node that is ready now was busy or has refused the request, so the
   * request is sent after a pause. Above the limit, expired and then the oldest requests are dropped.
   */
  keep(request: UndeliveredOperation | UndeliveredScript): void {
    if (this.#isClosed) return;
    const nowMs = this.#clock.monotonicMs();
    if (request.kind === "script") append(this.#scripts, request, nowMs);
    else append(request.kind === "release" ? this.#releases : this.#others, request, nowMs);
    if (this.#node.state !== "ready") return;
    this.#cancelPause ??= this.#clock.schedule(REDELIVERY_MS, () => {
      this.#cancelPause = undefined;
      this.#onDue();
      void this.#sendScripts();
    });
  }

  /** Whether `take` may return operations. */
  get isDue(): boolean {
    return this.#cancelPause === undefined && this.#releases.length + this.#others.length > 0;
  }

  /** Called when the node becomes ready. The connection is a new one, so a pause ends. */
  onReady(): void {
    this.#endPause();
    void this.#sendScripts();
  }

  #endPause(): void {
    this.#cancelPause?.();
    this.#cancelPause = undefined;
  }

  /** Removes and returns at most `count` operations: releases first, each kind in the order of the failures. */
  take(count: number, mayAsk: (slot: number) => boolean): readonly UndeliveredOperation[] {
    const nowMs = this.#clock.monotonicMs();
    const taken: UndeliveredOperation[] = [];
    const isKept = (operation: UndeliveredOperation): boolean => {
      if (operation.untilMs <= nowMs) return false;
      if (taken.length >= count || !mayAsk(operation.target.slot)) return true;
      taken.push(operation);
      return false;
    };
    this.#releases = this.#releases.filter(isKept);
    this.#others = this.#others.filter(isKept);
    return taken;
  }

  close(): void {
    this.#isClosed = true;
    this.#endPause();
    this.#releases = [];
    this.#others = [];
    this.#scripts.length = 0;
  }

  /** Sends the scripts one after the other until one fails, so that an outage costs one script per pause. */
  async #sendScripts(): Promise<void> {
    if (this.#areScriptsUnderWay) return;
    this.#areScriptsUnderWay = true;
    let isAnswered = true;
    while (isAnswered) {
      const next = this.#scripts.shift();
      if (next === undefined) break;
      if (next.untilMs <= this.#clock.monotonicMs()) continue;
      isAnswered = await next.send();
      if (!isAnswered) this.keep(next);
    }
    this.#areScriptsUnderWay = false;
  }
}

function append<Each extends { readonly untilMs: number }>(kept: Each[], added: Each, nowMs: number): void {
  kept.push(added);
  if (kept.length <= MAX_KEPT) return;
  const newest = kept.filter(({ untilMs }) => untilMs > nowMs).slice(-MAX_KEPT / 2);
  kept.splice(0, kept.length, ...newest);
}
