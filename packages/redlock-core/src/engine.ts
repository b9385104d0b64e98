/** What every step of the protocol works with: the nodes, the options, time and randomness, and what was seen so far. */
import { Batcher } from "./batcher.ts";
import type { Clock } from "./clock.ts";
import { Deadlines } from "./deadlines.ts";
import { Events } from "./events.ts";
import { checkLockKey, hasStableSlot, keysOf, lockKeyOf, nodeKeysOf, SLOT_COUNT, slotOf } from "./keys.ts";
import type { LockNode } from "./node.ts";
import type { Target } from "./operation.ts";
import type { ResolvedOptions } from "./options.ts";
import { quorumOf } from "./quorum.ts";
import type { Random } from "./random.ts";
import { quote } from "./schema/show.ts";
import { Sightings } from "./sightings.ts";
import { quarantineMs } from "./validity.ts";

/** How long a freed lock is kept for the waiter whose turn it is. A frozen waiter costs the others this much. */
export const GRANT_TTL_MS = 1_000;

/** How long a queue of waiters outlives the last lease that it waits for. */
export const WAITER_TTL_MS = 60_000;

export class Engine {
  readonly nodes: readonly LockNode[];
  readonly batchers: readonly Batcher[];
  readonly quorum: number;
  readonly options: ResolvedOptions;
  readonly clock: Clock;
  readonly random: Random;
  readonly events: Events = new Events();
  readonly sightings: Sightings;
  /** For how long a node that may have forgotten casts no vote; 0: there is no quarantine. */
  readonly quarantineMs: number;
  /** Of rounds that may take `nodeTimeout`. */
  readonly deadlines: Deadlines;
  readonly keyPrefix: string;
  readonly isCluster: boolean;
  /** One node has all the votes, and numbers the grants itself. */
  readonly isAlone: boolean;

  constructor(nodes: readonly LockNode[], options: ResolvedOptions, clock: Clock, random: Random) {
    this.nodes = nodes;
    this.options = options;
    this.clock = clock;
    this.random = random;
    this.quorum = quorumOf(nodes.length);
    this.sightings = new Sightings(random);
    this.deadlines = new Deadlines(clock, options.nodeTimeout);
    this.isCluster = nodes.some((node) => node.isCluster === true);
    this.keyPrefix = (nodes[0]?.keyPrefix ?? "") + options.keyPrefix;
    this.quarantineMs = options.quarantine ? quarantineMs(options.maxTtl, options.driftFactor) : 0;
    this.isAlone = nodes.length === 1;
    const batcherOptions = {
      quarantineMs: this.quarantineMs,
      grantTtlMs: GRANT_TTL_MS,
      waiterTtlMs: WAITER_TTL_MS,
      nodeTimeoutMs: options.nodeTimeout,
      nodeCount: nodes.length,
    };
    this.batchers = nodes.map((node, index) => new Batcher(node, index, clock, batcherOptions));
  }

  /** One node has all the votes, and is trusted to forget nothing: a script on it may take and release locks by itself. */
  get isEmbeddable(): boolean {
    return this.nodes.length === 1 && !this.isCluster && !this.options.quarantine;
  }

  /** Where the resources are. Throws for keys that are not a lock's, and in a Cluster for slots that differ, before anything is sent. */
  targetOf(resources: readonly string[]): Target {
    const keys = keysOf(this.keyPrefix, resources);
    for (const key of keys) checkLockKey(key);
    const registers = this.isAlone ? undefined : keys.map(registerOf);
    return { resources, keys, registers, slot: this.isCluster ? this.#slotOf(resources) : 0 };
  }

  /** Where the nodes keep the fencing token of a single resource: in a register of the hash, or in a key of its own, and then "". */
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

const REGISTERS = Array.from({ length: SLOT_COUNT }, (_, slot) => String(slot));

function registerOf(key: string): string {
  return REGISTERS[slotOf(key)] as string;
}
