/**
 * Locks on one or several independent Redis nodes.
 *
 * Guarantees, while clocks advance at nearly the same rate (`driftFactor`) and no node forgets a lock unnoticed:
 * - A resource has at most one holder at a time.
 * - Fencing tokens increase from grant to grant.
 * - No call outlives its deadline because a node hangs.
 * - A holder learns of a loss at the latest when its validity ends.
 *
 * Not guaranteed: that code stops when its lease ends. No lease can stop a paused process; a store that refuses old
 * fencing tokens can refuse its writes.
 */

import { type RedlockEventName, type RedlockEvents, traces } from "../api/events.ts";
import {
  type AcquireOptions,
  type RedlockOptions,
  type ResolvedAcquireOptions,
  type ResolvedOptions,
  type ResolvedUsingOptions,
  resolveAcquireOptions,
  resolveOptions,
  resolveTryOptions,
  resolveUsingOptions,
  type UsingOptions,
} from "../api/options.ts";
import { systemClock } from "../kit/clock.ts";
import { outerCall } from "../kit/outer-call.ts";
import { systemRandom } from "../kit/random.ts";
import { callback } from "../kit/schema/check.ts";
import { acquire, tryAcquire } from "../lock/acquire.ts";
import { Engine, MAX_NODES } from "../lock/engine.ts";
import { type Lock, PROTOCOL } from "../lock/lock.ts";
import { Section } from "../lock/section.ts";
import { isClusterSource, type NodeSource, sourcesOf, toNodes } from "../nodes/connect.ts";
import { check, type Finding } from "../operators/check.ts";
import { forceRelease } from "../operators/force-release.ts";
import { type Inspection, inspect } from "../operators/inspect.ts";
import { resolveResource, resolveResources } from "../rules/resources.ts";
import { RedlockProtocol } from "./redlock-protocol.ts";

const ROUTINE = callback();

export class Redlock implements AsyncDisposable {
  readonly #engine: Engine;
  /** Options of calls without options. */
  readonly #defaultOptions: { readonly acquire: ResolvedAcquireOptions; readonly using: ResolvedUsingOptions };

