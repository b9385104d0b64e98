/**
 * An acquisition asks the node for permits until it has them or its time is over, and waits for its turn in between.
 * However it ends, it leaves neither a permit nor a place in line behind.
 */
import { type Lock, LockHeldError, RedlockClosedError, type Vote } from "@x/redlock-core";
import {
  abortable,
  backOffMs,
  driftMs,
  elapsedMs,
  type Instant,
  linkSignals,
  type NodeReply,
  onAbort,
  readClock,
} from "@x/redlock-core/protocol";
import type { Figures, PermitRequest, Pool } from "./pool.ts";

type Answer =
  | { readonly kind: "granted"; readonly lock: Lock }
  | { readonly kind: "refused"; readonly askAgainMs: number; readonly figures: Figures; readonly vote: Vote }
  | { readonly kind: "failed"; readonly askAgainMs: number; readonly vote: Vote };

type Refusal = Exclude<Answer, { readonly kind: "granted" }>;

const MAX_RETRY_MS = 1_000;

export class Acquisition {
  readonly #pool: Pool;
  readonly #request: PermitRequest;
  readonly #startedMs: number;
  /** The name in line; '' for a call that does not wait. */
  readonly #waiter: string;
  /** Fresh after each request that was not answered, so that a late grant is not taken for ours. */
  #holder: string;
  #ticket = "";
  #attempts = 0;
  #failures = 0;
  #isInLine = false;
  #onTurn: () => void = () => undefined;
  #hasTurn = false;

  constructor(pool: Pool, request: PermitRequest) {
    this.#pool = pool;
    this.#request = request;
    this.#startedMs = pool.protocol.clock.monotonicMs();
    this.#waiter = request.timeout > 0 ? pool.turns.nextWaiter(request.permits) : "";
    this.#holder = this.#newHolder();
  }

