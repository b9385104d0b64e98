/**
 * An extension is one round that prolongs the lease on every node.
 *
 * An extension succeeds only if a quorum of nodes that may vote *still had* the token. The round must end within its
 * timeout and before the current validity ends.
 *
 * A node whose key was missing is repaired in the same round, so that nodes that restart one after another do not wear
 * the lock down. The repaired node does not count in this round. As long as every node that loses its data is in
 * quarantine, this rule is only a second line of defense. With `quarantine: false` the rule prevents a gap in ownership
 * from being hidden.
 *
 * A node in quarantine does not count either. Counting it let two holders overlap in the simulation.
 */

import { type Instant, readClock } from "../kit/clock.ts";
import { deferred } from "../kit/signals.ts";
import { type Answer, type AnswerObserver, startRound } from "../rounds/round.ts";
import { type Extension, extendText, repairText } from "../rules/operation.ts";
import { extensionOutcome, type Vote } from "../rules/quorum.ts";
import { elapsedMs, type LeaseEnd, leaseEnd, remainingMs } from "../rules/validity.ts";
import { parseExtension } from "../scripts/extend.lua.ts";
import type { Engine } from "./engine.ts";

export interface LeaseExtension {
  readonly ttlMs: number;
  /** Possible drift between clocks, as a share of `ttlMs`. */
  readonly driftFactor: number;
  /** How long a node may take to answer. */
  readonly timeoutMs: number;
  /** End of the current validity. An extension that ends later has failed. */
  readonly end: LeaseEnd;
}

interface ExtendRequest extends Extension, LeaseExtension {
  readonly observe?: AnswerObserver | undefined;
  /** Reports whether the lock is still held. After a release or loss, no key may be set again. */
  isHeld?(): boolean;
  /** Nodes that are known to have had the key since the grant, as bits. */
  readonly hadKeyOn: number;
}

export type ExtendResult =
  | { readonly kind: "extended"; readonly end: LeaseEnd }
  /** The extension failed for now. The lock is valid until its old end. */
  | { readonly kind: "failed"; readonly votes: readonly Vote[] }
  /** A quorum reports that another holder has the lock. */
  | { readonly kind: "lost"; readonly reason: "taken" | "forced"; readonly votes: readonly Vote[] };

export interface ExtendRound {
  readonly result: Promise<ExtendResult>;
  /** Nodes that may hold a key with the token from now on, as bits. */
  readonly sentTo: number;
}

type Count = (vote: Vote, loss?: "taken" | "forced") => ExtendResult | undefined;

/**
 * Returns a function that counts the votes of one extension. The function takes a vote, with the kind of loss if the
 * node reports another holder, and returns the result once decided.
 */
export function countExtension(
  engine: Engine,
  asked: Instant,
  { ttlMs, driftFactor, timeoutMs, end }: LeaseExtension,
): Count {
  const { clock, nodes } = engine;
  const votes: Vote[] = [];
  const tally = { yes: 0, no: 0, taken: 0, forced: 0 };
  return (vote, loss) => {
    votes.push(vote);
    tally[vote.vote === "granted" ? "yes" : "no"] += 1;
    if (loss !== undefined) tally.taken += 1;
    if (loss === "forced") tally.forced += 1;
    const decided = extensionOutcome(tally, nodes.length);
    if (decided === "open") return undefined;
    if (decided === "taken") return { kind: "lost", reason: tally.forced > 0 ? "forced" : "taken", votes };
    const now = readClock(clock);
    const isInTime = elapsedMs(asked, now) < timeoutMs && remainingMs(end, now) > 0;
    return decided === "won" && isInTime
      ? { kind: "extended", end: leaseEnd(asked, ttlMs, driftFactor) }
      : { kind: "failed", votes };
  };
}

export function extendRound(engine: Engine, request: ExtendRequest): ExtendRound {
  const { clock } = engine;
  const { target } = request;
  const asked = readClock(clock);
  const timeoutMs = Math.min(request.timeoutMs, Math.max(remainingMs(request.end, asked), 1));
  const count = countExtension(engine, asked, request);
  const { promise: result, resolve } = deferred<ExtendResult>();
  /** Nodes without the key, as bits. They set the key again once a quorum has confirmed that the lock is still held. */
  let missingOn = 0;
  let isExtended = false;
  /** Number of nodes that may have voted for another client since the grant. */
  let others = 0;
  const repair = (): void => {
    if (missingOn === 0 || request.isHeld?.() === false) return;
    const nodes = missingOn;
    missingOn = 0;
    const { nodeTimeout } = engine.options;
    startRound(engine, {
      kind: "repair",
      target,
      text: repairText(request),
      timeoutMs: nodeTimeout,
      nodes,
      onAnswer: () => false,
    });
  };
  const round = startRound(engine, {
    kind: "extend",
    target,
    text: extendText(request),
    timeoutMs,
    observe: (node, answer) => {
      request.observe?.(node, answer);
      if (answer.kind !== "reply" || parseExtension(answer.value) !== "missing") return;
      missingOn |= 1 << node;
      if (isExtended) repair();
    },
    onAnswer: (node, answer) => {
      const about = {
        node: engine.nodes[node]?.name ?? "",
        tookMs: Math.round(clock.monotonicMs() - asked.monotonicMs),
      };
      const vote = voteOf(answer);
      const isKept = answer.kind === "error" ? (request.hadKeyOn & (1 << node)) !== 0 : vote.vote === "granted";
      if (!isKept) others += 1;
      const decided = count({ ...about, ...vote }, vote.vote === "held" ? lossIn(answer) : undefined);
      if (decided === undefined) return false;
      isExtended = decided.kind === "extended";
      // Too few nodes could have voted for another client, so no other client can have acquired the lock.
      const isOurs = decided.kind === "failed" && others < engine.quorum;
      if (isExtended || (isOurs && remainingMs(request.end, readClock(clock)) > 0)) repair();
      resolve(decided);
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

function voteOf(answer: Answer): Pick<Vote, "vote" | "error" | "quarantineLeftMs"> {
  if (answer.kind === "error") return { vote: "failed", error: answer.message };
  const { value, quarantineLeftMs } = answer;
  if (quarantineLeftMs > 0) return { vote: "quarantined", quarantineLeftMs };
  return { vote: parseExtension(value) === "extended" ? "granted" : "held" };
}

/** Returns the kind of loss that an answer reports. Undefined if the key is only missing. */
function lossIn(answer: Answer): "taken" | "forced" | undefined {
  if (answer.kind === "error") return undefined;
  const reply = parseExtension(answer.value);
  return reply === "taken" || reply === "forced" ? reply : undefined;
}
