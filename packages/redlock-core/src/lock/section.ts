/**
 * A section is one call of `using`, or one run of a job under the lock of its key (`RedlockProtocol.inside`). The code
 * that its routine calls, however deep, knows of it by its asynchronous context.
 *
 * A call inside a section for a resource that the section holds would wait for its own caller. It joins the lock
 * instead, or is refused. The following holds for calls that join:
 * - Those that run side by side in one section take turns, as if each had a lock of its own.
 * - The lock is kept until the last of them has ended, also if the routine that made them did not wait for it.
 * - A call that is made when the routine has ended does not join, although it has its context.
 *
 * A routine and the joined calls that it does not wait for do not exclude each other.
 */

import { LockHeldError, RedlockClosedError, ReentrancyError } from "../api/errors.ts";
import type { ResolvedUsingOptions } from "../api/options.ts";
import { nextOuter, type OuterCall, runInside } from "../kit/outer-call.ts";
import { abortable } from "../kit/signals.ts";
import { CallDeadline } from "../waiting/call-deadline.ts";
import { LocalLine, type LocalWaiter } from "../waiting/local-line.ts";
import { JoinedLease } from "./joined-lease.ts";
import { Lock, leaseOf } from "./lock.ts";
import type { Session } from "./session.ts";

interface SectionParts {
  /** The same for all calls of one `Redlock`. */
  readonly session: Session;
  /** The lock that the nodes have granted. */
  readonly granted: Lock;
  /** The call around this one. */
  readonly outer: OuterCall | undefined;
  /** What a joined call has in place of the granted lock: its handle, and its turn. */
  readonly joined?: { readonly lock: Lock; readonly turn: LocalWaiter };
  /** What is said of the lock if it is somebody else's to release. */
  readonly lent?: Lent;
}

/** What a sibling says of a lock under which it runs code. */
export interface Lent {
  /** What holds the lock, in the message of a `ReentrancyError`. */
  readonly holder: string;
  /** Whether a call in the section joins, though neither it nor its `Redlock` says so. */
  readonly joins: boolean;
  /** The fencing token of this section: one lock may be passed on from one to the next. */
  readonly fencingToken: number;
}

export class Section implements OuterCall {
  /** The lock that the routine gets. */
  readonly lock: Lock;
  readonly #session: Session;
  readonly #granted: Lock;
  readonly #turn: LocalWaiter | undefined;
  readonly #lent: Lent | undefined;
  outer: OuterCall | undefined;
  /** The calls that joined this section, in the order of their turns. */
  #calls: LocalLine | undefined;
  isOver = false;

  constructor({ session, granted, outer, joined, lent }: SectionParts) {
    this.lock = joined?.lock ?? granted;
    this.#session = session;
    this.#granted = granted;
    this.#turn = joined?.turn;
    this.#lent = lent;
    this.outer = outer;
  }

  /**
   * Returns the section whose lock a call for `resources` would wait for: the innermost one, from `inner` on. A lock
   * that is lost or released is in nobody's way.
   */
  static inTheWay(inner: OuterCall | undefined, session: Session, resources: readonly string[]): Section | undefined {
    for (let call = inner; call !== undefined; call = nextOuter(call)) {
      if (call instanceof Section && call.#session === session && call.#holdsAnyOf(resources)) return call;
    }
    return undefined;
  }

  /** Calls `routine` in the section, and ends the section. It settles as the routine does. */
  async during<Result>(routine: (lock: Lock) => Result | PromiseLike<Result>): Promise<Result> {
    try {
      return await runInside(this, routine, this.lock);
    } finally {
      await this.#end();
    }
  }

  /**
   * Ends the section when the last joined call has ended, and releases the lock, unless that is lent. It never
   * rejects.
   */
  #end(): Promise<unknown> {
    this.isOver = true;
    // The usual section has neither, and is spared the promises.
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
   * Makes a call a part of this section, when it is its turn.
   *
   * The lease is extended to a longer `ttl` that the call asks for, and never shortened. The lock that is there has
   * its own `maxHold`.
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
      return new Section({ session: this.#session, granted, outer: inner, joined: { lock, turn } });
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
    const { engine, closed } = this.#session;
    const { clock, nodes, quorum } = engine;
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
