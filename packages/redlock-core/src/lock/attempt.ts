/**
 * The heart of Redlock: one attempt to acquire a lock on a quorum of nodes.
 *
 * Guarantees:
 * - Each attempt has its own token and ballot.
 * - `granted` means that a quorum of voting nodes has set the keys, and that the client has read these answers within
 *   the attempt's timeout, by every clock. The timeout is at most the validity, which starts before the first byte is
 *   sent.
 * - The result is known with the quorum-th grant.
 * - If the attempt is refused, every node that may have set a key is asked to release it before the caller learns of
 *   the refusal. If a waiter is refused because the lock is held, the missing answers decide: a node that does not
 *   refuse releases the key. A waiter asks again only in its turn, so its own key blocks no other client.
 */

import { type Instant, readClock } from "../kit/clock.ts";
import { type Answer, type AnswerObserver, Round, type RoundOwner } from "../rounds/round.ts";
import { acquireText, acquisitionKind, type OperationKind, type Target } from "../rules/operation.ts";
import {
  countOf,
  emptyTally,
  type Outcome,
  outcome,
  type Refusal,
  refusalOf,
  type Vote,
  type VoteKind,
} from "../rules/quorum.ts";
import { elapsedMs, type LeaseEnd, leaseEnd, validityMs } from "../rules/validity.ts";
import { type NodeRefusal, nodeRefusalOf } from "../scripts/acquire.lua.ts";
import { type Enrolment, leaveLines } from "../waiting/leave.ts";
import type { Engine } from "./engine.ts";
import { releaseEverywhere } from "./release.ts";
import type { AttemptOwner } from "./until-granted.ts";

/** A grant by a quorum. */
export interface Grant {
  readonly target: Target;
  readonly token: string;
  readonly fencingToken: number;
  readonly ttlMs: number;
  readonly end: LeaseEnd;
  readonly granted: Instant;
  /** Nodes that may hold a key with the token, as bits. */
  readonly mayHoldOn: number;
  /** Nodes that are known to have had the key, as bits. */
  readonly hadKeyOn: number;
}

export interface RefusedAttempt {
  readonly kind: "refused";
  readonly refusal: Refusal;
  readonly votes: readonly Vote[];
  /** Client ID of the holder, from the first vote `held`. Undefined if the holder has no name. */
  readonly client?: string | undefined;
  /** Milliseconds until each node can grant. Infinity if unknown. */
  readonly freeInMs: readonly number[];
}

/**
 * Reports whether the refusal is not due to another client, so that the nodes may grant another attempt immediately.
 */
export function isCorrectable({ refusal, votes }: RefusedAttempt): boolean {
  return refusal === "ballot" || votes.some(({ error }) => error?.startsWith("NOSCRIPT") === true);
}

export interface AttemptRequest {
  readonly target: Target;
  /** All clocks, read before anything is sent. */
  readonly asked: Instant;
  readonly ttlMs: number;
  /** Possible drift between clocks, as a share of `ttlMs`. */
  readonly driftFactor: number;
  /** Milliseconds in which a node must answer. */
  readonly timeoutMs: number;
  /**
   * Place in the line; waiters with a greater place come later. Undefined for a caller that goes behind all waiters.
   */
  readonly place?: number | undefined;
  /** Name under which a refused attempt joins the line. Undefined if it does not join. */
  readonly enrolment?: Enrolment | undefined;
  /** Text that the nodes store next to the lock when they grant it. */
  readonly note?: string | undefined;
  readonly observe?: AnswerObserver | undefined;
  readonly owner: AttemptOwner<Grant, RefusedAttempt>;
}

/** The clocks of nodes are not compared in slower answers, because this process may have been frozen in between. */
const MAX_CLOCK_ANSWER_MS = 1_000;

interface Ballot {
  readonly vote: VoteKind;
  readonly ms: number;
  readonly answer: Answer;
  /** Undefined for an error, and for a grant that does not count. */
  readonly refusal?: NodeRefusal | undefined;
}

