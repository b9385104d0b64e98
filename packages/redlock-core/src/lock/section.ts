/**
 * A section is one call of `using`, or one run of a job under the lock of its key (`RedlockProtocol.inside`). Code
 * called by its routine, at any depth, finds the section through the asynchronous context.
 *
 * Inside a section, a call for a resource of the section would wait for its own caller. Such a call joins the lock
 * instead, or is refused. The following holds for calls that join:
 * - Concurrent joined calls of a section take turns, as if each had a lock of its own.
 * - The lock is kept until the last joined call has ended, even if the routine that made the call did not wait for it.
 * - A call that is made after the routine has ended does not join, although it still has the context.
 *
 * A routine and joined calls that the routine does not wait for do not exclude each other.
 */

import { LockHeldError, RedlockClosedError, ReentrancyError } from "../api/errors.ts";
import type { ResolvedUsingOptions } from "../api/options.ts";
import { CallDeadline } from "../kit/deadlines.ts";
import { nextOuter, type OuterCall, runInside } from "../kit/outer-call.ts";
import { abortable } from "../kit/signals.ts";
import { LocalLine, type LocalWaiter } from "../waiting/local-line.ts";
import type { Engine } from "./engine.ts";
import { JoinedLease } from "./joined-lease.ts";
import { Lock, leaseOf } from "./lock.ts";

interface SectionParts {
  /** Shared by all calls of one `Redlock`. */
  readonly engine: Engine;
  /** Lock granted by the nodes. */
  readonly granted: Lock;
  /** The surrounding call. */
  readonly outer: OuterCall | undefined;
  /** Handle and turn of a joined call, used instead of the granted lock. */
  readonly joined?: { readonly lock: Lock; readonly turn: LocalWaiter };
  /** Facts about a lock that a sibling releases. */
  readonly lent?: Lent;
}

/** Facts of a sibling about a lock under which it runs code. */
export interface Lent {
  /** Holder of the lock, as shown in the message of a `ReentrancyError`. */
  readonly holder: string;
  /** Whether a call in the section joins even if neither the call nor its `Redlock` is set to join. */
  readonly joins: boolean;
  /** Fencing token of this section. A lock may be passed on from one section to the next. */
  readonly fencingToken: number;
}

export class Section implements OuterCall {
  /** Lock that is passed to the routine. */
  readonly lock: Lock;
  readonly #engine: Engine;
  readonly #granted: Lock;
  readonly #turn: LocalWaiter | undefined;
  readonly #lent: Lent | undefined;
  outer: OuterCall | undefined;
  /** Calls that have joined this section, in the order of their turns. */
  #calls: LocalLine | undefined;
  isOver = false;

  constructor({ engine, granted, outer, joined, lent }: SectionParts) {
    this.lock = joined?.lock ?? granted;
    this.#engine = engine;
    this.#granted = granted;
    this.#turn = joined?.turn;
    this.#lent = lent;
    this.outer = outer;
  }

  /**
   * Returns the section whose lock a call for `resources` would wait for: the innermost such section, from `inner` on.
   * A lock that is lost or released does not count.
   */
  static inTheWay(inner: OuterCall | undefined, engine: Engine, resources: readonly string[]): Section | undefined {
    for (let call = inner; call !== undefined; call = nextOuter(call)) {
      if (call instanceof Section && call.#engine === engine && call.#holdsAnyOf(resources)) return call;
    }
    return undefined;
  }

  /** Calls `routine` in the section and ends the section. Settles like the routine. */
  async during<Result>(routine: (lock: Lock) => Result | PromiseLike<Result>): Promise<Result> {
    try {
      return await runInside(this, routine, this.lock);
    } finally {
      await this.#end();
    }
  }

  /** Ends the section after the last joined call, and releases the lock unless it is lent. Never rejects. */
  #end(): Promise<unknown> {
    this.isOver = true;
    // The usual section has neither calls nor a turn, and saves the promises.
    return this.#calls === undefined && this.#turn === undefined ? this.#release() : this.#endInTurn();
  }

  #release(): Promise<unknown> {
    return this.#lent === undefined ? this.lock.release() : Promise.resolve();
  }

  async #endInTurn(): Promise<void> {
    if (this.#calls !== undefined) {
      const last = this.#calls.enter();
      await last.untilFirst();
      last.leave();
    }
    await this.#release();
    this.#turn?.leave();
  }

  #holdsAnyOf(resources: readonly string[]): boolean {
    return this.#granted.resources.some((resource) => resources.includes(resource)) && this.#granted.isHeld();
  }

  /**
   * Lets a call join this section when it has its turn.
   *
   * The lease is extended if the call requests a longer `ttl`, and never shortened. The `maxHold` of the existing lock
   * continues to apply.
   */
  async join(
    resources: readonly string[],
    inner: OuterCall | undefined,
    options: ResolvedUsingOptions,
  ): Promise<Section> {
    const granted = this.#granted;
    const joins = options.reentrancy === "join" || this.#lent?.joins === true;
    if (!joins || !resources.every((resource) => granted.resources.includes(resource)))
      throw new ReentrancyError(resources, granted.resources, { holder: this.#lent?.holder });
    const [name = ""] = granted.resources;
    this.#calls ??= new LocalLine(name);
    const turn = this.#calls.enter();
    try {
      if (!turn.isFirst) await this.#untilTurn(turn, resources, options);
      granted.assertHeld();
      const lease = leaseOf(granted);
      if (options.hasOwnTtl && options.ttl > lease.ttlMs) {
        const extended = lease.extend(options.ttl);
        await (options.signal === undefined ? extended : abortable(extended, options.signal));
      }
      const { fencingToken } = this.#lent ?? granted;
      const lock = new Lock(resources, new JoinedLease(lease, fencingToken));
      return new Section({ engine: this.#engine, granted, outer: inner, joined: { lock, turn } });
    } catch (error) {
      turn.leave();
      throw error;
    }
  }

  async #untilTurn(
    turn: LocalWaiter,
    resources: readonly string[],
    { timeout, signal }: ResolvedUsingOptions,
  ): Promise<void> {
    const { clock, closed, nodes, quorum } = this.#engine;
    const startMs = clock.monotonicMs();
    const deadline = new CallDeadline(clock, { startMs, timeoutMs: timeout, signal, closed });
    await deadline.until(turn.untilFirst());
    deadline.dispose();
    signal?.throwIfAborted();
    if (closed.aborted) throw new RedlockClosedError(resources);
    if (turn.isFirst) return;
    const elapsedMs = clock.monotonicMs() - startMs;
    const refused = `lock "${resources[0]}" is held by another call that has joined it: waited ${Math.round(elapsedMs)} ms`;
    throw new LockHeldError({ resources, votes: [], nodeCount: nodes.length, quorum, attempts: 0, elapsedMs, refused });
  }
}
