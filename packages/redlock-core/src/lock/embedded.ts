/**
 * Embedded locks are acquired and released by a script of another package on the node, in the same atomic step as the
 * work that they protect. Such a lock costs no request. This requires a single node that has all votes and never
 * forgets unnoticed.
 *
 * An embedded grant is like any other grant. The script acquires the lock only if it is free and has no waiters, with
 * its own token and fencing token. The lock is trusted from before the script was sent. If no script releases the lock
 * within `nodeTimeout`, a request does.
 *
 * The caller must ensure that the scripts run on the very node and database of the `Redlock`.
 */

import { type Instant, readClock } from "../kit/clock.ts";
import { Deadline, type Deadlines, type Timed } from "../kit/deadlines.ts";
import { leaseEnd, remainingMs } from "../rules/validity.ts";
import { embedded } from "../scripts/embedded.lua.ts";
import type { Grant } from "./attempt.ts";
import type { Engine } from "./engine.ts";
import type { Lock } from "./lock.ts";
import { releaseEverywhere } from "./release.ts";

/** A grant made by a script. */
export interface EmbeddedGrant {
  readonly resource: string;
  /** Token returned by `newToken`. */
  readonly token: string;
  /** Fencing token returned by `lockIfFree`. */
  readonly fencingToken: number;
  /** All clocks, read before the script was sent. */
  readonly asked: Instant;
}

/** Converts a grant by a script. Every node may hold the key, and counts as having had it. */
export function grantOf(engine: Engine, { resource, token, fencingToken, asked }: EmbeddedGrant, ttlMs: number): Grant {
  return {
    target: engine.targets.of([resource]),
    token,
    fencingToken,
    ttlMs,
    end: leaseEnd(asked, ttlMs, engine.options.driftFactor),
    // The answer may have arrived late. A renewal that is due a third of the lease after the grant must precede the
    // lease's end.
    granted: asked,
    mayHoldOn: engine.everyNode,
    hadKeyOn: engine.everyNode,
  };
}

/** Answer of a script to a release, which is passed on once. False if no answer arrives in time. */
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
   * Lua that defines `lockIfFree(key, token, ttl)`, `passOnIfUnwanted(key, token, next, ttl)` and
   * `unlockIfUnwanted(key, token)`. Call these functions with pcall, see scripts/embedded.lua.ts. The text needs `local
   * call = redis.call`.
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
   * Returns the handle of a lock that a script has acquired for `ttl` ms. The lock is extended until it is released. If
   * its validity is over, the lock is released and the result is undefined.
   * @throws RedlockClosedError if the `Redlock` is closed: the lock then ends with its lease.
   */
  adopt(granted: EmbeddedGrant, ttl: number): Lock | undefined {
    const engine = this.#engine;
    // No later fencing token may be below this token.
    engine.batchers[0]?.numbers.noteValue(granted.fencingToken);
    const grant = grantOf(engine, granted, ttl);
    const now = readClock(engine.clock);
    if (remainingMs(grant.end, now) <= 0) {
      void this.drop(granted, ttl);
      return undefined;
    }
    const lock = this.#hold(grant);
    engine.events.tell("acquired", () => ({
      resources: grant.target.resources,
      attempts: 1,
      waitMs: now.monotonicMs - grant.granted.monotonicMs,
      fencingToken: grant.fencingToken,
    }));
    return lock;
  }

  /**
   * Releases a lock that a script has acquired and that was not adopted. Resolves like `lock.release()`. Never rejects.
   */
  drop({ resource, token }: Pick<EmbeddedGrant, "resource" | "token">, ttl: number): Promise<boolean> {
    const engine = this.#engine;
    const target = engine.targets.of([resource]);
    return releaseEverywhere(engine, { target, token, ttlMs: ttl, mayHoldOn: engine.everyNode });
  }
}