export function startAttempt(engine: Engine, request: AttemptRequest): void {
  new Attempt(engine, request).start();
}

class Attempt implements RoundOwner {
  readonly text: string;
  /** Milliseconds within which answers count. */
  readonly timeoutMs: number;
  readonly observe: AnswerObserver | undefined;
  readonly #engine: Engine;
  readonly #request: AttemptRequest;
  readonly #token: string;
  /** 0 if a single node numbers its grants. */
  readonly #ballot: number;
  readonly #round: Round;
  /** Nodes that granted and may vote, and that have answered without setting a key, as bits. */
  #grantedBy = 0;
  #keylessOn = 0;
  #refusedCount = 0;
  #ballots: (Ballot | undefined)[] | undefined;
  /**
   * Nodes that had not answered when a waiter was refused, as bits. The later answer of each node decides whether the
   * node is asked to release.
   */
  #undecidedOn = 0;
  #isAsked = false;
  #isGranted = false;

  constructor(engine: Engine, request: AttemptRequest) {
    const { target, asked, ttlMs, driftFactor, timeoutMs, place, enrolment, note } = request;
    this.#engine = engine;
    this.#request = request;
    this.#token = engine.newToken();
    this.#ballot = engine.isAlone ? 0 : engine.fencingClock.ballot(target.resources, asked.wallMs);
    this.text = acquireText(target.keys.length, this.#token, {
      ttlMs,
      ballot: this.#ballot,
      place,
      member: enrolment?.member,
      note,
    });
    this.timeoutMs = Math.min(timeoutMs, validityMs(ttlMs, driftFactor));
    this.observe =
      enrolment === undefined ? request.observe : (node, answer) => this.#recordEnrolment(enrolment, node, answer);
    this.#round = new Round(engine, this);
  }

  get kind(): OperationKind {
    return acquisitionKind(this.#request.note);
  }

  get target(): Target {
    return this.#request.target;
  }

  start(): void {
    this.#round.ask(this.#request.asked.monotonicMs);
    this.#isAsked = true;
  }

  onAnswer(node: number, answer: Answer): boolean {
    const refusal = refusalIn(answer);
    const vote = voteOf(answer, refusal);
    if (vote === "granted") this.#grantedBy |= 1 << node;
    else {
      this.#refusedCount += 1;
      if (isKeyless(vote, answer)) this.#keylessOn |= 1 << node;
    }
    if (this.#outcome === "won") {
      this.#decideWon(node, answer);
      return true;
    }
    const ballots = this.#ballotsByNode();
    ballots[node] = { vote, ms: this.#engine.clock.monotonicMs() - this.#request.asked.monotonicMs, answer, refusal };
    if (this.#outcome === "open" && !this.#isLostToSilence(ballots)) return false;
    this.#decideLost();
    return true;
  }

  /**
   * Compares the time with the timeout once more, because the round's timer is late if this process was blocked or the
   * machine was suspended.
   *
   * The order of tokens depends on this check. A node that lost its data votes again after its quarantine. Its vote for
   * an old ballot may then be younger than a grant that the node has forgotten.
   */
  #decideWon(node: number, last: Answer): void {
    const engine = this.#engine;
    const { target, asked, ttlMs, driftFactor, enrolment } = this.#request;
    const now = readClock(engine.clock);
    const tookMs = elapsedMs(asked, now);
    if (tookMs >= this.timeoutMs) {
      const message = `answer was read ${Math.round(tookMs)} ms after the request, allowed are ${Math.round(this.timeoutMs)} ms`;
      this.#ballotsByNode()[node] = { vote: "failed", ms: tookMs, answer: { kind: "error", message, timedOut: true } };
      this.#refuse("too late");
      return;
    }
    this.#isGranted = true;
    if (enrolment !== undefined && enrolment.enrolledOn !== 0) {
      leaveLines(engine, target, enrolment, { nodes: enrolment.enrolledOn });
    }
    const fencingToken = engine.isAlone && last.kind === "reply" ? Number(last.value) : this.#ballot;
    this.#request.owner.onResult({
      kind: "granted",
      grant: {
        target,
        token: this.#token,
        fencingToken,
        ttlMs,
        end: leaseEnd(asked, ttlMs, driftFactor),
        granted: now,
        mayHoldOn: this.#mayHoldOn,
        hadKeyOn: this.#grantedBy,
      },
    });
  }

  /**
   * Reports whether the attempt is lost because all nodes without an answer have been silent for longer than
   * `nodeTimeout`. Such nodes count as failed, so that a node that hangs delays one attempt, not all attempts.
   *
   * This rule only makes attempts fail earlier: a silent node still receives the request.
   */
  #isLostToSilence(ballots: (Ballot | undefined)[]): boolean {
    const { batchers, options } = this.#engine;
    for (const batcher of batchers) {
      if (ballots[batcher.index] === undefined && batcher.silentMs() < options.nodeTimeout) return false;
    }
    for (const batcher of batchers) {
      if (ballots[batcher.index] !== undefined) continue;
      const message = `has not answered for ${Math.round(batcher.silentMs())} ms`;
      ballots[batcher.index] = { vote: "failed", ms: 0, answer: { kind: "error", message, timedOut: true } };
      this.#refusedCount += 1;
    }
    return this.#outcome === "lost";
  }

  #decideLost(): void {
    // A node may refuse while the request is still being sent. Not until afterwards is it known to which nodes it was
    // sent.
    if (this.#isAsked) this.#refuse("votes");
    else queueMicrotask(() => this.#refuse("votes"));
  }

  /** Releases the keys that nodes may have set, and reports why the attempt was refused. */
  #refuse(reason: "votes" | "too late"): void {
    const engine = this.#engine;
    const { target, asked, ttlMs, enrolment } = this.#request;
    const ballots = this.#ballotsByNode();
    const tally = emptyTally();
    for (const ballot of ballots) if (ballot !== undefined) tally[ballot.vote] += 1;
    const refusal = reason === "too late" ? "unreachable" : refusalOf(tally, engine.nodes.length);
    const mayHoldOn = this.#mayHoldOn;
    if (enrolment !== undefined && refusal === "held") this.#undecidedOn = mayHoldOn & ~this.#round.answeredBy;
    void releaseEverywhere(engine, {
      target,
      token: this.#token,
      ttlMs,
      mayHoldOn: mayHoldOn & ~this.#undecidedOn,
    });
    learnFromRefusals(engine, target.resources, ballots, asked.wallMs);
    this.#request.owner.onResult({
      kind: "refused",
      refusal,
      votes: votesOf(engine, target.resources, ballots),
      client: clientOf(ballots.find((ballot) => ballot?.vote === "held")?.refusal),
      freeInMs: engine.nodes.map((_, node) => freeInMs(ballots[node])),
    });
  }

  get #outcome(): Outcome {
    return outcome({ yes: countOf(this.#grantedBy), no: this.#refusedCount }, this.#engine.nodes.length);
  }

  /** Returns the ballots of all answers, except the grant that decided. Undefined for a node that has not answered. */
  #ballotsByNode(): (Ballot | undefined)[] {
    this.#ballots ??= this.#engine.nodes.map(() => undefined);
    return this.#ballots;
  }

  /** Nodes that may hold a key with the token, as bits. */
  get #mayHoldOn(): number {
    return this.#round.sentTo & ~this.#keylessOn;
  }

  /** Records which nodes have enrolled the attempt. A holder also leaves the lines of nodes that refused it. */
  #recordEnrolment(enrolment: Enrolment, node: number, answer: Answer): void {
    this.#request.observe?.(node, answer);
    const bit = 1 << node;
    if ((this.#undecidedOn & bit) !== 0) this.#releaseUnlessRefused(bit, answer);
    const isEnrolled = answer.kind === "reply" ? refusalIn(answer)?.kind === "held" : this.#round.isSentTo(node);
    if (isEnrolled) enrolment.enrolledOn |= bit;
    else if (answer.kind === "reply" && isGrant(answer.value)) enrolment.enrolledOn &= ~bit;
    if (isEnrolled && this.#isGranted) leaveLines(this.#engine, this.#request.target, enrolment, { nodes: bit });
  }

  #releaseUnlessRefused(bit: number, answer: Answer): void {
    const vote = voteOf(answer, refusalIn(answer));
    if (vote !== "granted" && isKeyless(vote, answer)) return;
    const { target, ttlMs } = this.#request;
    void releaseEverywhere(this.#engine, { target, token: this.#token, ttlMs, mayHoldOn: bit });
  }
}

/**
 * Reports whether the node replied without setting a key. A node in quarantine sets the key that it would have granted.
 */
function isKeyless(vote: VoteKind, answer: Answer): boolean {
  return answer.kind === "reply" && (vote !== "quarantined" || Array.isArray(answer.value));
}

/** Returns the refusal in an answer. Undefined for an error, and for a grant. */
function refusalIn(answer: Answer): NodeRefusal | undefined {
  return answer.kind === "error" || isGrant(answer.value) ? undefined : nodeRefusalOf(answer.value);
}

function voteOf(answer: Answer, refusal: NodeRefusal | undefined): VoteKind {
  if (answer.kind === "error") return "failed";
  const isQuarantined = answer.quarantineLeftMs > 0;
  if (isGrant(answer.value)) return isQuarantined ? "quarantined" : "granted";
  if (refusal?.kind === "held" && isQuarantined) return "quarantined";
  return refusal?.kind ?? "failed";
}

/** Reports whether the value of a reply is a grant: 1, or the number of the grant by a single node. */
export function isGrant(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) > 0;
}

