/**
 * This file keeps what must reach a node sooner or later: releases, and waiters that leave their lines. It is
 * bounded, because what they would free expires by itself.
 */
import type { Target } from "../rules/operation.ts";

export interface Undelivered {
  readonly target: Target;
  readonly text: string;
  readonly kind: "release" | "other";
  /** Until this time, by the monotonic clock, there may be something to free. */
  readonly untilMs: number;
}

/** This many of each kind are kept, so that waiters that leave do not push out releases, which free more. */
const MAX_KEPT = 10_000;

/** Drops what is over by now, and the oldest, when there are too many. */
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

  /** Keeps an operation. The oldest go first when there are too many. */
  keep(operation: Undelivered, nowMs: number): void {
    const kept = operation.kind === "release" ? this.#releases : this.#leaves;
    kept.push(operation);
    dropOldest(kept, nowMs);
  }

  /** Takes at most `count` out, releases first, each in the order of their failures. */
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
