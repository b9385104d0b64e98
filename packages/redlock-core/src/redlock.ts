/**
 * `Redlock`: locks on one or several independent Redis nodes.
 *
 * Guaranteed, while clocks advance at nearly the same rate (`driftFactor`) and no node forgets a lock unnoticed: at most one
 * holder of a resource at a time; fencing tokens that increase from grant to grant; no call that outlives its deadline because
 * a node hangs; a holder that learns of a loss at the latest when its validity ends. Not guaranteed: that code which
 * outlives its lease stops by itself. No lease can stop a paused process; a store that refuses old fencing tokens can.
 */
import { type AcquisitionContext, startAcquisition } from "./acquire.ts";
import type { Grant } from "./attempt.ts";
import { CLAMP_US } from "./ballot.ts";
import { check, type Finding } from "./check.ts";
import { type Clock, systemClock } from "./clock.ts";
import { EmbeddedLocks } from "./embedded.ts";
import { Engine, GRANT_TTL_MS } from "./engine.ts";
import { LockHeldError, RedlockClosedError } from "./errors.ts";
import type { RedlockEventName, RedlockEvents } from "./events.ts";
import { Hints } from "./hints.ts";
import { Holding } from "./holding.ts";
import { type Inspection, inspect } from "./inspect.ts";
import { lockKeyOf, sideKeyOf } from "./keys.ts";
import { Limit } from "./limit.ts";
import { type LocalQueue, LocalQueues } from "./local-queue.ts";
import type { Lock } from "./lock.ts";
import { countsReceivers, type NodeScript } from "./node.ts";
import { isClusterSource, type NodeSource, sourcesOf, toNodes } from "./nodes/connect.ts";
import {
  type AcquireOptions,
  type RedlockOptions,
  type ResolvedAcquireOptions,
  type ResolvedOptions,
  resolveAcquireOptions,
  resolveOptions,
  resolveResource,
  resolveResources,
  resolveTryOptions,
  resolveTurnOptions,
} from "./options.ts";
import { systemRandom } from "./random.ts";
import { Renewal } from "./renewal.ts";
import { type NodeReply, type RunInput, type RunOptions, resolveRun, runEverywhere } from "./run.ts";
import { callback, number, text } from "./schema/check.ts";
import { forceReleaseScript } from "./scripts/force-release.lua.ts";
import { subscribeEverywhere } from "./subscription.ts";
import { untilTurn } from "./turn.ts";

/** Above this a quorum is slower than it is safe; no deployment that we know of has more than nine. */
const MAX_NODES = 31;

const CHANNEL = text({ min: 1 });
const NAME = text({ min: 1 });
const ROUTINE = callback();
const LISTENER = callback();
const WALL_MS = number({ min: 0, max: Number.MAX_SAFE_INTEGER, unit: "ms" });

export class Redlock implements AsyncDisposable {
  readonly #engine: Engine;
  readonly #hints: Hints;
  readonly #queues: LocalQueues = new LocalQueues();
  readonly #renewal: Renewal;
  readonly #closing: AbortController = new AbortController();
  #openCalls = 0;
  #onLastCall: () => void = () => undefined;
  readonly #context: AcquisitionContext;
  readonly #stopListening: readonly (() => void)[];
  #closed: Promise<void> | undefined;

  /**
   * `nodes`: independent masters, an odd number of them, all the same for every client; or one node; or one Cluster. Each is an
   * ioredis or node-redis client (its connection is duplicated, the client itself is neither used nor closed), a
   * `redis://` URL, ioredis options, or a `LockNode`. Throws `TypeError` and `RangeError` for bad options.
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
    this.#hints = new Hints(this.#engine);
    this.#renewal = new Renewal(clock);
    this.#context = {
      engine: this.#engine,
      hints: this.#hints,
      queues: this.#queues,
      closed: this.#closing.signal,
      hold: (grant, resolved, queue) => {
        const queues = queue === undefined ? grant.target.resources.map((name) => this.#queues.of(name)) : [queue];
        return this.#hold(grant, resolved, queues);
      },
    };
    this.#stopListening = connected.map((node) =>
      node.onStateChange(() => {
        this.#engine.events.tell("node", () => ({
          node: node.name,
          state: node.state,
          ...(node.lastError === undefined ? {} : { error: node.lastError.message }),
        }));
      }),
    );
  }

  /** How many nodes vote. */
  get nodeCount(): number {
    return this.#engine.nodes.length;
  }

