/**
 * The heart of Redlock: one attempt to get a lock from a quorum of nodes.
 *
 * It guarantees the following:
 * - Every attempt has a token and a ballot of its own.
 * - `granted` means that a quorum of voting nodes set the keys. It also means that the validity is not over, counted
 *   from before the first byte by all clocks.
 * - The answer comes with the quorum-th grant.
 * - If the attempt is not granted, every node that may have set a key is told to release it, before the caller hears of
 *   it. Where a waiter is refused because somebody has the lock, the answers that are still to come decide. A node is
 *   told if it did not refuse. A waiter asks again only when it is told to, so its own key is in nobody's way.
 */

import type { RedlockEvents } from "../api/events.ts";
import { type Instant, readClock } from "../kit/clock.ts";
import type { Emitter } from "../kit/emitter.ts";
import type { Engine } from "../rounds/engine.ts";
import { type Answer, type Observer, Round } from "../rounds/round.ts";
import { acquireText, type Target } from "../rules/operation.ts";
import { emptyTally, type Refusal, refusalOf, type Vote, type VoteKind } from "../rules/quorum.ts";
import { type LeaseEnd, leaseEnd, remainingMs } from "../rules/validity.ts";
import { type Enrolment, leaveLines } from "../waiting/leave.ts";
import { releaseEverywhere } from "./release.ts";

export interface Grant {
  readonly target: Target;
  readonly token: string;
  readonly fencingToken: number;
  readonly ttlMs: number;
  readonly end: LeaseEnd;
  readonly granted: Instant;
  /** The nodes that may hold a key of ours, as bits. */
  readonly mayHoldOn: number;
  /** The nodes that are known to have had the key, as bits. */
  readonly hadKeyOn: number;
}

export type AttemptResult =
  | { readonly kind: "granted"; readonly grant: Grant }
  | {
      readonly kind: "refused";
      readonly refusal: Refusal;
      readonly votes: readonly Vote[];
      /** The milliseconds until each node could grant; Infinity if that is unknown. */
      readonly freeInMs: readonly number[];
    };

type OnResult = (result: AttemptResult) => void;

export type RefusedAttempt = AttemptResult & { readonly kind: "refused" };

/** Corrections of the ballot, and of a flushed script cache, are bounded by this, and are no attempts of the caller. */
export const MAX_CORRECTIONS = 5;

/** Tells whether nobody else has the lock. If it is asked for again at once, the nodes may grant it. */
export function isCorrectable({ refusal, votes }: RefusedAttempt): boolean {
  return refusal === "ballot" || votes.some(({ error }) => error?.startsWith("NOSCRIPT") === true);
}

export interface AttemptRequest {
  readonly target: Target;
  /** The time by all clocks before anything is sent. */
  readonly asked: Instant;
  readonly ttlMs: number;
  /** How long a node may take to answer. */
  readonly timeoutMs: number;
  /** The place in the line; waiters with a greater one are overtaken. It is undefined for a caller that comes now. */
  readonly place?: number | undefined;
  /** The name under which a refused attempt is enrolled in the line; without one it is not. */
  readonly enrolment?: Enrolment | undefined;
  /** A text that the nodes keep beside the lock from the grant on. */
  readonly note?: string | undefined;
  readonly observe?: Observer | undefined;
}

/** An answer that took longer says little of the clocks, because this process may have been frozen when it came. */
const TELLING_MS = 1_000;

interface Ballot {
  readonly vote: VoteKind;
  readonly ms: number;
  readonly answer: Answer;
}

export function attempt(engine: Engine, request: AttemptRequest): Promise<AttemptResult> {
  return new Promise((resolve) => startAttempt(engine, request, resolve));
}

/** Makes an attempt, which calls `onResult` in the step that decides it. */
export function startAttempt(engine: Engine, request: AttemptRequest, onResult: OnResult): void {
  new ReportedAttempt(engine, request, onResult).start();
}

/** An attempt is also the grant that it leads to, and one object with its round: attempts are made all the time. */
export abstract class Attempt extends Round implements Grant {
  readonly token: string;
  readonly ttlMs: number;
  fencingToken: number;
  end: LeaseEnd;
  granted: Instant;
  /** The nodes that granted it and may vote, as bits. */
  hadKeyOn = 0;
  protected readonly asked: Instant;
  readonly #enrolment: Enrolment | undefined;
  #grantedBy = 0;
  #answeredBy = 0;
  #refused = 0;
  /** The nodes that have answered with a refusal, as bits. */
  #keyless = 0;
  /** The nodes that had not answered when a waiter was refused, as bits. Their answers decide whether they release. */
  #undecided = 0;
  /** The ballots of all answers, but for the grant that decided. */
  #ballots: (Ballot | undefined)[] | undefined;
  #isGranted = false;
  #isAsked = false;

