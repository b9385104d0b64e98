/**
 * The heart of Redlock: one attempt to get a lock from a quorum of nodes.
 *
 * Guaranteed: every attempt has a token and a ballot of its own. `granted` means that a quorum of voting nodes set the keys
 * and that the validity, counted from before the first byte by both clocks, is not over. The answer comes with the
 * quorum-th grant. Whatever else happens, the keys that the attempt may have set are released on every node that may have
 * set one, before the caller hears of it.
 */
import { readClock } from "./clock.ts";
import type { Engine } from "./engine.ts";
import type { Vote } from "./errors.ts";
import { acquisitionOutcome, emptyTally, type Refusal, refusalOf, type VoteKind, type VoteTally } from "./quorum.ts";
import { releaseEverywhere } from "./release.ts";
import { type Answer, type Observer, startRound } from "./round.ts";
import { type LeaseEnd, leaseEnd, remainingMs } from "./validity.ts";

export interface Grant {
  readonly resources: readonly string[];
  readonly keys: readonly string[];
  readonly slot: number;
  readonly token: string;
  readonly fencingToken: number;
  readonly ttlMs: number;
  readonly end: LeaseEnd;
  readonly grantedMs: number;
  /** Per node: whether it may hold a key of ours. */
  readonly mayHold: (node: number) => boolean;
}

export type AttemptResult =
  | { readonly kind: "granted"; readonly grant: Grant }
  | {
      readonly kind: "refused";
      readonly refusal: Refusal;
      readonly votes: readonly Vote[];
      /** Per node: milliseconds until it could grant; Infinity: unknown. */
      readonly freeInMs: readonly number[];
    };

export interface AttemptRequest {
  readonly resources: readonly string[];
  readonly keys: readonly string[];
  readonly slot: number;
  readonly ttlMs: number;
  /** How long a node may take to answer. */
  readonly timeoutMs: number;
  /** The place in the queue; waiters with a greater one are overtaken. */
  readonly order: number;
  /** Name under which a refused attempt is enrolled in the queue; undefined: it is not. */
  readonly member?: string | undefined;
  readonly observe?: Observer | undefined;
}

interface Ballot {
  readonly vote: VoteKind;
  readonly ms: number;
  readonly answer: Answer;
}

export function attempt(engine: Engine, request: AttemptRequest): Promise<AttemptResult> {
  const { clock, options, sightings } = engine;
  const nodeCount = engine.nodes.length;
  const asked = readClock(clock);
  const token = engine.random.token();
  const ballot = sightings.ballot(request.resources, asked.wallMs);
  const end = leaseEnd(asked, request.ttlMs, options.driftFactor);
  const tally = emptyTally();
  const ballots: (Ballot | undefined)[] = [];

  return new Promise((resolve) => {
    const onAnswer = (node: number, answer: Answer): boolean => {
      const now = readClock(clock);
      const vote = voteOf(answer);
      ballots[node] = { vote, ms: now.monotonicMs - asked.monotonicMs, answer };
      tally[vote] += 1;
      if (acquisitionOutcome(tally, nodeCount) === "open") giveUpOnSilent(engine, ballots, tally);
      const outcome = acquisitionOutcome(tally, nodeCount);
      if (outcome === "open") return false;
      // The round object exists by then, except when a node refuses while the request is still being sent out.
      queueMicrotask(() => {
        if (outcome === "won" && remainingMs(end, readClock(clock)) > 0)
          resolve({ kind: "granted", grant: grant(now.monotonicMs) });
        else resolve(refuse(outcome === "won"));
      });
      return true;
    };

    const mayHold = (node: number): boolean => round.sent(node) && !provesNoKey(ballots[node]);
    const grant = (grantedMs: number): Grant => {
      sightings.see(request.resources, ballot);
      return { ...request, token, fencingToken: ballot, end, grantedMs, mayHold };
    };
    const refuse = (tooLate: boolean): AttemptResult => {
      void releaseEverywhere(engine, { ...request, token, mayHold });
      noteRefusals(engine, request.resources, ballots, clock.wallMs());
      return {
        kind: "refused",
        refusal: tooLate ? "unreachable" : refusalOf(tally, nodeCount),
        votes: votesOf(engine, request.resources, ballots),
        freeInMs: engine.nodes.map((_, node) => freeInMs(ballots[node])),
      };
    };

    const round = startRound(
      engine,
      {
        keys: request.keys,
        slot: request.slot,
        args: [
          "A",
          String(request.resources.length),
          token,
          String(request.ttlMs),
          String(ballot),
          request.member ?? "",
          String(request.order),
        ],
      },
      { timeoutMs: Math.min(request.timeoutMs, request.ttlMs), onAnswer, observe: request.observe },
    );
  });
}

