/**
 * An acquisition asks the nodes for permits until a quorum has granted them or its time is over, and waits for its turn
 * in between. However the acquisition ends, it leaves neither a permit nor a place in line behind.
 *
 * The loop is that of locks (`untilGranted` of the core). Behind other callers of this process the acquisition asks
 * nothing: line.ts says when.
 */
import { type Lock, LockHeldError, RedlockClosedError } from "@x/redlock-core";
import { backOffMs, type Instant, readClock, Traced } from "@x/redlock-core/kit";
import {
  type Acquirer,
  type Attempted,
  type AttemptOwner,
  type CallDeadline,
  type CallEnd,
  elapsedMs,
  type NodeReply,
  untilGranted,
  validityMs,
} from "@x/redlock-core/protocol";
import { AcquisitionReport } from "./acquisition-report.ts";
import { type Caller, type RefusedPermits, UNANSWERED } from "./line.ts";
import { ASK_AGAIN_MS, TURN_MS } from "./permits.lua.ts";
import type { PermitRequest, Pool } from "./pool.ts";
import {
  answerOf,
  askAgainMs,
  figuresOf,
  mayBeGranted,
  outcomeOf,
  type PermitAnswer,
  whyRefused,
} from "./rules/answer.ts";

/**
 * The calls that tools draw as spans, by the name of their tracing channel (`x.semaphore:acquire`). The events of the
 * `Redlock` report acquired, extended, lost and released permits.
 */
export interface SemaphoreTraces {
  /** An acquisition, including that of `using()`. The result is the lock. A refused `tryAcquire` is an error here. */
  acquire: { readonly resource: string; readonly permits: number };
}

const traces: { readonly [Call in keyof SemaphoreTraces]: Traced<SemaphoreTraces[Call]> } = {
  acquire: new Traced("x.semaphore:acquire"),
};

/** What a quorum has granted. */
interface PermitGrant {
  readonly fencingToken: number;
  readonly asked: Instant;
}

interface RefusedPermitAttempt extends RefusedPermits {
  readonly kind: "refused";
  readonly answers: readonly PermitAnswer[];
  readonly asked: Instant;
}

/** The place of a call in the nodes' lines. */
interface PermitPlace {
  /** The name in line. */
  readonly waiter: string;
  readonly ticket: string;
}

const MAX_RETRY_MS = 1_000;

/** Acquires permits of a pool. Rejects if the call's time is over before its turn. */
export async function acquirePermits(pool: Pool, request: PermitRequest): Promise<Lock> {
  const call = (): Promise<Lock> => pool.protocol.call(pool.name, request.signal, () => acquireUntraced(pool, request));
  if (!traces.acquire.isHeard) return await call();
  return await traces.acquire.run({ resource: pool.name, permits: request.permits }, call);
}

function acquireUntraced(pool: Pool, request: PermitRequest): Promise<Lock> {
  const { clock, closed } = pool.protocol;
  const { timeout: timeoutMs, signal } = request;
  const started = readClock(clock);
  return untilGranted({ clock, started, timeoutMs, signal, closed }, new PermitAcquirer(pool, request, started));
}

class PermitAcquirer implements Acquirer<PermitGrant, RefusedPermitAttempt, Lock> {
  readonly #pool: Pool;
  readonly #request: PermitRequest;
  readonly #started: Instant;
  readonly #report: AcquisitionReport;
  /** This call in the line of its process. Undefined for a call that does not wait. */
  readonly #caller: Caller | undefined;
  /** Each request that was not answered is followed by a new holder, so that a late grant is not mistaken for it. */
  #holder: string;
  /** Undefined before the first refusal, and once the permits are held. */
  #place: PermitPlace | undefined;
  /** The number of attempts in a row that no quorum answered. */
  #failures = 0;
  /** Whether a request is under way, which a node may grant. */
  #isAsking = false;
  /** The last refusal of this call. */
  #refused: RefusedPermits | undefined;
  #onTurn: () => void = () => undefined;
  /** The nodes that have called since the last attempt. */
  readonly #calledBy = new Set<string>();

  constructor(pool: Pool, request: PermitRequest, started: Instant) {
    this.#pool = pool;
    this.#request = request;
    this.#started = started;
    this.#report = new AcquisitionReport(pool, started);
    this.#holder = this.#newHolder();
    this.#caller = request.timeout > 0 ? pool.line.enter(request.permits) : undefined;
  }

