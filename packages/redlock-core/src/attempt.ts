/**
 * The heart of Redlock: one attempt to get a lock from a quorum of nodes.
 *
 * Guaranteed: every attempt has a token and a ballot of its own. `granted` means that a quorum of voting nodes set the keys
 * and that the validity, counted from before the first byte by both clocks, is not over. The answer comes with the
 * quorum-th grant. Whatever else happens, the keys that the attempt may have set are released on every node that may have
 * set one, before the caller hears of it.
 */
import { type Instant, readClock } from "./clock.ts";
import type { Engine } from "./engine.ts";
import type { Vote } from "./errors.ts";
import { type Enrolment, leaveQueues } from "./leave.ts";
import { acquireOperation, type Target } from "./operation.ts";
import {
  acquisitionOutcome,
  emptyTally,
  type Outcome,
  type Refusal,
  refusalOf,
  type VoteKind,
  type VoteTally,
} from "./quorum.ts";
import { releaseEverywhere } from "./release.ts";
import { type Answer, type Observer, type Round, type RoundHandlers, startRound } from "./round.ts";
import { type LeaseEnd, leaseEnd, remainingMs } from "./validity.ts";

export interface Grant {
  readonly target: Target;
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

export type RefusedAttempt = AttemptResult & { readonly kind: "refused" };

/** Corrections of the ballot, and of a script cache that was flushed, are no attempts of the caller's; this bounds them. */
export const MAX_CORRECTIONS = 5;

/** Nobody else has the lock: asked again at once, the nodes may grant it. */
export function isCorrectable({ refusal, votes }: RefusedAttempt): boolean {
  return refusal === "ballot" || votes.some(({ error }) => error?.startsWith("NOSCRIPT") === true);
}

export interface AttemptRequest {
  readonly target: Target;
  /** Both clocks, before anything is sent. */
  readonly asked: Instant;
  readonly ttlMs: number;
  /** How long a node may take to answer. */
  readonly timeoutMs: number;
  /** The place in the queue; waiters with a greater one are overtaken. */
  readonly order: number;
  /** As whom a refused attempt is enrolled in the queue; undefined: it is not. */
  readonly enrolment?: Enrolment | undefined;
  readonly observe?: Observer | undefined;
}

/** An answer that took longer says little of the clocks: this process may have been frozen when it came. */
const TELLING_MS = 1_000;

interface Ballot {
  readonly vote: VoteKind;
  readonly ms: number;
  readonly answer: Answer;
}

export function attempt(engine: Engine, request: AttemptRequest): Promise<AttemptResult> {
  return new Promise((resolve) => {
    new Attempt(engine, request, resolve).start();
  });
}

class Attempt implements RoundHandlers {
  readonly timeoutMs: number;
  readonly observe: Observer | undefined;
  readonly #engine: Engine;
  readonly #request: AttemptRequest;
  readonly #resolve: (result: AttemptResult) => void;
  readonly #asked: Instant;
  readonly #token: string;
  readonly #ballot: number;
  readonly #tally: VoteTally = emptyTally();
  readonly #ballots: (Ballot | undefined)[] = [];
  #isGranted = false;
  #round: Round | undefined;

  constructor(engine: Engine, request: AttemptRequest, resolve: (result: AttemptResult) => void) {
    this.timeoutMs = Math.min(request.timeoutMs, request.ttlMs);
    this.observe = request.enrolment === undefined ? request.observe : (node, answer) => this.#observe(node, answer);
    this.#engine = engine;
    this.#request = request;
    this.#resolve = resolve;
    this.#asked = request.asked;
    this.#token = engine.random.token();
    this.#ballot = engine.sightings.ballot(request.target.resources, this.#asked.wallMs);
  }

