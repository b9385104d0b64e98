/**
 * An acquisition asks the nodes for permits until a quorum has granted them or its time is over, and waits for its turn
 * in between. However it ends, it leaves neither a permit nor a place in line behind.
 */
import { type Lock, LockHeldError, RedlockClosedError, type Vote } from "@x/redlock-core";
import {
  abortable,
  backOffMs,
  type Instant,
  leaseEnd,
  linkSignals,
  type NodeReply,
  onAbort,
  type Refusal,
  readClock,
  remainingMs,
  Traced,
} from "@x/redlock-core/protocol";
import { ASK_AGAIN_MS } from "./permits.lua.ts";
import type { PermitRequest, Pool } from "./pool.ts";
import {
  type Answer,
  answerOf,
  askAgainMs,
  figuresOf,
  mayBeGranted,
  outcomeOf,
  ticketBehind,
  whyRefused,
} from "./rules/answer.ts";

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

interface Refused {
  readonly refusal: Refusal;
  readonly answers: readonly Answer[];
  readonly votes: readonly Vote[];
  readonly askAgainMs: number;
}

const MAX_RETRY_MS = 1_000;

/** If only the proposed fencing token was wrong, the nodes are asked again at once, but not more often. */
const MAX_CORRECTIONS = 5;

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
  /** The name in line; '' for a call that does not wait. */
  readonly #waiter: string;
  /** Our holder is a new one after each request that was not answered, so that a late grant is not taken for it. */
  #holder: string;
  #ticket = "";
  #attempts = 0;
  #corrections = 0;
  #failures = 0;
  #isInLine = false;
  #onTurn: () => void = () => undefined;
  /** The nodes that have called since the last attempt. */
  readonly #calledBy = new Set<string>();

  constructor(pool: Pool, request: PermitRequest) {
    this.#pool = pool;
    this.#request = request;
    this.#started = readClock(pool.protocol.clock);
    this.#waiter = request.timeout > 0 ? pool.turns.nextWaiter(request.permits) : "";
    this.#holder = this.#newHolder();
  }

  async run(): Promise<Lock> {
    const { protocol, turns } = this.#pool;
    const { signal } = this.#request;
    const ends = linkSignals(signal, protocol.closed);
    const stopListening = turns.listen(this.#waiter, (node) => {
      this.#calledBy.add(node);
      if (this.#hasTurn) this.#onTurn();
    });
    try {
      const lock = await this.#untilGranted(ends.signal);
      if (protocol.closed.aborted) {
        await lock.release();
        throw new RedlockClosedError([this.#pool.name]);
      }
      this.#tell("acquired", lock.fencingToken);
      return lock;
    } catch (error) {
      if (this.#isInLine) this.#takeBack(this.#holder, this.#waiter);
      if (ends.signal.aborted) this.#tell("cancelled");
      if (signal?.aborted !== true && protocol.closed.aborted) throw new RedlockClosedError([this.#pool.name]);
      throw error;
    } finally {
      stopListening();
      ends.unlink();
    }
  }

  async #untilGranted(signal: AbortSignal): Promise<Lock> {
    const { turns, isAlone } = this.#pool;
    for (;;) {
      this.#calledBy.clear();
      // Whoever cannot be called yet does not stand in line: it would be passed over. In the lines of several nodes it
      // stands once they have told who is before it.
      const isInLine = turns.isOpen && (isAlone || this.#ticket !== "");
      const result = await this.#attempt(isInLine ? this.#waiter : "", signal);
      if (!("refusal" in result)) return result;
      if (this.#isCorrectable(result)) continue;
      const leftMs = this.#request.timeout - this.#elapsedMs();
      if (leftMs <= 0) throw this.#timedOut(result);
      this.#tellWait(result);
      const isPaused = isInLine || (turns.isOpen && result.refusal === "unreachable");
      if (isPaused) await this.#pause(Math.min(result.askAgainMs, leftMs), signal);
      else await abortable(turns.open(), signal);
    }
  }

  #isCorrectable({ refusal }: Refused): boolean {
    this.#corrections = refusal === "ballot" ? this.#corrections + 1 : 0;
    return refusal === "ballot" && this.#corrections <= MAX_CORRECTIONS;
  }

  async #attempt(waiter: string, signal: AbortSignal): Promise<Lock | Refused> {
    const { pool, holder } = { pool: this.#pool, holder: this.#holder };
    const { ttl } = this.#request;
    this.#attempts += 1;
    this.#isInLine = true;
    const asked = readClock(pool.protocol.clock);
    const ballot = pool.ballot(asked);
    const replies = await abortable(
      pool.ask(
        pool.callOf("acquire", [holder, String(ttl), waiter, waiter === "" ? "" : this.#ticket, ballot]),
        (some) => outcomeOf(this.#answersOf(some), pool.nodeCount) !== "open",
      ),
      signal,
    );
    return this.#read(this.#answersOf(replies), asked, Number(ballot));
  }

  #answersOf(replies: readonly NodeReply[]): readonly Answer[] {
    return replies.map((reply) => answerOf(reply, this.#pool.name));
  }

  #read(answers: readonly Answer[], asked: Instant, ballot: number): Lock | Refused {
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
    this.#isInLine = false;
    if (!pool.isAlone && this.#ticket !== "") this.#takeBack("", this.#waiter);
    return lock;
  }

  #refused(answers: readonly Answer[], asked: Instant): Refused {
    const pool = this.#pool;
    if (mayBeGranted(answers, pool.nodeCount)) {
      this.#takeBack(this.#holder, "");
      this.#holder = this.#newHolder();
    }
    const refusal = whyRefused(answers, pool.nodeCount);
    if (pool.isAlone) this.#ticket = answers[0]?.ticket ?? this.#ticket;
    else {
      pool.learn(answers, asked);
      if (this.#ticket === "" && refusal === "held") this.#ticket = ticketBehind(answers);
    }
    const isUnreachable = refusal === "unreachable";
    this.#failures = isUnreachable ? this.#failures + 1 : 0;
    const { retryDelay: delayMs } = pool.redlock.options;
    const unknownMs = isUnreachable
      ? backOffMs({ failures: this.#failures, delayMs, maxDelayMs: MAX_RETRY_MS })
      : ASK_AGAIN_MS;
    return {
      refusal,
      answers,
      votes: answers.map(({ vote }) => vote),
      askAgainMs: Math.max(askAgainMs(answers, pool.nodeCount, unknownMs), refusal === "ballot" ? delayMs : 0),
    };
  }

  /** Waits for the turn, and at most for so long. */
  async #pause(ms: number, signal: AbortSignal): Promise<void> {
    const { clock } = this.#pool.protocol;
    let cancel: () => void = () => undefined;
    let stopListening: () => void = () => undefined;
    await new Promise<void>((resolve, reject) => {
      cancel = clock.schedule(ms, resolve, { keepAlive: true });
      stopListening = onAbort(signal, () => reject(signal.reason as Error));
      this.#onTurn = resolve;
      if (signal.aborted) reject(signal.reason as Error);
      else if (this.#hasTurn) resolve();
    }).finally(() => {
      cancel();
      stopListening();
      this.#onTurn = () => undefined;
    });
  }

  /** Whether as many nodes have called as decide. */
  get #hasTurn(): boolean {
    return this.#calledBy.size >= this.#pool.redlock.quorum;
  }

  /**
   * Follows the requests over the same connections, and so takes back whatever they did or will do. If a connection is
   * broken, it follows over the next one.
   */
  #takeBack(holder: string, waiter: string): void {
    void this.#pool.protocol.takeBack(this.#pool.callOf("release", [holder, "", waiter]), this.#request.ttl);
  }

  #timedOut({ refusal, answers, votes }: Refused): Error {
    const { nodeCount, redlock, name } = this.#pool;
    const facts = { attempts: this.#attempts, elapsedMs: this.#elapsedMs() };
    this.#tell(refusal === "unreachable" ? "unreachable" : "held", undefined, votes);
    if (refusal === "unreachable") return this.#pool.unreachable(votes, facts);
    return new LockHeldError({
      resources: [name],
      votes,
      nodeCount,
      quorum: redlock.quorum,
      ...facts,
      refused: `${this.#request.refusal(figuresOf(answers))} (waited ${Math.round(facts.elapsedMs)} ms)`,
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

  #tellWait({ votes }: Refused): void {
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
