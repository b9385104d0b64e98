/**
 * An extension is one round that prolongs the lease on every node.
 *
 * It succeeds only if a quorum of nodes that may vote *still had* the token, and the round ended before the current
 * validity did.
 *
 * A node where the key was missing is repaired in the same round, but does not count in it. So a gap in ownership is
 * never hidden, and one restarting node after another does not wear the lock down.
 *
 * A node in quarantine does not count either: counting it let two holders overlap in the simulation.
 */

import { readClock } from "../kit/clock.ts";
import type { Engine } from "../rounds/engine.ts";
import { type Answer, type Observer, startRound } from "../rounds/round.ts";
import { type Extension, extendText, repairText } from "../rules/operation.ts";
import { extensionOutcome, quorumOf, type Vote } from "../rules/quorum.ts";
import { type LeaseEnd, leaseEnd, remainingMs } from "../rules/validity.ts";

interface ExtendRequest extends Extension {
  /** How long a node may take to answer. */
  readonly timeoutMs: number;
  /** The end of the current validity. An extension that comes later than this has failed. */
  readonly end: LeaseEnd;
  readonly observe?: Observer | undefined;
  /**
   * Tells whether the lock is still held. It is false once the lock was released or lost, and nothing may be set
   * again then.
   */
  isHeld?(): boolean;
  /** The nodes that are known to have had the key since the grant, as bits. */
  readonly hadKeyOn: number;
}

export type ExtendResult =
  | { readonly kind: "extended"; readonly end: LeaseEnd }
  /** The extension failed for now; the lock is still valid until its old end. */
  | { readonly kind: "failed"; readonly votes: readonly Vote[] }
  /** A quorum says that the lock is not ours. */
  | { readonly kind: "lost"; readonly reason: "taken" | "forced"; readonly votes: readonly Vote[] };

export interface ExtendRound {
  readonly result: Promise<ExtendResult>;
  /** The nodes that may hold a key of ours from now on, as bits. */
  readonly sentTo: number;
}

export function extendRound(engine: Engine, request: ExtendRequest): ExtendRound {
  const { clock, options } = engine;
  const nodeCount = engine.nodes.length;
  const asked = readClock(clock);
  const end = leaseEnd(asked, request.ttlMs, options.driftFactor);
  const tally = { yes: 0, no: 0, taken: 0, forced: 0 };
  const votes: Vote[] = [];
  let settle: (result: ExtendResult) => void = () => undefined;
  const result = new Promise<ExtendResult>((resolve) => {
    settle = resolve;
  });

  const { target } = request;
  /**
   * These nodes have no key and would not set it again. They set it once a quorum has said that the lock is still
   * ours.
   */
  const missingOn = new Set<number>();
  let isExtended = false;
  /** The number of nodes that may have voted for somebody else since the grant. */
  let others = 0;
  const repair = (): void => {
    if (missingOn.size === 0 || request.isHeld?.() === false) return;
    const nodes = new Set(missingOn);
    missingOn.clear();
    startRound(engine, target, repairText(request), {
      timeoutMs: engine.options.nodeTimeout,
      only: (node) => nodes.has(node),
      onAnswer: () => false,
    });
  };
  const observe = (node: number, answer: Answer): void => {
    request.observe?.(node, answer);
    if (answer.kind !== "reply" || answer.value !== 3) return;
    missingOn.add(node);
    if (isExtended) repair();
  };
  const round = startRound(engine, target, extendText(request), {
    timeoutMs: Math.min(request.timeoutMs, Math.max(remainingMs(request.end, asked), 1)),
    observe,
    onAnswer: (node, answer) => {
      const tookMs = Math.round(clock.monotonicMs() - asked.monotonicMs);
      const name = engine.nodes[node]?.name ?? "";
      if (answer.kind === "error") {
        tally.no += 1;
        votes.push({ node: name, vote: "failed", tookMs, error: answer.message });
      } else if (answer.quarantineLeftMs > 0) {
        tally.no += 1;
        votes.push({ node: name, vote: "quarantined", tookMs, quarantineLeftMs: answer.quarantineLeftMs });
      } else if (answer.value === 1) {
        tally.yes += 1;
        votes.push({ node: name, vote: "granted", tookMs });
      } else {
        tally.no += 1;
        votes.push({ node: name, vote: "held", tookMs });
        if (Array.isArray(answer.value)) {
          tally.taken += 1;
          if (answer.value[2] === 1) tally.forced += 1;
        }
      }
      const isKept =
        answer.kind === "error" ? (request.hadKeyOn & (1 << node)) !== 0 : votes.at(-1)?.vote === "granted";
      if (!isKept) others += 1;
      const decided = extensionOutcome(tally, nodeCount);
      if (decided === "open") return false;
      const isInTime = remainingMs(request.end, readClock(clock)) > 0;
      if (decided === "taken") settle({ kind: "lost", reason: tally.forced > 0 ? "forced" : "taken", votes });
      else if (decided === "won" && isInTime) {
        isExtended = true;
        repair();
        settle({ kind: "extended", end });
      } else {
        // Too few nodes for anybody else: what is missing on these was never there.
        if (others < quorumOf(nodeCount) && isInTime) repair();
        settle({ kind: "failed", votes });
      }
      return true;
    },
  });
  return {
    result,
    get sentTo() {
      return round.sentTo;
    },
  };
}
