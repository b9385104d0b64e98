/**
 * `RedlockProtocol` is what the sibling packages may do with a `Redlock`, and users need not know. It offers
 * decisions by majority beside a lock, the lock's line, and its end by a script. It is outside the promises of a
 * version number.
 */

import { RedlockClosedError } from "../api/errors.ts";
import type { RedlockEvents } from "../api/events.ts";
import { type PlacedOptions, resolvePlacedOptions, resolvePlacedTry, resolveTurnOptions } from "../api/options.ts";
import type { Clock } from "../kit/clock.ts";
import { callQuietly, type Emitter } from "../kit/emitter.ts";
import { outerCall } from "../kit/outer-call.ts";
import type { Random } from "../kit/random.ts";
import { callback, integer, number, text, textLike, texts } from "../kit/schema/check.ts";
import { acquire, acquireUntraced, tryAcquire } from "../lock/acquire.ts";
import { type EmbeddedGrant, EmbeddedLocks, grantOf } from "../lock/embedded.ts";
import { HeldLease, type HoldOptions } from "../lock/lease.ts";
import type { Lock } from "../lock/lock.ts";
import { LockSteps } from "../lock/lock-steps.ts";
import { type LeaseScripts, TakenBack } from "../lock/script-lease.ts";
import { type Lent, Section } from "../lock/section.ts";
import type { Session } from "../lock/session.ts";
import type { LockNode } from "../nodes/node.ts";
import { clientNames } from "../rounds/client-name.ts";
import type { RefusalFacts } from "../rounds/engine.ts";
import {
  type NodeReply,
  resolveRun,
  runEverywhere,
  type ScriptCall,
  type ScriptInput,
  type ScriptOptions,
} from "../rounds/run.ts";
import {
  checkLockKey,
  lockKeyOf,
  NODE_KEYS,
  nodeKeysOf,
  RESERVED_ENDINGS,
  SLOT_COUNT,
  sideKeyOf,
} from "../rules/keys.ts";
import { resolveResource, resolveResources } from "../rules/resources.ts";
import type { NodeScript } from "../rules/script.ts";
import { CallDeadline } from "../waiting/call-deadline.ts";
import { Subscription } from "../waiting/subscription.ts";
import { waitForTurn } from "../waiting/waiter.ts";

const CHANNEL = text({ min: 1 });
const SIDE_KEY_NAME = textLike("the name of a side key", (name) =>
  RESERVED_ENDINGS.some((ending) => `:${name}`.endsWith(ending)),
);
const TEXT = text();
const SLOT = integer({ min: 0, max: SLOT_COUNT - 1, unit: "" });
const LISTENER = callback();
const WALL_MS = number({ min: 0, max: Number.MAX_SAFE_INTEGER, unit: "ms" });

/** What a sibling's script granted, on the one node or on a quorum. */
export interface ScriptGrant extends EmbeddedGrant {
  readonly ttlMs: number;
}

/** What a script has to know of the nodes on which it keeps leases of its own. */
export interface NodeFacts {
  /** Whether PUBLISH inside a script counts every subscriber. */
  readonly countsReceivers: boolean;
  /** How long the node grants nothing after it may have forgotten leases; 0 if it is trusted to forget nothing. */
  readonly quarantineMs: number;
  /** The hash in which `run_id` and `since` tell whose data it is (see quarantine.lua.ts). */
  readonly hash: string;
}

export class RedlockProtocol {
  readonly #session: Session;
  readonly #takenBack: TakenBack;

  constructor(session: Session) {
    this.#session = session;
    this.#takenBack = new TakenBack(session.engine, session.calls, session.closed);
  }

  /** The nodes, in the order in which the `Redlock` was given their clients. */
  get nodes(): readonly LockNode[] {
    return this.#session.engine.nodes;
  }

  /** The clock of the `Redlock`, from which siblings take their time. */
  get clock(): Clock {
    return this.#session.engine.clock;
  }

  /** The randomness of the `Redlock`, from which siblings take theirs. */
  get random(): Random {
    return this.#session.engine.random;
  }

  /** A signal that aborts when `close()` is called. */
  get closed(): AbortSignal {
    return this.#session.closed;
  }

  /**
   * Lets scripts on the very node that the locks are on take and release locks in their own atomic steps. It is
   * undefined where a lock needs more than one node's word: with several nodes, in a Cluster, with `quarantine`.
   */
  get embedded(): EmbeddedLocks | undefined {
    const { engine, renewal } = this.#session;
    if (!engine.isEmbeddable) return undefined;
    const options = { autoExtend: true, maxHold: engine.options.maxHold };
    return new EmbeddedLocks(engine, (grant) => {
      this.#session.assertOpen(grant.target.resources);
      // Their waiters wait at the node, where the next script sees them, and in no local line.
      return new HeldLease(engine, grant, { options, lines: [], renewal }).lock;
    });
  }