  start(): void {
    const { target, ttlMs, enrolment, order } = this.#request;
    const member = enrolment?.member;
    const operation = acquireOperation(target, { token: this.#token, ballot: this.#ballot, ttlMs, order, member });
    this.#round = startRound(this.#engine, operation, this);
  }

  onAnswer(node: number, answer: Answer): boolean {
    const { clock, nodes } = this.#engine;
    const now = readClock(clock);
    const vote = voteOf(answer);
    this.#ballots[node] = { vote, ms: now.monotonicMs - this.#asked.monotonicMs, answer };
    this.#tally[vote] += 1;
    let outcome = acquisitionOutcome(this.#tally, nodes.length);
    if (outcome === "open") {
      giveUpOnSilent(this.#engine, this.#ballots, this.#tally);
      outcome = acquisitionOutcome(this.#tally, nodes.length);
    }
    if (outcome === "open") return false;
    // A node may refuse while the request is still being sent out: then only the round knows what else was sent.
    if (this.#round === undefined) queueMicrotask(() => this.#decide(outcome, now));
    else this.#decide(outcome, now);
    return true;
  }

  /** Whoever was granted the lock waits no more, also where it was refused. */
  #observe(node: number, answer: Answer): void {
    this.#request.observe?.(node, answer);
    const { enrolment } = this.#request;
    const isEnrolled = answer.kind === "reply" ? isHeld(answer.value) : this.#wasSent(node);
    if (isEnrolled) enrolment?.on.add(node);
    else if (answer.kind === "reply" && answer.value === 1) enrolment?.on.delete(node);
    if (isEnrolled && this.#isGranted) this.#leave((each) => each === node);
  }

  #leave(only: (node: number) => boolean): void {
    const { target, enrolment } = this.#request;
    if (enrolment !== undefined) leaveQueues(this.#engine, target, enrolment, { only });
  }

  mayHold(node: number): boolean {
    return this.#wasSent(node) && !provesNoKey(this.#ballots[node]);
  }

  #wasSent(node: number): boolean {
    return this.#round?.sent(node) === true;
  }

  #decide(outcome: Outcome, now: Instant): void {
    const end = leaseEnd(this.#asked, this.#request.ttlMs, this.#engine.options.driftFactor);
    if (outcome === "won" && remainingMs(end, now) > 0) this.#resolve(this.#granted(end, now.monotonicMs));
    else this.#resolve(this.#refused(outcome === "won"));
  }

  #granted(end: LeaseEnd, grantedMs: number): AttemptResult {
    const { target, ttlMs, enrolment } = this.#request;
    this.#isGranted = true;
    if (enrolment !== undefined && enrolment.on.size > 0) this.#leave((node) => enrolment.on.has(node));
    const ballot = this.#ballot;
    const mayHold = (node: number): boolean => this.mayHold(node);
    const token = this.#token;
    return {
      kind: "granted",
      grant: { target, token, ttlMs, mayHold, fencingToken: ballot, end, grantedMs },
    };
  }

  #refused(isTooLate: boolean): AttemptResult {
    const engine = this.#engine;
    const { target, ttlMs } = this.#request;
    const { resources } = target;
    const mayHold = (node: number): boolean => this.mayHold(node);
    void releaseEverywhere(engine, { target, ttlMs, token: this.#token, mayHold });
    noteRefusals(engine, resources, this.#ballots, engine.clock.wallMs());
    return {
      kind: "refused",
      refusal: isTooLate ? "unreachable" : refusalOf(this.#tally, engine.nodes.length),
      votes: votesOf(engine, resources, this.#ballots),
      freeInMs: engine.nodes.map((_, node) => freeInMs(this.#ballots[node])),
    };
  }
}

function voteOf(answer: Answer): VoteKind {
  if (answer.kind === "error") return "failed";
  const { value, quarantineLeftMs } = answer;
  if (value === 1) return quarantineLeftMs > 0 ? "quarantined" : "granted";
  if (Array.isArray(value)) {
    if (isHeld(value)) return quarantineLeftMs > 0 ? "quarantined" : "held";
    if (value[0] === 2) return "stale";
    if (value[0] === 3) return "ahead";
  }
  return "failed";
}

function isHeld(value: unknown): value is readonly unknown[] {
  return Array.isArray(value) && value[0] === 0;
}

/** A node that answered this very request with a refusal has set no key for its token, and never will. */
function provesNoKey(ballot: Ballot | undefined): boolean {
  return ballot?.answer.kind === "reply" && ballot.answer.value !== 1;
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
    const { value, nodeTimeUs } = ballot.answer;
    if (ballot.ms < TELLING_MS || ballot.vote === "ahead") nodeTimesUs.push(nodeTimeUs);
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
    const { value, quarantineLeftMs } = answer;
    if (vote === "quarantined") {
      engine.events.tell("node", () => ({ node: node.name, state: "quarantined", quarantineLeftMs }));
      return [{ ...facts, quarantineLeft: quarantineLeftMs }];
    }
    if (vote !== "held" || !Array.isArray(value)) return [facts];
    const held = { ...facts, resource: resources[Number(value[1])] ?? "", holderPttl: Number(value[2]) };
    return [value[4] === undefined ? held : { ...held, error: String(value[4]) }];
  });
}

function freeInMs(ballot: Ballot | undefined): number {
  if (ballot === undefined || ballot.answer.kind === "error") return Number.POSITIVE_INFINITY;
  const { value, quarantineLeftMs } = ballot.answer;
  if (isHeld(value)) {
    const askAgainMs = Number(value[3]);
    return askAgainMs < 0 ? Number.POSITIVE_INFINITY : Math.max(askAgainMs, quarantineLeftMs);
  }
  return quarantineLeftMs;
}
