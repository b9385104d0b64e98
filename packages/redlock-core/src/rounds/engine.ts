/**
 * The engine contains everything that the steps of the protocol share: nodes, options, time, randomness, and knowledge
 * from answers.
 */

import { type RedlockEvents, redlockEvents } from "../api/events.ts";
import type { ResolvedOptions } from "../api/options.ts";
import type { Clock } from "../kit/clock.ts";
import { Deadlines } from "../kit/deadlines.ts";
import type { Emitter } from "../kit/emitter.ts";
import type { Random } from "../kit/random.ts";
import { quote } from "../kit/schema/show.ts";
import { countsReceivers, type LockNode } from "../nodes/node.ts";
import {
  checkLockKey,
  hasStableSlot,
  keysOf,
  lockKeyOf,
  nodeKeysOf,
  SLOT_COUNT,
  sideKeyOf,
  slotOf,
  WAITERS,
} from "../rules/keys.ts";
import type { Target } from "../rules/operation.ts";
import { quarantineMs } from "../rules/quarantine.ts";
import { quorumOf } from "../rules/quorum.ts";
import { newToken } from "../rules/token.ts";
import { BatchRequests } from "./batch-request.ts";
import { Batcher } from "./batcher.ts";
import { ClientName, HolderNames, keepName } from "./client-name.ts";
import { FencingClock } from "./fencing-clock.ts";

/**
 * How long a freed lock is reserved for the waiter whose turn it is. A frozen waiter delays the others by this time.
 */
export const GRANT_TTL_MS = 1_000;

/** How long a line of waiters outlives the last lease that its waiters wait for. */
export const WAITER_TTL_MS = 60_000;

/**
 * Each node has a bit of a 32-bit integer. With more nodes a quorum would lose more time than it gains safety. The
 * largest known deployment has nine nodes.
 */
export const MAX_NODES = 31;

/**
 * Number of cached targets: at most about ten megabytes with the longest names. A forgotten target is computed again.
 */
const MAX_TARGETS = 1_000;

/** Facts from nodes that refused a ballot or a lease. */
export interface RefusalFacts {
  /** Tokens that the next ballot must exceed. */
  readonly storedTokens: readonly number[];
  /** The nodes' clocks, in microseconds. */
  readonly nodeTimesUs: readonly number[];
  /** Wall clock of this process when the nodes were asked. */
  readonly askedWallMs: number;
}

export class Engine {
  readonly nodes: readonly LockNode[];
  readonly batchers: readonly Batcher[];
  readonly quorum: number;
  /** Bit mask with the bit of every node set. */
  readonly everyNode: number;
  readonly options: ResolvedOptions;
  readonly clock: Clock;
  readonly random: Random;
  readonly events: Emitter<RedlockEvents> = redlockEvents();
  readonly fencingClock: FencingClock;
  /** How long a node must not vote after it may have forgotten its keys. 0 without quarantine. */
  readonly quarantineMs: number;
  /** Deadlines of rounds with the timeout `nodeTimeout`. */
  readonly deadlines: Deadlines;
  readonly keyPrefix: string;
  readonly isCluster: boolean;
  /** Whether a single node has all votes and numbers the grants itself. */
  readonly isAlone: boolean;
  readonly holderNames: HolderNames;
  readonly #name: ClientName | undefined;
  /** Targets of single resources, whose keys are checked and computed only once. */
  readonly #targets = new Map<string, Target>();

  constructor(nodes: readonly LockNode[], options: ResolvedOptions, clock: Clock, random: Random) {
    this.nodes = nodes;
    this.options = options;
    this.clock = clock;
    this.random = random;
    this.quorum = quorumOf(nodes.length);
    this.everyNode = 2 ** nodes.length - 1;
    this.fencingClock = new FencingClock(random);
    this.deadlines = new Deadlines(clock, options.nodeTimeout);
    this.isCluster = nodes.some((node) => node.isCluster === true);
    this.keyPrefix = (nodes[0]?.keyPrefix ?? "") + options.keyPrefix;
    this.quarantineMs = options.quarantine ? quarantineMs(options.maxTtl, options.driftFactor) : 0;
    this.isAlone = nodes.length === 1;
    const writers: BatchRequests[] = [];
    const writerFor = (node: LockNode): BatchRequests => {
      const [isCluster, counts] = [node.isCluster === true, countsReceivers(node)];
      const known = writers.find(({ sender }) => sender.isCluster === isCluster && sender.countsReceivers === counts);
      if (known !== undefined) return known;
      const writer = new BatchRequests({
        isAlone: this.isAlone,
        isCluster,
        quarantineMs: this.quarantineMs,
        grantTtlMs: GRANT_TTL_MS,
        countsReceivers: counts,
        waiterTtlMs: WAITER_TTL_MS,
      });
      writers.push(writer);
      return writer;
    };
    this.batchers = nodes.map((node, index) => new Batcher(node, index, clock, writerFor(node), options.nodeTimeout));
    this.holderNames = new HolderNames(this);
    const { name } = options;
    this.#name = name === "" ? undefined : new ClientName(clock, random, (digits) => keepName(this, digits, name));
  }