  /**
   * Acquires a lock as `Redlock.acquire` does, with a note. Each node stores this text in the very step in which it
   * grants the lock, in the side key `note`, for the first lease. scripts/acquire.lua.ts says how to read it.
   */
  async acquire(resource: string, options: PlacedOptions, note: string): Promise<Lock> {
    const resolved = resolvePlacedOptions(options, this.#session.engine.options);
    return await acquireUntraced(this.#session, [resolveResource(resource)], {
      ...resolved,
      note: TEXT.of("note", note),
    });
  }

  /** Acquires a lock as `Redlock.acquire` does, from the place in line that `options` have. */
  async acquireAt(resources: readonly string[], options: PlacedOptions): Promise<Lock> {
    const resolved = resolvePlacedOptions(options, this.#session.engine.options);
    return await acquire(this.#session, resolveResources(resources), resolved);
  }

  /** Makes one attempt as `Redlock.tryAcquire` does, from the place in line that `options` have. */
  async tryAcquireAt(resources: readonly string[], options: Omit<PlacedOptions, "timeout">): Promise<Lock | null> {
    const resolved = resolvePlacedTry(options, this.#session.engine.options);
    return await tryAcquire(this.#session, resolveResources(resources), resolved);
  }

  /**
   * Calls `routine` under a lock that the caller has and goes on to have. `using` in there knows of that lock, and
   * joins it or is refused. The call settles as the routine does, when the last call that joined has ended.
   */
  async inside<Result>(granted: Lock, lent: Lent, routine: () => Result | PromiseLike<Result>): Promise<Result> {
    const section = new Section({ session: this.#session, granted, outer: outerCall(), lent });
    return await section.during(routine);
  }

  /** Returns the steps of a lock on `resources`, for a sibling that keeps the lease itself. Names may repeat. */
  stepsOf(resources: string | readonly string[]): LockSteps {
    return new LockSteps(this.#session, resolveResources(resources, true));
  }

  /** The events of the `Redlock`, for what siblings grant on its node. */
  get events(): Emitter<RedlockEvents> {
    return this.#session.engine.events;
  }

  /** Returns a fresh random value for a lease. */
  newToken(): string {
    return this.#session.engine.newToken();
  }

  get node(): NodeFacts {
    const { countsReceivers, quarantineMs } = this.#session.engine;
    return { countsReceivers, quarantineMs, hash: NODE_KEYS.hash };
  }

  /**
   * Calls `work` as a call of the `Redlock`: it is refused when that is closed, and `close()` waits for its end.
   */
  async call<Result>(resource: string, signal: AbortSignal | undefined, work: () => Promise<Result>): Promise<Result> {
    const { calls } = this.#session;
    this.#session.assertOpen([resource], signal);
    calls.begin();
    try {
      return await work();
    } finally {
      calls.end();
    }
  }

  /**
   * Sends every node the request that takes back what a call has asked for. It is sent even while the `Redlock` is
   * being closed, and `close()` waits for the answers, for `nodeTimeout` at most. Without an answer, it is sent again
   * for `leaseMs`, as long as the `Redlock` is open. So it may come twice. Of more than 10,000 such requests for a
   * node, the oldest are dropped.
   */
  async takeBack(call: ScriptCall, leaseMs: number): Promise<void> {
    const untilMs = this.#session.engine.clock.monotonicMs() + leaseMs;
    await Promise.all(this.#takenBack.send(call, untilMs));
  }

  /**
   * Makes a lock of what a sibling's script granted, on the one node or on a quorum. It is renewed, lost and released
   * as any other, but by `scripts`.
   */
  hold(grant: ScriptGrant, options: HoldOptions, scripts: LeaseScripts): Lock {
    const { engine, renewal } = this.#session;
    const own = { scripts, takenBack: this.#takenBack };
    return new HeldLease(engine, grantOf(engine, grant, grant.ttlMs), { options, lines: [], renewal, own }).lock;
  }

  /**
   * Stands in the line for a lock without acquiring it, and resolves when it is this caller's turn. The lock is then
   * reserved for its `place` for about a second, for `acquireAt(resources, { place })` in this or any other process.
   *
   * It also resolves when the holder's lease must have ended. Where nodes cannot tell when that is, it resolves after
   * 100 ms if another library has the lock. It resolves after a second if a key has no expiry or too few nodes
   * answer. Ask again with the same `place` to keep it.
   *
   * It rejects with `signal.reason` when the caller cancels, and with `RedlockClosedError` when the `Redlock` is
   * closed.
   */
  async waitForTurn(resource: string, options: Pick<PlacedOptions, "place" | "signal"> = {}): Promise<void> {
    const { engine, hints, closed, calls } = this.#session;
    const names = [resolveResource(resource)];
    const { signal, place } = resolveTurnOptions(options);
    this.#session.assertOpen(names, signal);
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
   * Returns the place in line of a caller that asked when this process's wall clock showed `wallMs`. It counts by the
   * clocks of the nodes, as far as refusals have told how far this clock is off.
   */
  placeAt(wallMs: number): number {
    return this.#session.engine.fencingClock.place(WALL_MS.of("wallMs", wallMs));
  }

  /**
   * Returns a fencing token to propose to several nodes, for grants that they count under `key`. It is above every
   * token that this process has proposed, or has learned of for this key.
   */
  ballot(key: string, wallMs: number): number {
    return this.#session.engine.fencingClock.ballot([key], wallMs);
  }

  /** Learns from the refusals of several nodes what makes the next ballot and `placeAt` better. */
  learn(key: string, refused: RefusalFacts): void {
    this.#session.engine.learn([key], refused);
  }

  /** Throws the `TypeError` or `RangeError` that a lock on `resource` would be refused with. */
  checkResource(resource: string): void {
    this.#session.engine.targetOf([resolveResource(resource)]);
  }

  /**
   * Returns the lock's own key on each node.
   * @throws RangeError if no lock may have this key.
   */
  lockKey(resource: string): string {
    const key = lockKeyOf(this.#session.engine.keyPrefix, resolveResource(resource));
    checkLockKey(key);
    return key;
  }

  /**
   * Returns a key beside the lock's, in the same hash slot, for data that belongs to the lock. The key ends with one of
   * the `SIDE_KEY_NAMES`, which no lock's key does.
   */
  sideKey(resource: string, name: string): string {
    return sideKeyOf(this.lockKey(resource), SIDE_KEY_NAME.of("name", name));
  }

  /** Returns the name of a channel for messages about the lock. A channel and a key do not share a name. */
  channel(resource: string, name: string): string {
    return sideKeyOf(this.lockKey(resource), CHANNEL.of("name", name));
  }

  /** Whether the one node is a Redis Cluster. A script then runs on the master that has its keys, or on any. */
  get isCluster(): boolean {
    return this.#session.engine.isCluster;
  }

  /** Returns a key in a slot of a Cluster, for a script that is to run on the master of that slot. */
  keyInSlot(slot: number): string {
    return nodeKeysOf(SLOT.of("slot", slot)).hash;
  }

  /**
   * Returns the names of clients, by the 12 digits that stand behind the mark of their tokens. A client without the
   * option `name` has none.
   */
  async namesOf(clients: readonly string[]): Promise<ReadonlyMap<string, string>> {
    const digits = texts.of("clients", clients);
    this.#session.assertOpen([]);
    return await clientNames(this.#session.engine, digits);
  }

  /**
   * Runs a script on every node in parallel, for majority decisions beside the lock, fenced by its token. Resolves
   * when all nodes have answered or their time is over. A node's failure is data in its reply.
   */
  async run(script: NodeScript, request: ScriptInput, options: ScriptOptions = {}): Promise<readonly NodeReply[]> {
    const { engine } = this.#session;
    const resolved = resolveRun(script, request, options, engine.options.nodeTimeout);
    this.#session.assertOpen([]);
    return await runEverywhere(engine, script, resolved);
  }

  /**
   * Calls `listener` for each message on `channel`, on each node that has channels. Resolves with a function that
   * stops it, when a quorum of nodes has confirmed, or after `nodeTimeout`.
   *
   * A node that refuses is asked again. Messages may be lost, and come once per node, so use them as hints. A
   * listener that throws breaks nothing.
   */
  async subscribe(channel: string, listener: (message: string, node: string) => void): Promise<() => void> {
    const { engine, closed } = this.#session;
    CHANNEL.of("channel", channel);
    LISTENER.of("listener", listener);
    this.#session.assertOpen([]);
    const subscription = new Subscription(engine, closed, channel, {
      onMessage: (message, node) => callQuietly(() => listener(message, engine.nodes[node]?.name ?? "")),
    });
    await subscription.opened;
    return () => subscription.stop();
  }
}