  /** How many votes make a lock: `floor(nodeCount / 2) + 1`. */
  get quorum(): number {
    return this.#engine.quorum;
  }

  /** The options in force, complete and frozen. */
  get options(): ResolvedOptions {
    return this.#engine.options;
  }

  /** The clock in use; siblings of this package take their time from it. */
  get clock(): Clock {
    return this.#engine.clock;
  }

  /** Aborts when `close()` is called. */
  get closed(): AbortSignal {
    return this.#closing.signal;
  }

  /**
   * Acquires a lock on one resource, or on all of several or none. Waits up to `timeout` while it is held, first come first
   * served. Rejects with `LockHeldError` when it was not free in time, `QuorumUnreachableError` when too few nodes
   * answered, and with `signal.reason` when the caller cancels. Release it, or let it go with `await using`.
   */
  acquire(resources: string | readonly string[], options?: AcquireOptions): Promise<Lock> {
    try {
      return this.#take(resolveResources(resources), this.#resolve(options, this.#engine.options.autoExtend));
    } catch (error) {
      return Promise.reject(error);
    }
  }

  /** One attempt, no waiting: the lock, or null when somebody else has it. Rejects when too few nodes answered. */
  async tryAcquire(
    resources: string | readonly string[],
    options?: Omit<AcquireOptions, "timeout">,
  ): Promise<Lock | null> {
    const names = resolveResources(resources);
    const resolved = resolveTryOptions(options, this.#engine.options);
    try {
      return await this.#take(names, resolved);
    } catch (error) {
      if (error instanceof LockHeldError && error !== resolved.signal?.reason) return null;
      throw error;
    }
  }

  /**
   * Acquires, calls `routine` with the lock, and releases, whatever happens. The lock is extended while the routine runs; if it is
   * lost, `lock.signal` aborts. Settles as the routine does: a failed release never replaces its result or its error.
   */
  async using<Result>(
    resources: string | readonly string[],
    routine: (lock: Lock) => Result | PromiseLike<Result>,
    options?: AcquireOptions,
  ): Promise<Result> {
    const names = resolveResources(resources);
    ROUTINE.of("routine", routine);
    const lock = await this.#take(names, this.#resolve(options, true));
    try {
      return await routine(lock);
    } finally {
      await lock.release();
    }
  }

  /**
   * Stands in the queue for a lock without acquiring it, and resolves when it is this caller's turn: the lock is then reserved for its
   * `order` for about a second, for `acquire(resource, { order })` in this or any other process. Resolves also when the holder's lease
   * must have ended, and where nodes cannot tell when that is: after 100 ms if another library has the lock, after a second if a key
   * has no expiry or too few nodes answer. Ask again with the same `order` to keep the place. Rejects with `signal.reason` when the
   * caller cancels, with `RedlockClosedError` when this `Redlock` is closed.
   */
  async untilTurn(resource: string, options: Pick<AcquireOptions, "order" | "signal"> = {}): Promise<void> {
    const names = [resolveResource(resource)];
    const { signal, order } = resolveTurnOptions(options);
    this.#assertOpen(names, signal);
    const limit = new Limit(this.#engine.clock, {
      startMs: this.#engine.clock.monotonicMs(),
      timeoutMs: Number.POSITIVE_INFINITY,
      signal,
      closed: this.#closing.signal,
    });
    try {
      this.#openCalls += 1;
      const outcome = await untilTurn(this.#engine, this.#hints, { resource, order, limit });
      if (outcome === "turn") return;
    } finally {
      this.#callEnded();
      limit.dispose();
    }
    signal?.throwIfAborted();
    throw new RedlockClosedError(names);
  }

  /** What each node says about a resource, and what follows for all together. Changes nothing. Never rejects for a node. */
  async inspect(resource: string): Promise<Inspection> {
    const name = resolveResource(resource);
    this.#assertOpen([name]);
    return await inspect(this.#engine, name);
  }

  /**
   * Takes the lock away from whoever holds it, for operators. Its holder learns of it by its next extension, at the latest when
   * its validity ends; until then it may still work. The next grant has a greater fencing token. Resolves true if a
   * quorum of nodes took a lock away. A key without expiry is no lock, and stays.
   */
  async forceRelease(resource: string): Promise<boolean> {
    const name = resolveResource(resource);
    this.#assertOpen([name]);
    const { options, nodes } = this.#engine;
    const holder = this.#queues.holderOf(name);
    const target = this.#engine.targetOf([name]);
    const { key, register } = this.#engine.fencingPlaceOf(target);
    const replies = await runEverywhere(this.#engine, forceReleaseScript, {
      keys: [key, ...target.keys],
      args: [
        // The holder learns of it by its next extension, or has lost it by then.
        String(2 * options.maxTtl),
        String(GRANT_TTL_MS),
        nodes.every(countsReceivers) ? "1" : "0",
        // A node that numbers the grants itself is ahead of its own time only by what it stored.
        String(this.#engine.isAlone ? 0 : CLAMP_US),
        register,
      ],
      timeoutMs: options.nodeTimeout,
    });
    const takenFrom = replies.filter((reply) => reply.ok && reply.value === 1).length;
    const isTaken = takenFrom >= this.#engine.quorum;
    if (isTaken) holder?.lose("forced");
    return isTaken;
  }

  /** Looks for what is wrong with the deployment; an empty list is good news. Never rejects for a node. */
  async check(): Promise<readonly Finding[]> {
    this.#assertOpen([]);
    return await check(this.#engine);
  }

  /**
   * For packages beside this one whose scripts run on the very node that the locks are on: lets them take and release locks in their
   * own atomic steps. Undefined where a lock needs more than one node's word: with several nodes, in a Cluster, with `quarantine`.
   */
  get embedded(): EmbeddedLocks | undefined {
    const { isEmbeddable, options } = this.#engine;
    if (!isEmbeddable) return undefined;
    return new EmbeddedLocks(this.#engine, (grant) => {
      this.#assertOpen(grant.target.resources);
      // In no local queue: whoever waits here waits at the node, where the next script sees it.
      return this.#hold(grant, { autoExtend: true, maxHold: options.maxHold }, []);
    });
  }

  /** Calls `listener` for each event; returns a function that stops that. A listener that throws breaks nothing. */
  on<Name extends RedlockEventName>(name: Name, listener: (message: RedlockEvents[Name]) => void): () => void {
    return this.#engine.events.on(name, listener);
  }

  /**
   * The `order` of somebody who asked when this process's wall clock showed `wallMs`: the place in line by the clocks of the nodes, as
   * far as refusals have told how far this one is off.
   */
  orderAt(wallMs: number): number {
    return this.#engine.sightings.order(WALL_MS.of("wallMs", wallMs));
  }

  /** Throws the `TypeError` or `RangeError` that a lock on `resource` would be refused with. */
  checkResource(resource: string): void {
    this.#engine.targetOf([resolveResource(resource)]);
  }

  /** The lock's own key on each node. */
  lockKey(resource: string): string {
    return lockKeyOf(this.#engine.keyPrefix, resolveResource(resource));
  }

  /** A key beside the lock's, in the same hash slot, for data that belongs to it. `fence` and `waiters` are taken. */
  sideKey(resource: string, name: string): string {
    return sideKeyOf(this.lockKey(resource), NAME.of("name", name));
  }

  /**
   * Runs a script on every node in parallel. Resolves when all have answered or their time is over; a node's failure is data in
   * its reply. For majority decisions beside the lock, fenced by its token.
   */
  async run(script: NodeScript, request: RunInput, options: RunOptions = {}): Promise<readonly NodeReply[]> {
    const resolved = resolveRun(script, request, options, this.#engine.options.nodeTimeout);
    this.#assertOpen([]);
    return await runEverywhere(this.#engine, script, resolved);
  }

  /**
   * Calls `listener` for each message on `channel` on each node that can; resolves, with a function that stops it, when a quorum of
   * nodes has confirmed or after `nodeTimeout`. A node that refuses is asked again. Messages may be lost and come once per node: use
   * them as hints. A listener that throws breaks nothing.
   */
  async subscribe(channel: string, listener: (message: string, node: string) => void): Promise<() => void> {
    CHANNEL.of("channel", channel);
    LISTENER.of("listener", listener);
    this.#assertOpen([]);
    return await subscribeEverywhere(this.#engine, this.#closing.signal, channel, listener);
  }

  /**
   * Releases every lock that is still held (except one that was left, see `Lock.leave`), and aborts its `signal` before, with a
   * `LockLostError` whose `reason` is `closed`; ends every wait with `RedlockClosedError`, and closes the own connections.
   * Idempotent.
   */
  close(): Promise<void> {
    this.#closed ??= this.#close();
    return this.#closed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    this.#closing.abort();
    const held = this.#renewal.holdings.filter((holding) => !holding.isLeft);
    await Promise.all(held.map((holding) => holding.close()));
    await this.#untilCallsEnd();
    await this.#untilAnswered();
    this.#renewal.close();
    this.#hints.close();
    for (const stop of this.#stopListening) stop();
    for (const batcher of this.#engine.batchers) batcher.close();
    await Promise.all(this.#engine.nodes.map((node) => node.close()));
  }

  /** The last requests take keys and waiters back: closing the connections must not overtake them. */
  async #untilAnswered(): Promise<void> {
    const { batchers, clock, options } = this.#engine;
    const answered = (): Promise<unknown> => Promise.all(batchers.map((batcher) => batcher.untilAnswered()));
    await new Promise<void>((resolve) => {
      const cancel = clock.schedule(options.nodeTimeout, resolve, { keepAlive: true });
      void answered()
        // An answer that nobody waits for any more may lead to a release, which is sent at the end of the turn.
        .then(() => new Promise<void>((turnEnded) => clock.defer(turnEnded)))
        .then(answered)
        .then(() => {
          cancel();
          resolve();
        });
    });
  }

  /** One promise: this is what a lock costs the client. */
  #take(names: readonly string[], resolved: ResolvedAcquireOptions): Promise<Lock> {
    return new Promise((resolve, reject) => {
      this.#assertOpen(names, resolved.signal);
      const onLock = (lock: Lock): void => {
        if (this.#closed === undefined) {
          this.#callEnded();
          resolve(lock);
          return;
        }
        void lock.release().then(() => onFailure(new RedlockClosedError(names)));
      };
      const onFailure = (reason: unknown): void => {
        this.#callEnded();
        reject(reason);
      };
      startAcquisition(this.#context, names, resolved, onLock, onFailure);
      this.#openCalls += 1;
    });
  }

  #resolve(options: AcquireOptions | undefined, autoExtend: boolean): ResolvedAcquireOptions {
    return resolveAcquireOptions(options, this.#engine.options, autoExtend);
  }

  #callEnded(): void {
    this.#openCalls -= 1;
    if (this.#openCalls === 0) this.#onLastCall();
  }

  /** `close()` waits for these calls to end: they still take back what they asked for. */
  #untilCallsEnd(): Promise<void> {
    return new Promise((resolve) => {
      this.#onLastCall = resolve;
      if (this.#openCalls === 0) resolve();
    });
  }

  #hold(
    grant: Grant,
    options: { readonly autoExtend: boolean; readonly maxHold: number },
    queues: readonly LocalQueue[],
  ): Lock {
    const holding = new Holding(this.#engine, grant, { options, queues, renewal: this.#renewal });
    return holding.lock;
  }

  #assertOpen(resources: readonly string[], signal?: AbortSignal): void {
    if (this.#closed !== undefined) throw new RedlockClosedError(resources);
    signal?.throwIfAborted();
  }
}
