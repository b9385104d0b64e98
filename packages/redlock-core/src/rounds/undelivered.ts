/**
 * Keeps operations that must reach a node sooner or later: releases, and waiters that leave their lines. The number is
 * limited, because everything that these operations would free also expires.
 */
import type { Target } from "../rules/operation.ts";

export interface Undelivered {
  readonly target: Target;
  readonly text: string;
  readonly kind: "release" | "other";
  /** Time of the monotonic clock after which nothing is left to free. */
  readonly untilMs: number;
}

/**
 * Number of operations kept of each kind. The separate limits keep leaving waiters from displacing releases, which free
 * more.
 */
const MAX_KEPT = 10_000;

/** Drops expired operations, and the oldest operations above the limit. */
export function dropOldest(kept: { readonly untilMs: number }[], nowMs: number): void {
  if (kept.length <= MAX_KEPT) return;
  const newest = kept.filter(({ untilMs }) => untilMs > nowMs).slice(-MAX_KEPT / 2);
  kept.splice(0, kept.length, ...newest);
}

export class UndeliveredList {
  #releases: Undelivered[] = [];
  #leaves: Undelivered[] = [];

  get isEmpty(): boolean {
    return this.#releases.length === 0 && this.#leaves.length === 0;
  }

  /** Keeps an operation. Above the limit, the oldest operations are dropped. */
  keep(operation: Undelivered, nowMs: number): void {
    const kept = operation.kind === "release" ? this.#releases : this.#leaves;
    kept.push(operation);
    dropOldest(kept, nowMs);
  }

  /** Removes and returns at most `count` operations: releases first, each kind in the order of the failures. */
  take(count: number, nowMs: number, mayAsk: (slot: number) => boolean): readonly Undelivered[] {
    const taken: Undelivered[] = [];
    const isKept = (operation: Undelivered): boolean => {
      if (operation.untilMs <= nowMs) return false;
      if (taken.length >= count || !mayAsk(operation.target.slot)) return true;
      taken.push(operation);
      return false;
    };
    this.#releases = this.#releases.filter(isKept);
    this.#leaves = this.#leaves.filter(isKept);
    return taken;
  }

  clear(): void {
    this.#releases = [];
    this.#leaves = [];
  }
}