function clientOf(refusal: NodeRefusal | undefined): string | undefined {
  return refusal?.kind === "held" ? refusal.client : undefined;
}

/** Passes the facts in refusals to the engine, to improve the next ballot. */
function learnFromRefusals(
  engine: Engine,
  resources: readonly string[],
  ballots: readonly (Ballot | undefined)[],
  askedWallMs: number,
): void {
  const nodeTimesUs: number[] = [];
  const storedTokens: number[] = [];
  for (const ballot of ballots) {
    if (ballot?.answer.kind !== "reply") continue;
    const { answer, refusal } = ballot;
    if (ballot.ms < MAX_CLOCK_ANSWER_MS || ballot.vote === "ahead") nodeTimesUs.push(answer.nodeTimeUs);
    if (refusal?.kind === "stale") storedTokens.push(refusal.storedToken);
  }
  engine.learn(resources, { storedTokens, nodeTimesUs, askedWallMs });
}

function votesOf(
  engine: Engine,
  resources: readonly string[],
  ballots: readonly (Ballot | undefined)[],
): readonly Vote[] {
  return engine.nodes.flatMap((node, index) => {
    const ballot = ballots[index];
    if (ballot === undefined) return [];
    const { vote, answer, refusal } = ballot;
    const facts = { node: node.name, vote, tookMs: Math.round(ballot.ms) };
    if (answer.kind === "error") return [{ ...facts, error: answer.message }];
    const { quarantineLeftMs } = answer;
    if (vote === "quarantined") {
      engine.events.tell("nodeChanged", () => ({ node: node.name, state: "quarantined", quarantineLeftMs }));
      return [{ ...facts, quarantineLeftMs }];
    }
    if (refusal?.kind !== "held") return [facts];
    const { index: at, holderTtlMs, wrongType: error } = refusal;
    const held = { ...facts, resource: resources[at] ?? "", holderTtlMs };
    return [error === undefined ? held : { ...held, error }];
  });
}

function freeInMs(ballot: Ballot | undefined): number {
  if (ballot === undefined || ballot.answer.kind === "error") return Number.POSITIVE_INFINITY;
  const { quarantineLeftMs } = ballot.answer;
  return ballot.refusal?.kind === "held" ? Math.max(ballot.refusal.askAgainMs, quarantineLeftMs) : quarantineLeftMs;
}
