/**
 * Locks that a script of another package takes and releases on the node itself, in the same atomic step as what they protect: no
 * request for the lock at all. Only where one node, which forgets nothing unnoticed, has all the votes.
 *
 * Guaranteed: such a grant is like any other. It is taken only where nobody has the lock or waits for it, with a token and a
 * fencing token of its own; it is trusted from before the script was sent; what a script did not release, or not within
 * `nodeTimeout`, is released by a request. Not guaranteed, but for the caller to see to: that the scripts run on the very node
 * and database of the `Redlock`.
 */
import type { Grant } from "./attempt.ts";
import { type Instant, readClock } from "./clock.ts";
import { Timed } from "./deadlines.ts";
import type { Engine } from "./engine.ts";
import type { Lock } from "./lock.ts";
import { digits } from "./operation.ts";
import { releaseEverywhere } from "./release.ts";
import { embedded } from "./scripts/embedded.lua.ts";
import { newToken } from "./token.ts";
import { leaseEnd, remainingMs } from "./validity.ts";

/** What a script granted. */
export interface EmbeddedGrant {
  readonly resource: string;
  /** Of `newToken`. */
  readonly token: string;
  /** As `lockIfFree` returned it. */
  readonly fencingToken: number;
  /** Both clocks, read before the script was sent. */
  readonly asked: Instant;
}

/** What a script says of a release; false if it says nothing in time. */
export class ScriptAnswer extends Timed {
  readonly #engine: Engine;
  readonly #onAnswer: (isDeleted: boolean) => void;
  #isSettled = false;

  constructor(engine: Engine, onAnswer: (isDeleted: boolean) => void) {
    super();
    this.#engine = engine;
    this.#onAnswer = onAnswer;
    engine.deadlines.start(this);
  }

  settle(isDeleted: boolean): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.#engine.deadlines.stop(this);
    this.#onAnswer(isDeleted);
  }

  onDeadline(): void {
    this.settle(false);
  }
}

const everyNode = (): boolean => true;

export class EmbeddedLocks {
  /**
   * Lua that defines `lockIfFree(key, token, ttl)`, `passOnIfUnwanted(key, token, next, ttl)` and `unlockIfUnwanted(key, token)`, to be
   * called with pcall, see scripts/embedded.lua.ts; needs `local call = redis.call`.
   */
  readonly lua: string = embedded;
  readonly #engine: Engine;
  readonly #hold: (grant: Grant) => Lock;

  constructor(engine: Engine, hold: (grant: Grant) => Lock) {
    this.#engine = engine;
    this.#hold = hold;
  }

  /** For one execution of a script. */
  newToken(): string {
    return newToken(this.#engine.random);
  }

  /**
   * The handle of a lock that a script took for `ttl` ms, extended until it is released; undefined, and released, if its validity is
   * over. Throws `RedlockClosedError` when the `Redlock` is closed: the lock ends with its lease.
   */
  adopt({ resource, token, fencingToken, asked }: EmbeddedGrant, ttl: number): Lock | undefined {
    const engine = this.#engine;
    engine.batchers[0]?.noteNumber(digits(fencingToken));
    const end = leaseEnd(asked, ttl, engine.options.driftFactor);
    const now = readClock(engine.clock);
    if (remainingMs(end, now) <= 0) {
      void this.drop({ resource, token }, ttl);
      return undefined;
    }
    const target = engine.targetOf([resource]);
    // The answer may have come late: what is due a third of the lease after the grant must not come after its end.
    const grantedMs = asked.monotonicMs;
    const lock = this.#hold({ target, token, fencingToken, ttlMs: ttl, end, grantedMs, mayHold: everyNode });
    engine.events.tell("acquire", () => ({
      resources: target.resources,
      attempts: 1,
      waitMs: now.monotonicMs - asked.monotonicMs,
      outcome: "acquired",
      fencingToken,
    }));
    return lock;
  }

  /** Releases what a script took and nobody adopted. Resolves as `lock.release()`; never rejects. */
  drop({ resource, token }: Pick<EmbeddedGrant, "resource" | "token">, ttl: number): Promise<boolean> {
    const target = this.#engine.targetOf([resource]);
    return releaseEverywhere(this.#engine, { target, token, ttlMs: ttl, mayHold: everyNode });
  }
}