  async run(): Promise<Lock> {
    const { protocol, turns } = this.#pool;
    const { signal } = this.#request;
    const ends = linkSignals(signal, protocol.closed);
    const stopListening = turns.listen(this.#waiter, () => {
      this.#hasTurn = true;
      this.#onTurn();
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
      if (this.#isInLine) this.#giveBack(this.#waiter);
      if (ends.signal.aborted) this.#tell("cancelled");
      if (signal?.aborted !== true && protocol.closed.aborted) throw new RedlockClosedError([this.#pool.name]);
      throw error;
    } finally {
      stopListening();
      ends.unlink();
    }
  }

  async #untilGranted(signal: AbortSignal): Promise<Lock> {
    const { turns } = this.#pool;
    for (;;) {
      this.#hasTurn = false;
      // Whoever cannot be called yet does not stand in line: it would be passed over.
      const isInLine = turns.isOpen;
      const answer = await this.#attempt(isInLine ? this.#waiter : "", signal);
      if (answer.kind === "granted") return answer.lock;
      const leftMs = this.#request.timeout - this.#elapsedMs();
      if (leftMs <= 0) throw this.#timedOut(answer);
      this.#tellWait(answer);
      if (isInLine) await this.#pause(Math.min(answer.askAgainMs, leftMs), signal);
      else await abortable(turns.open(), signal);
    }
  }

  async #attempt(waiter: string, signal: AbortSignal): Promise<Answer> {
    const { pool, holder } = { pool: this.#pool, holder: this.#holder };
    const { ttl } = this.#request;
    this.#attempts += 1;
    this.#isInLine = true;
    const asked = readClock(pool.protocol.clock);
    const reply = await abortable(
      pool.ask(pool.callOf("acquire", [holder, String(ttl), waiter, this.#ticket])),
      signal,
    );
    const answer = this.#read(reply, asked);
    this.#failures = answer.kind === "failed" ? this.#failures + 1 : 0;
    return answer;
  }

  #read(reply: NodeReply, asked: Instant): Answer {
    const about = { node: reply.node, tookMs: Math.round(reply.tookMs) };
    if (!reply.ok) return this.#failed({ ...about, vote: "failed", error: reply.error.message });
    const [kind, ...facts] = reply.value as readonly [number, ...(string | number)[]];
    if (kind === 1) return this.#granted(Number(facts[0]), asked, about);
    if (kind === 2) {
      const quarantineLeftMs = Number(facts[0]);
      return {
        kind: "failed",
        askAgainMs: quarantineLeftMs,
        vote: { ...about, vote: "quarantined", quarantineLeftMs },
      };
    }
    const [ticket, askAgainMs, used, waiting] = facts;
    this.#ticket = String(ticket);
    return {
      kind: "refused",
      askAgainMs: Number(askAgainMs),
      figures: { used: Number(used), waiting: Number(waiting) },
      vote: { ...about, vote: "held", resource: this.#pool.name },
    };
  }

  #granted(fencingToken: number, asked: Instant, about: Pick<Vote, "node" | "tookMs">): Answer {
    const { pool, holder } = { pool: this.#pool, holder: this.#holder };
    const { ttl, autoExtend, maxHold } = this.#request;
    const tookMs = elapsedMs(asked, readClock(pool.protocol.clock));
    if (tookMs >= ttl - driftMs(ttl, pool.redlock.options.driftFactor))
      return this.#failed({ ...about, vote: "failed", error: "the answer came when the lease was over" });
    const lock = pool.protocol.hold(
      { resource: pool.name, token: tokenOf(holder), fencingToken, ttlMs: ttl, asked },
      { autoExtend, maxHold },
      {
        extend: (ttlMs) => pool.callOf("extend", [holder, String(ttlMs), "", "", String(fencingToken)]),
        release: () => pool.callOf("release", [holder]),
      },
    );
    this.#isInLine = false;
    return { kind: "granted", lock };
  }

  #failed(vote: Vote): Answer {
    this.#giveBack("");
    this.#holder = this.#newHolder();
    const { retryDelay: delayMs } = this.#pool.redlock.options;
    const askAgainMs = backOffMs({ failures: this.#failures + 1, delayMs, maxDelayMs: MAX_RETRY_MS });
    return { kind: "failed", askAgainMs, vote };
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

  /**
   * Follows the request over the same connection, and so takes back whatever it did or will do. If that connection is
   * broken, it follows over the next one.
   */
  #giveBack(waiter: string): void {
    const { pool, holder } = { pool: this.#pool, holder: this.#holder };
    void pool.protocol.takeBack(pool.callOf("release", [holder, "", waiter]), this.#request.ttl);
  }

  #timedOut(answer: Refusal): Error {
    const facts = { attempts: this.#attempts, elapsedMs: this.#elapsedMs() };
    this.#tell(answer.kind === "refused" ? "held" : "unreachable", undefined, answer.vote);
    if (answer.kind === "failed") return this.#pool.unreachable([answer.vote], facts);
    return new LockHeldError({
      resources: [this.#pool.name],
      votes: [answer.vote],
      nodeCount: 1,
      quorum: 1,
      ...facts,
      refused: `${this.#request.refusal(answer.figures)} (waited ${Math.round(facts.elapsedMs)} ms)`,
    });
  }

  #tell(outcome: "acquired" | "held" | "unreachable" | "cancelled", fencingToken?: number, vote?: Vote): void {
    this.#pool.protocol.events.tell("acquire", () => ({
      resources: [this.#pool.name],
      outcome,
      attempts: this.#attempts,
      waitMs: this.#elapsedMs(),
      ...(fencingToken === undefined ? {} : { fencingToken }),
      ...(vote === undefined ? {} : { votes: [vote] }),
    }));
  }

  #tellWait({ vote }: Refusal): void {
    const { attempts, waitMs } = { attempts: this.#attempts, waitMs: this.#elapsedMs() };
    this.#pool.protocol.events.tell("wait", () => ({ resources: [this.#pool.name], attempts, waitMs, votes: [vote] }));
  }

  #elapsedMs(): number {
    return this.#pool.protocol.clock.monotonicMs() - this.#startedMs;
  }

  #newHolder(): string {
    return `${this.#request.permits}:${this.#pool.protocol.newToken()}`;
  }
}

function tokenOf(holder: string): string {
  return holder.slice(holder.indexOf(":") + 1);
}
