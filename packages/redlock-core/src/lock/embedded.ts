/**
 * Embedded locks are taken and released by a script of another package on the node itself, in the same atomic step as
 * what they protect. The lock then costs no request at all. This works only where one node, which forgets nothing
 * unnoticed, has all the votes.
 *
 * Such a grant is like any other. It is taken only where nobody has the lock or waits for it, with a token and a
 * fencing token of its own. It is trusted from before the script was sent. If a script does not release it, or not
 * within `nodeTimeout`, a request releases it.
 *
 * The caller must see to it that the scripts run on the very node and database of the `Redlock`.
 */

import { type Instant, readClock } from "../kit/clock.ts";
import { Deadline, type Deadlines, type Timed } from "../kit/deadlines.ts";
import type { Engine } from "../rounds/engine.ts";
import { leaseEnd, remainingMs } from "../rules/validity.ts";
import { embedded } from "../scripts/embedded.lua.ts";
import type { Grant } from "./attempt.ts";
import type { Lock } from "./lock.ts";
import { releaseEverywhere } from "./release.ts";

/** A grant that a script made. */
export interface EmbeddedGrant {
  readonly resource: string;
  /** The token that `newToken` returned. */
  readonly token: string;
  /** The fencing token that `lockIfFree` returned. */
  readonly fencingToken: number;
  /** All clocks, read before the script was sent. */
  readonly asked: Instant;
}

/** Returns what a script granted as a grant like any other. Each node may have its key, and none is known not to. */
export function grantOf(engine: Engine, { resource, token, fencingToken, asked }: EmbeddedGrant, ttlMs: number): Grant {
  return {
    target: engine.targetOf([resource]),
    token,
    fencingToken,
    ttlMs,
    end: leaseEnd(asked, ttlMs, engine.options.driftFactor),
    // The answer may have come late: what is due a third of the lease after the grant must not come after its end.
    granted: asked,
    mayHoldOn: engine.everyNode,
    hadKeyOn: engine.everyNode,
  };
}

/** The answer of a script to a release, passed on once; false if there is none in time. */
export class ScriptAnswer implements Timed {
  readonly #deadlines: Deadlines;
  readonly #deadline = new Deadline(this);
  #onSettled: ((isDeleted: boolean) => void) | undefined;

  constructor(deadlines: Deadlines, onSettled: (isDeleted: boolean) => void) {
    this.#deadlines = deadlines;
    this.#onSettled = onSettled;
    deadlines.start(this.#deadline);
  }

  settle(isDeleted: boolean): void {
    const onSettled = this.#onSettled;
    this.#onSettled = undefined;
    this.#deadlines.stop(this.#deadline);
    onSettled?.(isDeleted);
  }

  onDeadline(): void {
    this.settle(false);
  }
}

export class EmbeddedLocks {
  /**
   * The Lua text that defines `lockIfFree(key, token, ttl)`, `passOnIfUnwanted(key, token, next, ttl)` and
   * `unlockIfUnwanted(key, token)`. Call them with pcall, see scripts/embedded.lua.ts. The text needs `local call =
   * redis.call`.
   */
  readonly lua: string = embedded;
  readonly #engine: Engine;
  readonly #hold: (grant: Grant) => Lock;

  constructor(engine: Engine, hold: (grant: Grant) => Lock) {
    this.#engine = engine;
    this.#hold = hold;
  }

  /** Returns a token for one execution of a script. */
  newToken(): string {
    return this.#engine.newToken();
  }

  /**
   * Returns the handle of a lock that a script took for `ttl` ms. The lock is extended until it is released. If its
   * validity is over, it is released and the result is undefined.
   * @throws RedlockClosedError when the `Redlock` is closed: the lock ends with its lease.
   */
  adopt(granted: EmbeddedGrant, ttl: number): Lock | undefined {
    const engine = this.#engine;
    // No later fencing token may be below this one.
    engine.batchers[0]?.numbers.noteValue(granted.fencingToken);
    const grant = grantOf(engine, granted, ttl);
    const now = readClock(engine.clock);
    if (remainingMs(grant.end, now) <= 0) {
      void this.drop(granted, ttl);
      return undefined;
    }
    const lock = this.#hold(grant);
    engine.events.tell("acquire", () => ({
      resources: grant.target.resources,
      attempts: 1,
      waitMs: now.monotonicMs - grant.granted.monotonicMs,
      outcome: "acquired",
      fencingToken: grant.fencingToken,
    }));
    return lock;
  }

  /** Releases what a script took and nobody adopted. Resolves as `lock.release()` does; never rejects. */
  drop({ resource, token }: Pick<EmbeddedGrant, "resource" | "token">, ttl: number): Promise<boolean> {
    const engine = this.#engine;
    const target = engine.targetOf([resource]);
    return releaseEverywhere(engine, { target, token, ttlMs: ttl, mayHoldOn: engine.everyNode });
  }
}
