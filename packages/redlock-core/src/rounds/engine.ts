/** The engine is what every step of the protocol works with: nodes, options, time, randomness, and what was seen. */

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

/** A freed lock is kept for so long for the waiter whose turn it is. A frozen waiter costs the others this much. */
export const GRANT_TTL_MS = 1_000;

/** A line of waiters outlives the last lease that it waits for by this much. */
export const WAITER_TTL_MS = 60_000;

/**
 * Each node has a bit of a 32-bit integer. More nodes make a quorum slower than it is safe; no deployment that we know
 * of has more than nine.
 */
export const MAX_NODES = 31;

/** This many targets are kept, at most about ten megabytes with the longest names. A forgotten target is made again. */
const MAX_TARGETS = 1_000;

/** What nodes told when they refused a ballot, or a lease. */
export interface RefusalFacts {
  /** The tokens above which the next ballot has to be. */
  readonly storedTokens: readonly number[];
  /** The nodes' clocks, in microseconds. */
  readonly nodeTimesUs: readonly number[];
  /** The wall clock of this process when they were asked. */
  readonly askedWallMs: number;
}

export class Engine {
  readonly nodes: readonly LockNode[];
  readonly batchers: readonly Batcher[];
  readonly quorum: number;
  /** A bit mask with the bit of every node set. */
  readonly everyNode: number;
  readonly options: ResolvedOptions;
  readonly clock: Clock;
  readonly random: Random;
  readonly events: Emitter<RedlockEvents> = redlockEvents();
  readonly fencingClock: FencingClock;
  /** How long a node that may have forgotten its keys casts no vote; 0 if there is no quarantine. */
  readonly quarantineMs: number;
  /** The deadlines of rounds that may take `nodeTimeout`. */
  readonly deadlines: Deadlines;
  readonly keyPrefix: string;
  readonly isCluster: boolean;
  /** Whether one node has all the votes, and numbers the grants itself. */
  readonly isAlone: boolean;
  readonly holderNames: HolderNames;
  readonly #name: ClientName | undefined;
  /** The targets of single resources: their keys are checked and named once. */
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

  /** Returns a fresh random value for a lock, or another lease. */
  newToken(): string {
    return this.#name === undefined ? newToken(this.random) : this.#name.newToken();
  }

  /**
   * Learns from refusals what makes the next ballot better: the stored tokens, and the nodes' clocks if as many
   * answered as end an attempt. Of an even number of nodes that is less than a quorum.
   */
  learn(resources: readonly string[], { storedTokens, nodeTimesUs, askedWallMs }: RefusalFacts): void {
    for (const token of storedTokens) this.fencingClock.see(resources, token);
    if (nodeTimesUs.length <= this.nodes.length - this.quorum) return;
    this.fencingClock.seeNodeTimes(nodeTimesUs, askedWallMs, this.clock.wallMs());
  }

  /**
   * Whether one node has all the votes and is trusted to forget nothing. A script on it may then take and release
   * locks by itself.
   */
  get isEmbeddable(): boolean {
    return this.nodes.length === 1 && !this.isCluster && !this.options.quarantine;
  }

  /** Whether PUBLISH inside a script counts every subscriber, on every node. A waiter without one is then gone. */
  get countsReceivers(): boolean {
    return this.nodes.every(countsReceivers);
  }

  /**
   * Returns where the resources are on each node.
   * @throws before anything is sent: for keys that are not a lock's, and in a Cluster for slots that differ.
   */
  targetOf(resources: readonly string[]): Target {
    const [only] = resources;
    if (resources.length > 1 || only === undefined) return this.#newTargetOf(resources);
    const known = this.#targets.get(only);
    if (known !== undefined) return known;
    // Locks of several calls share the list, so no caller may change it.
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

  /** Returns where nodes keep the fencing token of a resource: in a register of the hash, or, with "", in a key. */
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
