/**
 * The engine is shared by all calls of a `Redlock`, of users and of siblings, from the constructor to the end of
 * `close()`. The engine contains the nodes, time and randomness, the knowledge from answers, the waiters of this
 * process, and the leases that this process holds.
 */

import { RedlockClosedError } from "../api/errors.ts";
import { type RedlockEvents, redlockEvents } from "../api/events.ts";
import type { ResolvedOptions } from "../api/options.ts";
import type { Clock } from "../kit/clock.ts";
import { Deadlines } from "../kit/deadlines.ts";
import type { Emitter } from "../kit/emitter.ts";
import type { InFlight } from "../kit/in-flight.ts";
import type { Random } from "../kit/random.ts";
import { countsReceivers, type LockNode } from "../nodes/node.ts";
import { BatchRequests } from "../rounds/batch-request.ts";
import { Batcher } from "../rounds/batcher.ts";
import { ClientName, HolderNames, keepName } from "../rounds/client-name.ts";
import { FencingClock } from "../rounds/fencing-clock.ts";
import type { RoundEngine } from "../rounds/round-engine.ts";
import { GRANT_TTL_MS, WAITER_TTL_MS } from "../rules/operation.ts";
import { quarantineMs } from "../rules/quarantine.ts";
import { quorumOf } from "../rules/quorum.ts";
import { Targets } from "../rules/resources.ts";
import { newToken } from "../rules/token.ts";
import { Hints } from "../waiting/hints.ts";
import { LocalLines } from "../waiting/local-line.ts";
import { Closing, type OpenLease } from "./closing.ts";
import { Renewal } from "./renewal.ts";

/**
 * Each node has a bit of a 32-bit integer. With more nodes a quorum would lose more time than it gains safety. The
 * largest known deployment has nine nodes.
 */
export const MAX_NODES = 31;

/** Facts from nodes that refused a ballot or a lease. */
export interface RefusalFacts {
  /** Tokens that the next ballot must exceed. */
  readonly storedTokens: readonly number[];
  /** The nodes' clocks, in microseconds. */
  readonly nodeTimesUs: readonly number[];
  /** Wall clock of this process when the nodes were asked. */
  readonly askedWallMs: number;
}

export class Engine implements RoundEngine {
  readonly nodes: readonly LockNode[];
  readonly batchers: readonly Batcher[];
  readonly options: ResolvedOptions;
  readonly clock: Clock;
  readonly random: Random;
  readonly events: Emitter<RedlockEvents> = redlockEvents();
  readonly fencingClock: FencingClock;
  readonly deadlines: Deadlines;
  readonly targets: Targets;
  readonly holderNames: HolderNames;
  readonly hints: Hints;
  readonly lines: LocalLines = new LocalLines();
  readonly renewal: Renewal<OpenLease>;
  readonly #name: ClientName | undefined;
  readonly #closing: Closing;

  constructor(nodes: readonly LockNode[], options: ResolvedOptions, clock: Clock, random: Random) {
    this.nodes = nodes;
    this.options = options;
    this.clock = clock;
    this.random = random;
    this.fencingClock = new FencingClock(random);
    this.deadlines = new Deadlines(clock, options.nodeTimeout);
    const keyPrefix = (nodes[0]?.keyPrefix ?? "") + options.keyPrefix;
    this.targets = new Targets({ keyPrefix, isCluster: this.isCluster, isAlone: this.isAlone });
    this.batchers = this.#newBatchers();
    this.holderNames = new HolderNames(this);
    const { name } = options;
    this.#name = name === "" ? undefined : new ClientName(clock, random, (digits) => keepName(this, digits, name));
    this.hints = new Hints(this);
    this.renewal = new Renewal(clock);
    this.#closing = new Closing(
      this,
      nodes.map((node) => node.onStateChange(() => this.#emitState(node))),
    );
  }

  #newBatchers(): readonly Batcher[] {
    const requests: BatchRequests[] = [];
    const requestsFor = (node: LockNode): BatchRequests => {
      const [isCluster, counts] = [node.isCluster === true, countsReceivers(node)];
      const known = requests.find(({ sender }) => sender.isCluster === isCluster && sender.countsReceivers === counts);
      if (known !== undefined) return known;
      const sender = {
        isAlone: this.isAlone,
        isCluster,
        quarantineMs: this.quarantineMs,
        grantTtlMs: GRANT_TTL_MS,
        countsReceivers: counts,
        waiterTtlMs: WAITER_TTL_MS,
      };
      const added = new BatchRequests(sender, this.clock);
      requests.push(added);
      return added;
    };
    const { clock, options } = this;
    return this.nodes.map((node, index) => new Batcher(node, index, clock, requestsFor(node), options.nodeTimeout));
  }

  #emitState({ name, state, lastError }: LockNode): void {
    this.events.tell("nodeChanged", () => ({
      node: name,
      state,
      ...(lastError === undefined ? {} : { error: lastError }),
    }));
  }

  get quorum(): number {
    return quorumOf(this.nodes.length);
  }

  get everyNode(): number {
    return 2 ** this.nodes.length - 1;
  }

  /** Calls that `close()` waits for. */
  get calls(): InFlight {
    return this.#closing.calls;
  }

  /** Signal that aborts when `close()` is called. */
  get closed(): AbortSignal {
    return this.#closing.signal;
  }

  get isCluster(): boolean {
    return this.nodes.some((node) => node.isCluster === true);
  }

  /** Whether a single node has all votes and numbers the grants itself. */
  get isAlone(): boolean {
    return this.nodes.length === 1;
  }

  /** How long a node must not vote after it may have forgotten its keys. 0 without quarantine. */
  get quarantineMs(): number {
    const { quarantine, maxTtl, driftFactor } = this.options;
    return quarantine ? quarantineMs(maxTtl, driftFactor) : 0;
  }

  /**
   * Whether a single node has all votes and is trusted to forget nothing. Scripts on this node may then acquire and
   * release locks themselves.
   */
  get isEmbeddable(): boolean {
    return this.isAlone && !this.isCluster && !this.options.quarantine;
  }

  /**
   * Whether PUBLISH inside a script counts all subscribers, on every node. A waiter without a subscriber is then known
   * to be gone.
   */
  get countsReceivers(): boolean {
    return this.nodes.every(countsReceivers);
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

  /** Throws `RedlockClosedError` once the `Redlock` is closed, or the reason of an aborted signal. */
  assertOpen(resources: readonly string[], signal?: AbortSignal): void {
    if (this.closed.aborted) throw new RedlockClosedError(resources);
    signal?.throwIfAborted();
  }

  /** See `Redlock.close`. */
  close(): Promise<void> {
    return this.#closing.close();
  }
}
