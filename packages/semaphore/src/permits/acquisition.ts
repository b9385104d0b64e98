/**
 * An acquisition asks the nodes for permits until a quorum has granted them or its time is over, and waits for its turn
 * in between. However it ends, it leaves neither a permit nor a place in line behind.
 *
 * Behind other callers of this process it asks nothing: line.ts says when.
 */
import { type Lock, LockHeldError, RedlockClosedError, type Vote } from "@x/redlock-core";
import {
  abortable,
  backOffMs,
  CallDeadline,
  type Instant,
  leaseEnd,
  linkSignals,
  type NodeReply,
  readClock,
  remainingMs,
  Traced,
} from "@x/redlock-core/protocol";
import type { Caller, Refused } from "./line.ts";
import { ASK_AGAIN_MS, TURN_MS } from "./permits.lua.ts";
import type { PermitRequest, Pool } from "./pool.ts";
import { type Answer, answerOf, askAgainMs, figuresOf, mayBeGranted, outcomeOf, whyRefused } from "./rules/answer.ts";

/**
 * The calls that tools draw as spans: what the messages of the tracing channels have, by the call
 * (`x.semaphore:acquire` and so on). What is held, extended, lost and released is told by the `Redlock`'s events.
 */
export interface SemaphoreTraces {
  /** An acquisition, also in `using()`; the result is the lock. */
  acquire: { readonly resource: string; readonly permits: number };
}

const traces: { readonly [Call in keyof SemaphoreTraces]: Traced<SemaphoreTraces[Call]> } = {
  acquire: new Traced("x.semaphore:acquire"),
};

interface RefusedAttempt extends Refused {
  readonly askAgainMs: number;
}

/** The place of a call in the nodes' lines. */
interface Place {
  /** The name in line. */
  readonly waiter: string;
  readonly ticket: string;
}

const MAX_RETRY_MS = 1_000;

/** If only the proposed fencing token was wrong, the nodes are asked again at once, but not more often. */
const MAX_CORRECTIONS = 5;

/** The refusal of a call that ends before the nodes have answered any caller of its line. */
const UNANSWERED: Refused = { refusal: "unreachable", votes: [], figures: { used: 0, waiting: 0 } };

/** Acquires permits of a pool; rejects if the call's time is over before it is its turn. */
export function acquirePermits(pool: Pool, request: PermitRequest): Promise<Lock> {
  const call = (): Promise<Lock> =>
    pool.protocol.call(pool.name, request.signal, () => new Acquisition(pool, request).run());
  if (!traces.acquire.isHeard) return call();
  return traces.acquire.run({ resource: pool.name, permits: request.permits }, call);
}

class Acquisition {
  readonly #pool: Pool;
  readonly #request: PermitRequest;
  readonly #started: Instant;
  readonly #deadline: CallDeadline;
  /** This call in the line of its process; undefined for a call that does not wait. */
  readonly #caller: Caller | undefined;
  /** Our holder is a new one after each request that was not answered, so that a late grant is not taken for it. */
  #holder: string;
  /** Undefined before the first refusal. */
  #place: Place | undefined;
  #attempts = 0;
  #corrections = 0;
  #failures = 0;
  /** Whether a request is under way, which may be granted. */
  #isAsking = false;
  #onTurn: () => void = () => undefined;
  /** The nodes that have called since the last attempt. */
  readonly #calledBy = new Set<string>();