  constructor(engine: Engine, request: AttemptRequest) {
    const { target, ttlMs, enrolment, place, asked } = request;
    super(engine, target, Math.min(request.timeoutMs, ttlMs), request.observe);
    this.#enrolment = enrolment;
    this.ttlMs = ttlMs;
    this.asked = asked;
    this.end = asked;
    this.granted = asked;
    this.token = engine.newToken();
    this.fencingToken = engine.isAlone ? 0 : engine.fencingClock.ballot(target.resources, asked.wallMs);
    this.text = acquireText(target.keys.length, this.token, {
      ttlMs,
      ballot: this.fencingToken,
      place,
      member: enrolment?.member,
      note: request.note,
    });
  }

  get kind(): "granted" {
    return "granted";
  }

  override get isAcquisition(): boolean {
    return true;
  }

  get grant(): Grant {
    return this;
  }

  get mayHoldOn(): number {
    return this.sentTo & ~this.#keyless;
  }

  start(): void {
    this.ask(this.asked.monotonicMs);
    this.#isAsked = true;
  }

  protected abstract onResult(result: AttemptResult): void;

  protected override get isObserved(): boolean {
    return this.#enrolment !== undefined || this.observe !== undefined;
  }

  protected override observed(node: number, answer: Answer): void {
    super.observed(node, answer);
    if (this.#enrolment !== undefined) this.#follow(this.#enrolment, node, answer);
  }

  protected override onVote(node: number, answer: Answer): boolean {
    const { engine } = this;
    this.#answeredBy |= 1 << node;
    const vote = voteOf(answer);
    if (vote === "granted") {
      this.#grantedBy += 1;
      this.hadKeyOn |= 1 << node;
      if (engine.isAlone && answer.kind === "reply") this.fencingToken = Number(answer.value);
      if (this.#grantedBy === engine.quorum) {
        this.#decideWon(readClock(engine.clock));
        return true;
      }
    } else {
      this.#refused += 1;
      if (isKeyless(vote, answer)) this.#keyless |= 1 << node;
    }
    const ballots = (this.#ballots ??= []);
    ballots[node] = { vote, ms: engine.clock.monotonicMs() - this.asked.monotonicMs, answer };
    if (this.#refused <= engine.nodes.length - engine.quorum && !this.#isLostToSilence(ballots)) return false;
    this.#decideLost();
    return true;
  }

  /**
   * Tells whether the attempt is lost because the nodes that are left have been silent for longer than `nodeTimeout`.
   * Those count as failed. A hung node then makes one attempt wait, not each.
   *
   * This rule only makes attempts fail early; a node that answers is asked like any other.
   */
  #isLostToSilence(ballots: (Ballot | undefined)[]): boolean {
    const { nodes, quorum, batchers, options } = this.engine;
    for (const batcher of batchers) {
      if (ballots[batcher.index] === undefined && batcher.silentMs() < options.nodeTimeout) return false;
    }
    for (const batcher of batchers) {
      if (ballots[batcher.index] !== undefined) continue;
      const message = `has not answered for ${Math.round(batcher.silentMs())} ms`;
      ballots[batcher.index] = { vote: "failed", ms: 0, answer: { kind: "error", message, timedOut: true } };
      this.#refused += 1;
    }
    return this.#refused > nodes.length - quorum;
  }

  #decideLost(): void {
    // A node may refuse while the request is still being sent out: then only the round knows what else was sent.
    if (this.#isAsked) this.#onRefused(false);
    else queueMicrotask(() => this.#onRefused(false));
  }

  /** Follows where the attempt is enrolled. A holder also leaves the lines of nodes that refused it. */
  #follow(enrolment: Enrolment, node: number, answer: Answer): void {
    if ((this.#undecided & (1 << node)) !== 0) this.#releaseUnlessRefused(node, answer);
    const isEnrolled = answer.kind === "reply" ? isHeld(answer.value) : this.sent(node);
    if (isEnrolled) enrolment.on.add(node);
    else if (answer.kind === "reply" && isGrant(answer.value)) enrolment.on.delete(node);
    if (isEnrolled && this.#isGranted)
      leaveLines(this.engine, this.target, enrolment, { only: (each) => each === node });
  }

  #releaseUnlessRefused(node: number, answer: Answer): void {
    const vote = voteOf(answer);
    if (vote !== "granted" && isKeyless(vote, answer)) return;
    const { engine, target, token, ttlMs } = this;
    void releaseEverywhere(engine, { target, token, ttlMs, mayHoldOn: 1 << node });
  }

  #decideWon(now: Instant): void {
    const { engine, target, ttlMs } = this;
    const enrolment = this.#enrolment;
    this.end = leaseEnd(this.asked, ttlMs, engine.options.driftFactor);
    if (remainingMs(this.end, now) <= 0) {
      this.#onRefused(true);
      return;
    }
    this.granted = now;
    this.#isGranted = true;
    if (enrolment !== undefined && enrolment.on.size > 0) {
      leaveLines(engine, target, enrolment, { only: (node) => enrolment.on.has(node) });
    }
    this.onResult(this);
  }

  #onRefused(isTooLate: boolean): void {
    const { engine, target, token, ttlMs, mayHoldOn } = this;
    const { resources } = target;
    const ballots = this.#ballots ?? [];
    const tally = emptyTally();
    for (const ballot of ballots) if (ballot !== undefined) tally[ballot.vote] += 1;
    const refusal = isTooLate ? "unreachable" : refusalOf(tally, engine.nodes.length);
    if (this.#enrolment !== undefined && refusal === "held") this.#undecided = mayHoldOn & ~this.#answeredBy;
    void releaseEverywhere(engine, { target, token, ttlMs, mayHoldOn: mayHoldOn & ~this.#undecided });
    noteRefusals(engine, resources, ballots, this.asked.wallMs);
    this.onResult({
      kind: "refused",
      refusal,
      votes: votesOf(engine, resources, ballots),
      freeInMs: engine.nodes.map((_, node) => freeInMs(ballots[node])),
    });
  }
}

class ReportedAttempt extends Attempt {
  protected override readonly onResult: OnResult;

  constructor(engine: Engine, request: AttemptRequest, onResult: OnResult) {
    super(engine, request);
    this.onResult = onResult;
  }
}

/** Tells the listeners of a grant that one attempt was enough for. */
export function tellAcquired(
  events: Emitter<RedlockEvents>,
  { target: { resources }, fencingToken }: Grant,
  waitMs: number,
): void {
  if (!events.isHeard("acquire")) return;
  events.emit("acquire", { resources, attempts: 1, waitMs, outcome: "acquired", fencingToken });
}

/** Tells whether the node replied that it set no key. In quarantine it sets what it would have granted. */
function isKeyless(vote: VoteKind, answer: Answer): boolean {
  return answer.kind === "reply" && (vote !== "quarantined" || Array.isArray(answer.value));
}

function voteOf(answer: Answer): VoteKind {
  if (answer.kind === "error") return "failed";
  const { value, quarantineLeftMs } = answer;
  if (isGrant(value)) return quarantineLeftMs > 0 ? "quarantined" : "granted";
  if (Array.isArray(value)) {
    if (isHeld(value)) return quarantineLeftMs > 0 ? "quarantined" : "held";
    if (value[0] === 2) return "stale";
    if (value[0] === 3) return "ahead";
  }
  return "failed";
}

/** Tells whether a node granted: it answers 1, or the number that a single node gave the grant. */
export function isGrant(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) > 0;
}

function isHeld(value: unknown): value is readonly unknown[] {
  return Array.isArray(value) && value[0] === 0;
}

/** Learns from refusals what makes the next ballot better. */
function noteRefusals(
  engine: Engine,
  resources: readonly string[],
  ballots: readonly (Ballot | undefined)[],
  askedWallMs: number,
): void {
  const nodeTimesUs: number[] = [];
  const storedTokens: number[] = [];
  for (const ballot of ballots) {
    if (ballot?.answer.kind !== "reply") continue;
    const { value, nodeTimeUs } = ballot.answer;
    if (ballot.ms < TELLING_MS || ballot.vote === "ahead") nodeTimesUs.push(nodeTimeUs);
    if (Array.isArray(value) && value[0] === 2) storedTokens.push(Number(value[1]));
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
    const { vote, answer } = ballot;
    const facts = { node: node.name, vote, tookMs: Math.round(ballot.ms) };
    if (answer.kind === "error") return [{ ...facts, error: answer.message }];
    const { value, quarantineLeftMs } = answer;
    if (vote === "quarantined") {
      engine.events.tell("node", () => ({ node: node.name, state: "quarantined", quarantineLeftMs }));
      return [{ ...facts, quarantineLeftMs }];
    }
    if (vote !== "held" || !Array.isArray(value)) return [facts];
    const held = { ...facts, resource: resources[Number(value[1])] ?? "", holderTtlMs: Number(value[2]) };
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