  /** Returns a new random value for a lock or another lease. */
  newToken(): string {
    return this.#name === undefined ? newToken(this.random) : this.#name.newToken();
  }

  /**
   * Learns from refusals to improve the next ballot: records the stored tokens, and corrects the clock if enough nodes
   * answered to end an attempt. With an even number of nodes this is less than a quorum.
   */
  learn(resources: readonly string[], { storedTokens, nodeTimesUs, askedWallMs }: RefusalFacts): void {
    for (const token of storedTokens) this.fencingClock.see(resources, token);
    if (nodeTimesUs.length <= this.nodes.length - this.quorum) return;
    this.fencingClock.seeNodeTimes(nodeTimesUs, askedWallMs, this.clock.wallMs());
  }

  /**
   * Whether a single node has all votes and is trusted to forget nothing. Scripts on this node may then acquire and
   * release locks themselves.
   */
  get isEmbeddable(): boolean {
    return this.nodes.length === 1 && !this.isCluster && !this.options.quarantine;
  }

  /**
   * Whether PUBLISH inside a script counts all subscribers, on every node. A waiter without a subscriber is then known
   * to be gone.
   */
  get countsReceivers(): boolean {
    return this.nodes.every(countsReceivers);
  }

  /**
   * Returns the keys of the resources on each node.
   * @throws before anything is sent: if a key may not belong to a lock, or if slots differ in a Cluster.
   */
  targetOf(resources: readonly string[]): Target {
    const [only] = resources;
    if (resources.length > 1 || only === undefined) return this.#newTargetOf(resources);
    const known = this.#targets.get(only);
    if (known !== undefined) return known;
    // Locks of several calls share the list, so it must not be changed.
    const target = this.#newTargetOf(Object.freeze([only]));
    if (this.#targets.size >= MAX_TARGETS) this.#targets.clear();
    this.#targets.set(only, target);
    return target;
  }

  #newTargetOf(resources: readonly string[]): Target {
    const keys = keysOf(this.keyPrefix, resources);
    for (const key of keys) checkLockKey(key);
    const registers = this.isAlone ? undefined : keys.map(registerOf);
    const lines = keys.map(lineOf);
    return { resources, keys, lines, registers, slot: this.isCluster ? this.#slotOf(resources) : 0 };
  }

  /**
   * Returns where nodes store the fencing token of a resource: in a register of the hash, or, if `register` is "", in a
   * key.
   */
  fencingPlaceOf({ slot, registers }: Target): { readonly key: string; readonly register: string } {
    const { hash, lastNumber } = nodeKeysOf(this.isCluster ? slot : undefined);
    return this.isAlone ? { key: lastNumber, register: "" } : { key: hash, register: registers?.[0] ?? "" };
  }

  #slotOf(resources: readonly string[]): number {
    const slots = resources.map((resource) => {
      const key = lockKeyOf(this.keyPrefix, resource);
      if (!hasStableSlot(key))
        throw new RangeError(`resource must not contain "}" without a hash tag in a Cluster, got ${quote(resource)}`);
      return slotOf(key);
    });
    const first = slots[0] ?? 0;
    if (slots.some((slot) => slot !== first)) {
      throw new RangeError(
        `resources of one lock must share a hash slot in a Cluster: use one hash tag, got ${resources.slice(0, 5).map(quote).join(", ")}`,
      );
    }
    return first;
  }
}

function lineOf(key: string): string {
  return sideKeyOf(key, WAITERS);
}

const REGISTERS = Array.from({ length: SLOT_COUNT }, (_, slot) => String(slot));

function registerOf(key: string): string {
  return REGISTERS[slotOf(key)] as string;
}
