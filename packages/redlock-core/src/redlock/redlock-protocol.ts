/**
 * `RedlockProtocol` offers members of a `Redlock` that the sibling packages need and users do not: decisions by
 * majority next to a lock, the lock's line, and the end of a lock by a script. Semantic versioning does not cover it.
 */

import { RedlockClosedError } from "../api/errors.ts";
import type { RedlockEvents } from "../api/events.ts";
import { type PlacedOptions, resolvePlacedOptions, resolvePlacedTry, resolveTurnOptions } from "../api/options.ts";
import type { Clock } from "../kit/clock.ts";
import { CallDeadline, Deadlines } from "../kit/deadlines.ts";
import type { Emitter } from "../kit/emitter.ts";
import { outerCall } from "../kit/outer-call.ts";
import { callQuietly } from "../kit/quietly.ts";
import type { Random } from "../kit/random.ts";
import { callback, number, text, texts } from "../kit/schema/check.ts";
import { acquire, acquireUntraced, tryAcquire } from "../lock/acquire.ts";
import { type EmbeddedGrant, EmbeddedLocks, grantOf } from "../lock/embedded.ts";
import type { Engine, RefusalFacts } from "../lock/engine.ts";
import { HeldLease, type HoldOptions } from "../lock/lease.ts";
import type { Lock } from "../lock/lock.ts";
import { LockSteps } from "../lock/lock-steps.ts";
import { type LeaseScripts, takeBack } from "../lock/script-lease.ts";
import { type Lent, Section } from "../lock/section.ts";
import { GRACE_MS } from "../lock/step-answers.ts";
import type { LockNode } from "../nodes/node.ts";
import { clientNames } from "../rounds/client-name.ts";
import {
  type NodeReply,
  resolveRun,
  runEverywhere,
  type ScriptCall,
  type ScriptInput,
  type ScriptOptions,
  untilNodes,
} from "../rounds/run.ts";
import { NODE_KEYS } from "../rules/keys.ts";
import { resolveResource, resolveResources } from "../rules/resources.ts";
import type { NodeScript } from "../rules/script.ts";
import { Subscription } from "../waiting/subscription.ts";
import { waitForTurn } from "../waiting/waiter.ts";
import { LockKeys } from "./lock-keys.ts";

const CHANNEL = text({ min: 1 });
const TEXT = text();
const LISTENER = callback();
const WALL_MS = number({ min: 0, max: Number.MAX_SAFE_INTEGER, unit: "ms" });

/** A grant by a sibling's script, on the only node or on a quorum. */
export interface ScriptGrant extends EmbeddedGrant {
  readonly ttlMs: number;
}

/** Facts for a script that keeps leases of its own on the nodes. */
export interface NodeFacts {
  /** Whether PUBLISH inside a script counts all subscribers. */
  readonly countsReceivers: boolean;
  /**
   * How long the node grants nothing after it may have forgotten leases. 0 if the node is trusted to forget nothing.
   */
  readonly quarantineMs: number;
  /** Hash whose `run_id` and `since` identify the owner of the data (see quarantine.lua.ts). */
  readonly hash: string;
}

export class RedlockProtocol {
  readonly keys: LockKeys;
  readonly #engine: Engine;
  readonly #graces: Deadlines;

  constructor(engine: Engine) {
    this.keys = new LockKeys(engine.targets);
    this.#engine = engine;
    this.#graces = new Deadlines(engine.clock, GRACE_MS);
  }

  /** The nodes, in the order of the clients passed to the `Redlock`. */
  get nodes(): readonly LockNode[] {
    return this.#engine.nodes;
  }

  /** Clock of the `Redlock`, also used by siblings. */
  get clock(): Clock {
    return this.#engine.clock;
  }

  /** Randomness of the `Redlock`, also used by siblings. */
  get random(): Random {
    return this.#engine.random;
  }

  /** Signal that aborts when `close()` is called. */
  get closed(): AbortSignal {
    return this.#engine.closed;
  }

  /**
   * Lets scripts on the node of the locks acquire and release locks in their own atomic steps. Undefined if a lock
   * needs more than one node's word: with several nodes, in a Cluster, with `quarantine`.
   */
  get embedded(): EmbeddedLocks | undefined {
    const engine = this.#engine;
    if (!engine.isEmbeddable) return undefined;
    const options = { autoExtend: true, maxHold: engine.options.maxHold };
    return new EmbeddedLocks(engine, (grant) => {
      engine.assertOpen(grant.target.resources);
      // Waiters for these locks wait on the node, where the next script finds them, and not in a local line.
      return new HeldLease(engine, grant, { options, lines: [] }).lock;
    });
  }