  untilReady(deadline: CallDeadline): Promise<void> | undefined {
    if (this.#caller === undefined) this.#giveWay();
    else if (!this.#caller.mayAsk) return this.#untilFirst(this.#caller, deadline);
    return undefined;
  }

  /** A call that does not wait does not overtake callers of this process that do. */
  #giveWay(): void {
    const { waiting, noted } = this.#pool.line;
    if (this.#report.attempts === 0 && waiting > 0 && noted?.refusal === "held") throw this.#timedOut(noted);
  }

  /** Waits until nobody in this process is before this call. By then the call has its place in the nodes' lines. */
  async #untilFirst(caller: Caller, deadline: CallDeadline): Promise<void> {
    const { turns } = this.#pool;
    void turns.open().catch(() => undefined);
    if (this.#report.attempts === 0) this.#report.refused([]);
    await deadline.until(caller.untilFirst());
    if (caller.isFirst && turns.isOpen && this.#place === undefined) this.#place = this.#newPlace();
  }

  attempt(asked: Instant, _leftMs: number, owner: AttemptOwner<PermitGrant, RefusedPermitAttempt>): void {
    const pool = this.#pool;
    const { waiter, ticket } = this.#place ?? { waiter: "", ticket: "" };
    this.#calledBy.clear();
    this.#report.attempts += 1;
    this.#isAsking = true;
    const ballot = pool.ballot(asked);
    const call = pool.callOf("acquire", [this.#holder, String(this.#request.ttl), waiter, ticket, ballot]);
    const isDecided = (some: readonly NodeReply[]): boolean =>
      outcomeOf(this.#answersOf(some), pool.nodeCount) !== "open";
    const answered = (replies: readonly NodeReply[]): void => {
      this.#isAsking = false;
      owner.onResult(this.#read(this.#answersOf(replies), asked, Number(ballot)));
    };
    pool
      .ask(call, isDecided)
      .then(answered)
      .catch((error: unknown) => owner.onResult({ kind: "failed", error }));
  }

  #answersOf(replies: readonly NodeReply[]): readonly PermitAnswer[] {
    return replies.map((reply) => answerOf(reply, this.#pool.name));
  }

  #read(
    answers: readonly PermitAnswer[],
    asked: Instant,
    ballot: number,
  ): Attempted<PermitGrant, RefusedPermitAttempt> {
    const pool = this.#pool;
    if (outcomeOf(answers, pool.nodeCount) !== "won") return this.#refusedBy(answers, asked);
    // As for locks, an answer that is read after its timeout does not count: the timer runs late if this process was
    // blocked.
    const { driftFactor, nodeTimeout } = pool.redlock.options;
    const timeoutMs = Math.min(nodeTimeout, validityMs(this.#request.ttl, driftFactor));
    if (elapsedMs(asked, readClock(pool.protocol.clock)) >= timeoutMs) {
      return this.#refusedBy(answers.map(tooLate), asked);
    }
    const fencingToken = pool.isAlone ? Number(answers[0]?.fencingToken) : ballot;
    return { kind: "granted", grant: { fencingToken, asked } };
  }

  #refusedBy(answers: readonly PermitAnswer[], asked: Instant): RefusedPermitAttempt {
    const refusal = whyRefused(answers, this.#pool.nodeCount);
    const votes = answers.map(({ vote }) => vote);
    return { kind: "refused", refusal, votes, figures: figuresOf(answers), answers, asked };
  }

  hold({ fencingToken, asked }: PermitGrant): Lock | Promise<Lock> {
    const { pool, holder, place } = { pool: this.#pool, holder: this.#holder, place: this.#place };
    const { permits, ttl, autoExtend, maxHold } = this.#request;
    const lock = pool.protocol.hold(
      { resource: pool.name, token: tokenOf(holder), fencingToken, ttlMs: ttl, asked },
      { autoExtend, maxHold },
      {
        extend: (ttlMs) => pool.callOf("extend", [holder, String(ttlMs), "", "", String(fencingToken)]),
        release: () => pool.callOf("release", [holder]),
      },
    );
    pool.line.noteGrant(permits);
    if (!pool.isAlone) this.#takeBack("", place);
    else if (place !== undefined) pool.turns.leave(place.waiter);
    this.#place = undefined;
    if (pool.protocol.closed.aborted) {
      return lock.release().then(() => Promise.reject(new RedlockClosedError([pool.name])));
    }
    this.#report.acquired(fencingToken);
    return lock;
  }

  /** `leave` has taken the request back already. */
  drop(): void {}

  onRefused(refused: RefusedPermitAttempt): void {
    const pool = this.#pool;
    const { answers, asked } = refused;
    if (mayBeGranted(answers, pool.nodeCount)) {
      this.#takeBack(this.#holder, undefined);
      this.#holder = this.#newHolder();
    }
    pool.learn(answers, asked);
    this.#failures = refused.refusal === "unreachable" ? this.#failures + 1 : 0;
    this.#refused = refused;
    if (this.#caller !== undefined && refused.refusal !== "ballot") pool.line.noted = refused;
  }

  isCorrectable({ refusal }: RefusedPermitAttempt): boolean {
    return refusal === "ballot";
  }

  async untilNext(refused: RefusedPermitAttempt, deadline: CallDeadline): Promise<void> {
    this.#caller?.wait();
    this.#report.refused(refused.votes);
    if (this.#caller?.isFirst === false) return;
    if (this.#place === undefined && refused.refusal === "held") await this.#standInLine(deadline);
    else await this.#pause(this.#askAgainMs(refused), deadline);
  }

  /** A waiter that cannot be called yet is not in line: the nodes would pass it over. */
  async #standInLine(deadline: CallDeadline): Promise<void> {
    const { turns } = this.#pool;
    await deadline.until(turns.open());
    if (turns.isOpen) this.#place = this.#newPlace();
  }

  /** The place of a call is the time at which it began, by the nodes' clock. So all nodes have the same order. */
  #newPlace(): PermitPlace {
    const { turns, protocol } = this.#pool;
    const waiter = turns.nextWaiter(this.#request.permits);
    turns.listen(waiter, (node) => {
      this.#calledBy.add(node);
      if (this.#hasTurn) this.#onTurn();
    });
    return { waiter, ticket: String(protocol.placeAt(this.#started.wallMs)) };
  }

  /** Returns after how long the nodes are asked again if they do not call. */
  #askAgainMs({ refusal, answers }: RefusedPermitAttempt): number {
    const pool = this.#pool;
    const { retryDelay: delayMs } = pool.redlock.options;
    const unknownMs =
      refusal === "unreachable"
        ? backOffMs({ failures: this.#failures, delayMs, maxDelayMs: MAX_RETRY_MS })
        : ASK_AGAIN_MS;
    return Math.max(askAgainMs(answers, pool.nodeCount, unknownMs), refusal === "ballot" ? delayMs : 0);
  }

  /** Waits until the nodes call, for at most `ms`. */
  async #pause(ms: number, deadline: CallDeadline): Promise<void> {
    const { clock } = this.#pool.protocol;
    await deadline.untilCalled((wake) => {
      this.#onTurn = wake;
      if (this.#hasTurn) wake();
      return clock.schedule(ms, wake, { keepAlive: true });
    });
    this.#onTurn = () => undefined;
  }

  /** Whether a quorum of nodes has called. */
  get #hasTurn(): boolean {
    return this.#calledBy.size >= this.#pool.redlock.quorum;
  }

  errorOf(end: CallEnd): unknown {
    if (end === "timeout") {
      const own = this.#caller?.isFirst === false ? undefined : this.#refused;
      return this.#timedOut(own ?? this.#pool.line.noted ?? UNANSWERED);
    }
    this.#report.failed("cancelled", this.#refused?.votes ?? []);
    return end === "signal" ? this.#request.signal?.reason : new RedlockClosedError([this.#pool.name]);
  }

  leave(): void {
    this.#takeBack(this.#isAsking ? this.#holder : "", this.#place);
    this.#caller?.leave();
    this.#pool.tidyLine();
  }

  /**
   * Sends a release after the requests, over the same connections. So the release takes back any grant, even of a
   * request that is still on its way. If a connection is broken, the release is sent over the next one.
   */
  #takeBack(holder: string, place: PermitPlace | undefined): void {
    const { protocol, turns } = this.#pool;
    const leave = (ms: number): void =>
      void protocol.takeBack(this.#pool.callOf("release", [holder, "", place?.waiter ?? ""]), ms);
    if (place !== undefined) turns.leave(place.waiter, () => leave(TURN_MS));
    if (holder !== "" || place !== undefined) leave(this.#request.ttl);
  }

  #timedOut({ refusal, votes, figures: { used, waiting } }: RefusedPermits): Error {
    const { nodeCount, redlock, name, line } = this.#pool;
    const { attempts, waitMs: elapsedMs } = this.#report.facts();
    this.#report.failed(refusal === "unreachable" ? "unreachable" : "held", votes);
    if (refusal === "unreachable") return this.#pool.unreachable(votes, { attempts, elapsedMs });
    const figures = { used, waiting: Math.max(waiting, line.waiting) };
    return new LockHeldError({
      resources: [name],
      votes,
      nodeCount,
      quorum: redlock.quorum,
      attempts,
      elapsedMs,
      refused: `${this.#request.refusal(figures)} (waited ${Math.round(elapsedMs)} ms)`,
    });
  }

  #newHolder(): string {
    return `${this.#request.permits}:${this.#pool.protocol.newToken()}`;
  }
}

function tokenOf(holder: string): string {
  return holder.slice(holder.indexOf(":") + 1);
}

function tooLate(answer: PermitAnswer): PermitAnswer {
  if (answer.vote.vote !== "granted") return answer;
  return { vote: { ...answer.vote, vote: "failed", error: "the answer was read after its timeout" } };
}