  constructor(pool: Pool, request: PermitRequest) {
    const { clock, closed } = pool.protocol;
    const { timeout, signal } = request;
    this.#pool = pool;
    this.#request = request;
    this.#started = readClock(clock);
    this.#deadline = new CallDeadline(clock, {
      startMs: this.#started.monotonicMs,
      timeoutMs: timeout,
      signal,
      closed,
    });
    this.#holder = this.#newHolder();
    this.#caller = timeout > 0 ? pool.line.enter(request.permits) : undefined;
  }

  async run(): Promise<Lock> {
    const { protocol, name } = this.#pool;
    const { signal } = this.#request;
    const ends = linkSignals(signal, protocol.closed);
    try {
      const lock = await this.#untilGranted(ends.signal);
      if (protocol.closed.aborted) {
        await lock.release();
        throw new RedlockClosedError([name]);
      }
      this.#tell("acquired", lock.fencingToken);
      return lock;
    } catch (error) {
      this.#takeBack(this.#isAsking ? this.#holder : "", this.#place);
      if (ends.signal.aborted) this.#tell("cancelled");
      if (signal?.aborted !== true && protocol.closed.aborted) throw new RedlockClosedError([name]);
      throw error;
    } finally {
      this.#caller?.leave();
      this.#pool.tidyLine();
      this.#deadline.dispose();
      ends.unlink();
    }
  }

  async #untilGranted(signal: AbortSignal): Promise<Lock> {
    const caller = this.#caller;
    for (;;) {
      if (caller?.mayAsk === false) await this.#untilFirst(caller, signal);
      if (caller === undefined) this.#giveWay();
      this.#calledBy.clear();
      const isInLine = this.#place !== undefined;
      const result = await this.#attempt(signal);
      if (!("refusal" in result)) return result;
      if (this.#isCorrectable(result)) continue;
      if (caller === undefined) throw this.#timedOut(result);
      this.#pool.line.noted = result;
      if (this.#deadline.leftMs <= 0) throw this.#timedOut(result);
      caller.wait();
      this.#tellWait(result.votes);
      if (!caller.isFirst) continue;
      if (!isInLine && result.refusal === "held") await this.#standInLine(signal);
      else await this.#pause(result.askAgainMs, signal);
    }
  }

  /** A call that does not wait does not overtake callers of this process that do. */
  #giveWay(): void {
    const { waiting, noted } = this.#pool.line;
    if (waiting > 0 && noted?.refusal === "held") throw this.#timedOut(noted);
  }

  /** Waits until nobody in this process is before this call. By then the call has its place in the nodes' lines. */
  async #untilFirst(caller: Caller, signal: AbortSignal): Promise<void> {
    const { turns, line } = this.#pool;
    void turns.open().catch(() => undefined);
    if (this.#attempts === 0) this.#tellWait([]);
    await this.#deadline.until(caller.untilFirst());
    signal.throwIfAborted();
    if (!caller.isFirst) throw this.#timedOut(line.noted ?? UNANSWERED);
    if (turns.isOpen && this.#place === undefined) this.#place = this.#newPlace();
  }

  /** A waiter that cannot be called yet is not in line: the nodes would pass it over. */
  async #standInLine(signal: AbortSignal): Promise<void> {
    await abortable(this.#pool.turns.open(), signal);
    this.#place = this.#newPlace();
  }

  /** The place of a call is the time at which it began, by the nodes' clock. So all nodes have the same order. */
  #newPlace(): Place {
    const { turns, protocol } = this.#pool;
    const waiter = turns.nextWaiter(this.#request.permits);
    turns.listen(waiter, (node) => {
      this.#calledBy.add(node);
      if (this.#hasTurn) this.#onTurn();
    });
    return { waiter, ticket: String(protocol.placeAt(this.#started.wallMs)) };
  }

  #isCorrectable({ refusal }: RefusedAttempt): boolean {
    this.#corrections = refusal === "ballot" ? this.#corrections + 1 : 0;
    return refusal === "ballot" && this.#corrections <= MAX_CORRECTIONS;
  }

  async #attempt(signal: AbortSignal): Promise<Lock | RefusedAttempt> {
    const { pool, holder } = { pool: this.#pool, holder: this.#holder };
    const { ttl } = this.#request;
    const { waiter, ticket } = this.#place ?? { waiter: "", ticket: "" };
    this.#attempts += 1;
    this.#isAsking = true;
    const asked = readClock(pool.protocol.clock);
    const ballot = pool.ballot(asked);
    const replies = await abortable(
      pool.ask(
        pool.callOf("acquire", [holder, String(ttl), waiter, ticket, ballot]),
        (some) => outcomeOf(this.#answersOf(some), pool.nodeCount) !== "open",
      ),
      signal,
    );
    this.#isAsking = false;
    return this.#read(this.#answersOf(replies), asked, Number(ballot));
  }

  #answersOf(replies: readonly NodeReply[]): readonly Answer[] {
    return replies.map((reply) => answerOf(reply, this.#pool.name));
  }

  #read(answers: readonly Answer[], asked: Instant, ballot: number): Lock | RefusedAttempt {
    const pool = this.#pool;
    if (outcomeOf(answers, pool.nodeCount) !== "won") return this.#refused(answers, asked);
    const { clock } = pool.protocol;
    const { ttl } = this.#request;
    const end = leaseEnd(asked, ttl, pool.redlock.options.driftFactor);
    if (remainingMs(end, readClock(clock)) <= 0) return this.#refused(answers.map(tooLate), asked);
    return this.#granted(pool.isAlone ? Number(answers[0]?.fencingToken) : ballot, asked);
  }

  #granted(fencingToken: number, asked: Instant): Lock {
    const { pool, holder } = { pool: this.#pool, holder: this.#holder };
    const { ttl, autoExtend, maxHold } = this.#request;
    const lock = pool.protocol.hold(
      { resource: pool.name, token: tokenOf(holder), fencingToken, ttlMs: ttl, asked },
      { autoExtend, maxHold },
      {
        extend: (ttlMs) => pool.callOf("extend", [holder, String(ttlMs), "", "", String(fencingToken)]),
        release: () => pool.callOf("release", [holder]),
      },
    );
    pool.line.noteGrant(this.#request.permits);
    if (!pool.isAlone) this.#takeBack("", this.#place);
    else if (this.#place !== undefined) pool.turns.leave(this.#place.waiter);
    return lock;
  }

  #refused(answers: readonly Answer[], asked: Instant): RefusedAttempt {
    const pool = this.#pool;
    if (mayBeGranted(answers, pool.nodeCount)) {
      this.#takeBack(this.#holder, undefined);
      this.#holder = this.#newHolder();
    }
    pool.learn(answers, asked);
    const refusal = whyRefused(answers, pool.nodeCount);
    const isUnreachable = refusal === "unreachable";
    this.#failures = isUnreachable ? this.#failures + 1 : 0;
    const { retryDelay: delayMs } = pool.redlock.options;
    const unknownMs = isUnreachable
      ? backOffMs({ failures: this.#failures, delayMs, maxDelayMs: MAX_RETRY_MS })
      : ASK_AGAIN_MS;
    return {
      refusal,
      votes: answers.map(({ vote }) => vote),
      figures: figuresOf(answers),
      askAgainMs: Math.max(askAgainMs(answers, pool.nodeCount, unknownMs), refusal === "ballot" ? delayMs : 0),
    };
  }

  /** Waits for the turn, and at most for so long. */
  async #pause(ms: number, signal: AbortSignal): Promise<void> {
    const { clock } = this.#pool.protocol;
    await this.#deadline.untilCalled((wake) => {
      this.#onTurn = wake;
      if (this.#hasTurn) wake();
      return clock.schedule(ms, wake, { keepAlive: true });
    });
    this.#onTurn = () => undefined;
    signal.throwIfAborted();
  }

  /** Whether as many nodes have called as decide. */
  get #hasTurn(): boolean {
    return this.#calledBy.size >= this.#pool.redlock.quorum;
  }

  /**
   * Follows the requests over the same connections, and so takes back whatever they did or will do. If a connection is
   * broken, it follows over the next one.
   */
  #takeBack(holder: string, place: Place | undefined): void {
    const { protocol, turns } = this.#pool;
    const leave = (ms: number): void =>
      void protocol.takeBack(this.#pool.callOf("release", [holder, "", place?.waiter ?? ""]), ms);
    if (place !== undefined) turns.leave(place.waiter, () => leave(TURN_MS));
    if (holder !== "" || place !== undefined) leave(this.#request.ttl);
  }

  #timedOut({ refusal, votes, figures: { used, waiting } }: Refused): Error {
    const { nodeCount, redlock, name, line } = this.#pool;
    const facts = { attempts: this.#attempts, elapsedMs: this.#elapsedMs() };
    this.#tell(refusal === "unreachable" ? "unreachable" : "held", undefined, votes);
    if (refusal === "unreachable") return this.#pool.unreachable(votes, facts);
    const figures = { used, waiting: Math.max(waiting, line.waiting) };
    return new LockHeldError({
      resources: [name],
      votes,
      nodeCount,
      quorum: redlock.quorum,
      ...facts,
      refused: `${this.#request.refusal(figures)} (waited ${Math.round(facts.elapsedMs)} ms)`,
    });
  }

  #tell(
    outcome: "acquired" | "held" | "unreachable" | "cancelled",
    fencingToken?: number,
    votes?: readonly Vote[],
  ): void {
    this.#pool.protocol.events.tell("acquire", () => ({
      resources: [this.#pool.name],
      outcome,
      attempts: this.#attempts,
      waitMs: this.#elapsedMs(),
      ...(fencingToken === undefined ? {} : { fencingToken }),
      ...(votes === undefined ? {} : { votes }),
    }));
  }

  #tellWait(votes: readonly Vote[]): void {
    const { attempts, waitMs } = { attempts: this.#attempts, waitMs: this.#elapsedMs() };
    this.#pool.protocol.events.tell("wait", () => ({ resources: [this.#pool.name], attempts, waitMs, votes }));
  }

  #elapsedMs(): number {
    return this.#pool.protocol.clock.monotonicMs() - this.#started.monotonicMs;
  }

  #newHolder(): string {
    return `${this.#request.permits}:${this.#pool.protocol.newToken()}`;
  }
}

function tokenOf(holder: string): string {
  return holder.slice(holder.indexOf(":") + 1);
}

function tooLate(answer: Answer): Answer {
  if (answer.vote.vote !== "granted") return answer;
  return { vote: { ...answer.vote, vote: "failed", error: "the answer came when the lease was over" } };
}