  /**
   * Acquires a lock like `Redlock.acquire`, with a note. Each node stores this text in the step in which it grants the
   * lock, in the side key `note`, for the duration of the first lease. scripts/acquire.lua.ts describes how to read it.
   */
  async acquire(resource: string, options: PlacedOptions, note: string): Promise<Lock> {
    const resolved = resolvePlacedOptions(options, this.#engine.options);
    return await acquireUntraced(this.#engine, [resolveResource(resource)], {
      ...resolved,
      note: TEXT.of("note", note),
    });
  }

  /** Acquires a lock like `Redlock.acquire`, from the place in line given in `options`. */
  async acquireAt(resources: readonly string[], options: PlacedOptions): Promise<Lock> {
    const resolved = resolvePlacedOptions(options, this.#engine.options);
    return await acquire(this.#engine, resolveResources(resources), resolved);
  }

  /** Makes one attempt like `Redlock.tryAcquire`, from the place in line given in `options`. */
  async tryAcquireAt(resources: readonly string[], options: Omit<PlacedOptions, "timeout">): Promise<Lock | null> {
    const resolved = resolvePlacedTry(options, this.#engine.options);
    return await tryAcquire(this.#engine, resolveResources(resources), resolved);
  }

  /**
   * Calls `routine` under a lock that the caller continues to hold. `using` inside the routine finds this lock, and
   * joins it or is refused. The call settles like the routine, after the last joined call has ended.
   */
  async inside<Result>(granted: Lock, lent: Lent, routine: () => Result | PromiseLike<Result>): Promise<Result> {
    const section = new Section({ engine: this.#engine, granted, outer: outerCall(), lent });
    return await section.during(routine);
  }

  /**
   * Returns the steps of a lock on `resources`, for a sibling that keeps the lease itself. Names may repeat.
   * `driftFactor` is not checked.
   */
  stepsOf(resources: string | readonly string[], driftFactor: number): LockSteps {
    return new LockSteps(this.#engine, this.#graces, resolveResources(resources, true), driftFactor);
  }

  /**
   * Resolves when `isDone` returns true, which is asked after each change of a node's state. Also resolves after
   * `timeoutMs`, when `over` resolves, and when the `Redlock` is closed.
   */
  async untilNodes(isDone: () => boolean, timeoutMs: number, over?: Promise<unknown>): Promise<void> {
    const { nodes, clock, closed } = this.#engine;
    const deadline = new CallDeadline(clock, { timeoutMs, closed });
    await untilNodes(nodes, isDone, deadline.until(over ?? new Promise(() => undefined)));
    deadline.dispose();
  }

  /** Events of the `Redlock`, for grants by siblings on its node. */
  get events(): Emitter<RedlockEvents> {
    return this.#engine.events;
  }

  /** Returns a new random value for a lease. */
  newToken(): string {
    return this.#engine.newToken();
  }

  get node(): NodeFacts {
    const { countsReceivers, quarantineMs } = this.#engine;
    return { countsReceivers, quarantineMs, hash: NODE_KEYS.hash };
  }

  /**
   * Calls `work` as a call of the `Redlock`: it is refused if the `Redlock` is closed, and `close()` waits for its end.
   */
  async call<Result>(resource: string, signal: AbortSignal | undefined, work: () => Promise<Result>): Promise<Result> {
    const { calls } = this.#engine;
    this.#engine.assertOpen([resource], signal);
    calls.begin();
    try {
      return await work();
    } finally {
      calls.end();
    }
  }

  /**
   * Sends every node a request that takes back a lease of an earlier request. The request is sent even while the
   * `Redlock` is being closed, and `close()` waits for the answers, at most for `nodeTimeout`. Without an answer, the
   * request is repeated for `leaseMs` as long as the `Redlock` is open, so it may arrive twice. At most 10,000 such
   * requests are kept per node; the oldest are dropped.
   */
  async takeBack(call: ScriptCall, leaseMs: number): Promise<void> {
    const untilMs = this.#engine.clock.monotonicMs() + leaseMs;
    await Promise.all(takeBack(this.#engine, call, untilMs));
  }

  /**
   * Creates a lock for a grant by a sibling's script, on the only node or on a quorum. The lock is renewed, lost and
   * released like any other lock, but by `scripts`.
   */
  hold(grant: ScriptGrant, options: HoldOptions, scripts: LeaseScripts): Lock {
    const engine = this.#engine;
    return new HeldLease(engine, grantOf(engine, grant, grant.ttlMs), { options, lines: [], scripts }).lock;
  }

  /**
   * Waits in the line for a lock without acquiring it, and resolves when the caller has its turn. The lock is then
   * reserved for the caller's `place` for about a second, for `acquireAt(resources, { place })` in this or any other
   * process.
   *
   * Also resolves when the holder's lease must have ended. If the nodes do not know this time, the call resolves after
   * 100 ms if another library holds the lock, and after a second if a key has no expiry or too few nodes answer. Call
   * again with the same `place` to keep the place.
   *
   * Rejects with `signal.reason` if the caller cancels, and with `RedlockClosedError` if the `Redlock` is closed.
   */
  async waitForTurn(resource: string, options: Pick<PlacedOptions, "place" | "signal"> = {}): Promise<void> {
    const engine = this.#engine;
    const { hints, closed, calls } = engine;
    const names = [resolveResource(resource)];
    const { signal, place } = resolveTurnOptions(options);
    this.#engine.assertOpen(names, signal);
    const deadline = new CallDeadline(engine.clock, { timeoutMs: Number.POSITIVE_INFINITY, signal, closed });
    try {
      calls.begin();
      const outcome = await waitForTurn(engine, hints, { resource, place, deadline });
      if (outcome === "turn") return;
    } finally {
      calls.end();
      deadline.dispose();
    }
    signal?.throwIfAborted();
    throw new RedlockClosedError(names);
  }

  /**
   * Returns the place in line for a request that was made when this process's wall clock showed `wallMs`. The place is
   * a time of the nodes' clocks, as far as refusals have shown the difference to this clock.
   */
  placeAt(wallMs: number): number {
    return this.#engine.fencingClock.place(WALL_MS.of("wallMs", wallMs));
  }

  /**
   * Returns a fencing token to propose to several nodes, for grants that they count under `key`. The token is above
   * every token that this process has proposed, or has seen for this key.
   */
  ballot(key: string, wallMs: number): number {
    return this.#engine.fencingClock.ballot([key], wallMs);
  }

  /** Learns from the refusals of several nodes, to improve the next ballot and `placeAt`. */
  learn(key: string, refused: RefusalFacts): void {
    this.#engine.learn([key], refused);
  }

  /**
   * Whether the only node is a Redis Cluster. A script then runs on the master of its keys, or on any master if it has
   * none.
   */
  get isCluster(): boolean {
    return this.#engine.isCluster;
  }

  /**
   * Returns the names of clients by client ID: the 12 digits after the mark in their tokens. A client without the
   * option `name` is left out.
   */
  async namesOf(clients: readonly string[]): Promise<ReadonlyMap<string, string>> {
    const digits = texts.of("clients", clients);
    this.#engine.assertOpen([]);
    return await clientNames(this.#engine, digits);
  }

  /**
   * Runs a script on every node in parallel, for majority decisions next to the lock, fenced by its token. Resolves
   * when all nodes have answered or their time is over. A node's failure is data in its reply.
   */
  async run(script: NodeScript, request: ScriptInput, options: ScriptOptions = {}): Promise<readonly NodeReply[]> {
    const engine = this.#engine;
    const resolved = resolveRun(script, request, options, engine.options.nodeTimeout);
    this.#engine.assertOpen([]);
    return await runEverywhere(engine, script, resolved);
  }

  /**
   * Calls `listener` for each message on `channel`, on each node that supports channels. Resolves with a function that
   * ends the subscription, when a quorum of nodes has confirmed, or after `nodeTimeout`.
   *
   * A node that refuses is asked again. Messages may be lost, and arrive once per node, so use them as hints only. A
   * listener that throws breaks nothing.
   */
  async subscribe(channel: string, listener: (message: string, node: string) => void): Promise<() => void> {
    const engine = this.#engine;
    CHANNEL.of("channel", channel);
    LISTENER.of("listener", listener);
    this.#engine.assertOpen([]);
    const subscription = new Subscription(engine, engine.closed, channel, {
      onMessage: (message, node) => callQuietly(() => listener(message, engine.nodes[node]?.name ?? "")),
    });
    await subscription.opened;
    return () => subscription.stop();
  }
}