function voteOf(answer: Answer): VoteKind {
  if (answer.kind === "error") return "failed";
  const { value, quarantineLeftMs } = answer.reply;
  if (value === 1) return quarantineLeftMs > 0 ? "quarantined" : "granted";
  if (Array.isArray(value)) {
    if (value[0] === 0) return quarantineLeftMs > 0 ? "quarantined" : "held";
    if (value[0] === 2) return "stale";
    if (value[0] === 3) return "ahead";
  }
  return "failed";
}

/** A node that answered this very request with a refusal has set no key for its token, and never will. */
function provesNoKey(ballot: Ballot | undefined): boolean {
  return ballot?.answer.kind === "reply" && ballot.answer.reply.value !== 1;
}

/**
 * When only nodes are left that owe answers to older requests for longer than `nodeTimeout`, they count as failed: a hung
 * node makes one attempt wait, not each. Only ever for failing early; a node that answers is asked like any other.
 */
function giveUpOnSilent(engine: Engine, ballots: (Ballot | undefined)[], tally: VoteTally): void {
  const { nodeTimeout } = engine.options;
  const silent: (readonly [node: number, ms: number])[] = [];
  for (const [node, batcher] of engine.batchers.entries()) {
    if (ballots[node] !== undefined) continue;
    const ms = batcher.silentMs();
    if (ms < nodeTimeout) return;
    silent.push([node, ms]);
  }
  for (const [node, ms] of silent) {
    const message = `has not answered for ${Math.round(ms)} ms`;
    ballots[node] = { vote: "failed", ms: 0, answer: { kind: "error", message, timedOut: true } };
    tally.failed += 1;
  }
}

/** Learns from refusals what makes the next ballot better: the stored tokens, and the nodes' clocks if a quorum answered. */
function noteRefusals(
  engine: Engine,
  resources: readonly string[],
  ballots: readonly (Ballot | undefined)[],
  wallMs: number,
): void {
  const nodeTimesUs: number[] = [];
  for (const ballot of ballots) {
    if (ballot?.answer.kind !== "reply") continue;
    const { value, nodeTimeUs } = ballot.answer.reply;
    nodeTimesUs.push(nodeTimeUs);
    if (Array.isArray(value) && value[0] === 2) engine.sightings.see(resources, Number(value[1]));
  }
  // As many refusals as end an attempt: of an even number of nodes that is less than a quorum.
  if (nodeTimesUs.length > engine.nodes.length - engine.quorum) engine.sightings.seeNodeTimes(nodeTimesUs, wallMs);
}

function votesOf(
  engine: Engine,
  resources: readonly string[],
  ballots: readonly (Ballot | undefined)[],
): readonly Vote[] {
  return engine.nodes.flatMap((node, index) => {
    const ballot = ballots[index];
    if (ballot === undefined) return [];
    const { vote, answer } = ballot;
    const facts = { node: node.name, vote, ms: Math.round(ballot.ms) };
    if (answer.kind === "error") return [{ ...facts, error: answer.message }];
    const { value, quarantineLeftMs } = answer.reply;
    if (vote === "quarantined") {
      engine.events.tell("node", () => ({ node: node.name, state: "quarantined", quarantineLeftMs }));
      return [{ ...facts, quarantineLeft: quarantineLeftMs }];
    }
    if (vote !== "held" || !Array.isArray(value)) return [facts];
    return [{ ...facts, resource: resources[Number(value[1])] ?? "", holderPttl: Number(value[2]) }];
  });
}

function freeInMs(ballot: Ballot | undefined): number {
  if (ballot === undefined || ballot.answer.kind === "error") return Number.POSITIVE_INFINITY;
  const { value, quarantineLeftMs } = ballot.answer.reply;
  if (Array.isArray(value) && value[0] === 0) {
    const pttl = Number(value[2]);
    return pttl < 0 ? Number.POSITIVE_INFINITY : Math.max(pttl, quarantineLeftMs);
  }
  return quarantineLeftMs;
}