  /**
   * Connects to `nodes`: independent masters, a single node, or a Cluster. Use an odd number of masters, and the same
   * masters in every client.
   *
   * Each node is an ioredis or node-redis client, a `redis://` URL, ioredis options, or a `LockNode`. The connection of
   * a client is duplicated; the client itself is neither used nor closed.
   * @throws TypeError or RangeError for invalid options.
   */
  constructor(nodes: NodeSource | readonly NodeSource[], options: RedlockOptions = {}) {
    const sources = sourcesOf(nodes);
    if (sources.length === 0) throw new RangeError("nodes must name at least one node, got []");
    if (sources.length > MAX_NODES) throw new RangeError(`nodes must be at most ${MAX_NODES}, got ${sources.length}`);
    const isCluster = sources.some(isClusterSource);
    const {
      options: resolved,
      clock = systemClock,
      random = systemRandom,
    } = resolveOptions(options, { count: sources.length, isCluster });
    const connected = toNodes(sources, { nodeTimeoutMs: resolved.nodeTimeout, clock });
    if (new Set(connected.map((node) => node.keyPrefix ?? "")).size > 1) {
      for (const node of connected) void node.close();
      throw new RangeError("nodes must have the same keyPrefix");
    }
    this.#engine = new Engine(connected, resolved, clock, random);
    this.#defaultOptions = {
      acquire: resolveAcquireOptions(undefined, resolved),
      using: resolveUsingOptions(undefined, resolved),
    };
    Object.defineProperty(this, PROTOCOL, { value: new RedlockProtocol(this.#engine) });
  }

  /** Number of nodes that vote. */
  get nodeCount(): number {
    return this.#engine.nodes.length;
  }

  /** Number of votes that a lock needs: `floor(nodeCount / 2) + 1`. */
  get quorum(): number {
    return this.#engine.quorum;
  }

  /** The options with their defaults, frozen. */
  get options(): ResolvedOptions {
    return this.#engine.options;
  }

  /**
   * Acquires a lock on one resource, or on several resources together: all of them or none.
   *
   * While a resource is held, the call waits up to `timeout`. Waiters are served first come, first served. Release the
   * lock, or let `await using` release it.
   *
   * Rejects with `LockHeldError` if the lock was not free in time, with `QuorumUnreachableError` if too few nodes
   * answered, and with `signal.reason` if the caller cancels.
   */
  acquire(resources: string | readonly string[], options?: AcquireOptions): Promise<Lock> {
    try {
      const resolved =
        options === undefined ? this.#defaultOptions.acquire : resolveAcquireOptions(options, this.#engine.options);
      return acquire(this.#engine, resolveResources(resources), resolved);
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /**
   * Makes one attempt without waiting. Resolves with the lock, or with null if another caller holds it. Rejects with
   * `QuorumUnreachableError` if too few nodes answered.
   */
  async tryAcquire(
    resources: string | readonly string[],
    options?: Omit<AcquireOptions, "timeout">,
  ): Promise<Lock | null> {
    const names = resolveResources(resources);
    return await tryAcquire(this.#engine, names, resolveTryOptions(options, this.#engine.options));
  }

  /**
   * Acquires the lock, calls `routine` with the lock, and always releases the lock.
   *
   * The lock is extended while the routine runs. If the lock is lost, `lock.signal` aborts. The call settles like the
   * routine: a failed release never replaces the routine's result or error.
   *
   * Inside a `using` that holds one of the resources, the call would wait for itself. It rejects with `ReentrancyError`
   * instead, or joins the outer lock (see `UsingOptions.reentrancy`).
   */
  async using<Result>(
    resources: string | readonly string[],
    routine: (lock: Lock) => Result | PromiseLike<Result>,
    options?: UsingOptions,
  ): Promise<Result> {
    const names = resolveResources(resources);
    ROUTINE.of("routine", routine);
    const resolved =
      options === undefined ? this.#defaultOptions.using : resolveUsingOptions(options, this.#engine.options);
    const use = resolved.reentrancy === "wait" ? useLock<Result> : useSection<Result>;
    return await (traces.using.isHeard
      ? traces.using.run({ resources: names }, use.bind(undefined, this.#engine, names, routine, resolved))
      : use(this.#engine, names, routine, resolved));
  }

  /**
   * Reports the state of a resource on each node, and the combined result. Changes nothing, and never rejects because
   * of a node.
   */
  async inspect(resource: string): Promise<Inspection> {
    const name = resolveResource(resource);
    this.#engine.assertOpen([name]);
    return await inspect(this.#engine, name);
  }

  /**
   * Takes the lock from its holder. For operators. Resolves with true if a quorum of nodes has taken the lock.
   *
   * The holder learns of the loss by its next extension, at the latest when its validity ends; until then it may
   * continue to work. The next grant has a greater fencing token. A key without expiry is not a lock and stays
   * unchanged.
   */
  async forceRelease(resource: string): Promise<boolean> {
    const name = resolveResource(resource);
    this.#engine.assertOpen([name]);
    const holder = this.#engine.lines.holderOf(name);
    const isTaken = await forceRelease(this.#engine, name);
    if (isTaken) holder?.lose("forced");
    return isTaken;
  }

  /**
   * Looks for mistakes in the deployment. An empty list means that none were found. Never rejects because of a node. A
   * node that has never been connected gets 3.5 s for its first connection, regardless of `nodeTimeout`.
   */
  async check(): Promise<readonly Finding[]> {
    this.#engine.assertOpen([]);
    return await check(this.#engine);
  }

  /**
   * Calls `listener` for each event. Returns a function that removes the listener. A listener that throws breaks
   * nothing.
   */
  on<Name extends RedlockEventName>(name: Name, listener: (message: RedlockEvents[Name]) => void): () => void {
    return this.#engine.events.on(name, listener);
  }

  /**
   * Releases every lock that is still held, and closes the connections that this `Redlock` opened. Locks that a sibling
   * package has left to expire are not released (see `Lease.leave`).
   *
   * Before a lock is released, its `signal` aborts with a `LockLostError` whose `reason` is `closed`. Every wait ends
   * with `RedlockClosedError`. Idempotent.
   */
  close(): Promise<void> {
    return this.#engine.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }
}

async function useLock<Result>(
  engine: Engine,
  names: readonly string[],
  routine: (lock: Lock) => Result | PromiseLike<Result>,
  resolved: ResolvedUsingOptions,
): Promise<Result> {
  const lock = await acquire(engine, names, resolved);
  try {
    return await routine(lock);
  } finally {
    await lock.release();
  }
}

async function useSection<Result>(
  engine: Engine,
  names: readonly string[],
  routine: (lock: Lock) => Result | PromiseLike<Result>,
  resolved: ResolvedUsingOptions,
): Promise<Result> {
  const outer = outerCall();
  const held = Section.inTheWay(outer, engine, names);
  if (held !== undefined) engine.assertOpen(names, resolved.signal);
  const section =
    held === undefined
      ? new Section({ engine, granted: await acquire(engine, names, resolved), outer })
      : await held.join(names, outer, resolved);
  return await section.during(routine);
}
