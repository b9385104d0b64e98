/**
 * A pool has a number of permits and grants callers some of these permits as a lease. Semaphores and read-write locks
 * are pools.
 *
 * While the node keeps its data, and clocks advance at nearly the same rate (`driftFactor`), a pool guarantees:
 * - At any time, at most `capacity` permits are held.
 * - Fencing tokens increase from grant to grant.
 * - Waiters are served in the order in which their calls began. Each process estimates the node's clock for this order.
 * - A dead holder delays others until its lease ends, and a dead waiter until its turn ends.
 * - A call ends at most `nodeTimeout` after its timeout.
 *
 * A pool guarantees nothing across a failover to a replica that lags behind. `quarantine: true` covers a node that
 * restarts without its data.
 *
 * A quorum of several nodes can grant the permits of a read-write lock. Two of its callers exclude each other either on
 * every node or on none. The guarantees hold while fewer nodes than a quorum fail at a time, with two differences:
 * - A writer's token is above all earlier tokens. A reader's token is above the tokens of earlier writers and below the
 *   tokens of later writers. Tokens of readers between two writers have no order.
 * - A waiter is served before later waiters only after a quorum has added the waiter to its lines.
 */
import { QuorumUnreachableError, type Redlock, type Vote } from "@x/redlock-core";
import { type Instant } from "@x/redlock-core/kit";
import {
  type NodeReply,
  protocolOf,
  quorumLargest,
  type RedlockProtocol,
  type ScriptCall,
  type ScriptOptions,
} from "@x/redlock-core/protocol";
import type { PermitLine } from "./line.ts";
import { permitsScript } from "./permits.lua.ts";
import type { Figures, PermitAnswer } from "./rules/answer.ts";
import { Turns } from "./turns.ts";

/** Replies that took longer do not count for the clocks: this process may have been frozen when the reply arrived. */
const TELLING_MS = 1_000;

interface PoolParts {
  readonly redlock: Redlock;
  /** Name of the pool in errors and events. */
  readonly name: string;
  /** Ending of the Redis keys, which keeps the keys apart from the key of a lock with the same name. */
  readonly keys: string;
  readonly capacity: number;
  /** Kind of pool in messages, such as `semaphore`. */
  readonly what: string;
}

export interface PermitRequest {
  readonly permits: number;
  readonly ttl: number;
  readonly timeout: number;
  readonly autoExtend: boolean;
  readonly maxHold: number;
  readonly signal: AbortSignal | undefined;
  /** Returns the message of a refusal with these figures. */
  readonly refusal: (figures: Figures) => string;
}

interface PoolState extends Figures {
  readonly fencingToken: number | undefined;
  readonly holders: readonly { readonly permits: number; readonly remainingMs: number }[];
}

export class Pool {
  readonly name: string;
  readonly redlock: Redlock;
  readonly protocol: RedlockProtocol;
  readonly turns: Turns;
  readonly nodeCount: number;
  readonly what: string;
  readonly #capacity: number;
  readonly #keys: readonly string[];

  constructor({ redlock, name, keys, capacity, what }: PoolParts) {
    this.name = name;
    this.what = what;
    this.redlock = redlock;
    this.protocol = protocolOf(redlock);
    this.turns = Turns.of(redlock);
    this.nodeCount = redlock.nodeCount;
    this.#capacity = capacity;
    this.protocol.keys.checkResource(name);
    const own = ["", ":holders", ":waiters", ":places"].map((ending) =>
      this.protocol.keys.sideKey(name, keys + ending),
    );
    const { quarantineMs, hash } = this.protocol.node;
    this.#keys = quarantineMs > 0 ? [...own, hash] : own;
  }

  /** Whether both pools grant the same permits through the same `Redlock`. */
  isSameAs(other: Pool): boolean {
    return this.redlock === other.redlock && this.#tokenKey === other.#tokenKey;
  }

  /** Line of this process. Read the property each time, because `tidyLine` removes a line without callers. */
  get line(): PermitLine {
    return this.turns.line(this.#tokenKey, this.#capacity);
  }

  tidyLine(): void {
    this.turns.tidy(this.#tokenKey);
  }

  /** Whether a single node grants the permits and numbers the grants. */
  get isAlone(): boolean {
    return this.nodeCount === 1;
  }

  async inspect(): Promise<PoolState> {
    const { clock } = this.protocol;
    const startedMs = clock.monotonicMs();
    const replies = await this.protocol.call(this.name, undefined, () => this.ask(this.callOf("inspect")));
    const readings = replies.flatMap((reply) => (reply.ok ? [readingOf(reply.value)] : []));
    if (readings.length < this.redlock.quorum) {
      const elapsedMs = clock.monotonicMs() - startedMs;
      const votes = replies.flatMap((reply): readonly Vote[] =>
        reply.ok ? [] : [{ node: reply.node, tookMs: reply.tookMs, vote: "failed", error: reply.error.message }],
      );
      throw this.unreachable(votes, { attempts: 1, elapsedMs });
    }
    const tokens = readings.flatMap(({ fencingToken }) => fencingToken ?? []);
    const holders = this.#holdersOf(readings);
    return Object.freeze({
      used: holders.reduce((sum, { permits }) => sum + permits, 0),
      waiting: quorumLargest(
        readings.map(({ waiting }) => waiting),
        this.nodeCount,
      ),
      fencingToken: tokens.length === 0 ? undefined : Math.max(...tokens),
      holders,
    });
  }

  /** Returns the holders with permits on a quorum of nodes. */
  #holdersOf(readings: readonly Reading[]): PoolState["holders"] {
    const lives = new Map<string, number[]>();
    for (const { remainingMs } of readings)
      for (const [holder, ms] of remainingMs) lives.set(holder, [...(lives.get(holder) ?? []), ms]);
    return [...lives].flatMap(([holder, each]) => {
      if (each.length < this.redlock.quorum) return [];
      return [{ permits: Number(holder.split(":")[0]), remainingMs: quorumLargest(each, this.nodeCount) }];
    });
  }

  /** Returns the script call of an operation. `own` are the arguments from ARGV[5] on. */
  callOf(operation: string, own: readonly string[] = []): ScriptCall {
    const { countsReceivers, quarantineMs } = this.protocol.node;
    const common = [operation, this.#capacity, quarantineMs, countsReceivers ? 1 : 0];
    const rest = Array.from({ length: 5 }, (_, index) => own[index] ?? "");
    return { script: permitsScript, keys: this.#keys, args: [...common, ...rest, this.isAlone ? 0 : 1] };
  }

  /** Sends a script call to every node. A failed node has a reply with the error. */
  ask({ script, keys, args }: ScriptCall, enough?: ScriptOptions["enough"]): Promise<readonly NodeReply[]> {
    return this.protocol.run(script, { keys, args }, { enough });
  }

  /** Returns the fencing token to propose to several nodes. Empty if a single node numbers the grants. */
  ballot({ wallMs }: Instant): string {
    return this.isAlone ? "" : String(this.protocol.ballot(this.#tokenKey, wallMs));
  }

  /** Records the tokens and clocks of the replies, so that the nodes accept the next proposed token. */
  learn(answers: readonly PermitAnswer[], asked: Instant): void {
    this.protocol.learn(this.#tokenKey, {
      storedTokens: answers.flatMap(({ vote, fencingToken }) => (vote.vote === "stale" ? (fencingToken ?? []) : [])),
      nodeTimesUs: answers.flatMap(({ nodeTimeUs, vote }) =>
        nodeTimeUs !== undefined && vote.tookMs < TELLING_MS ? nodeTimeUs : [],
      ),
      askedWallMs: asked.wallMs,
    });
  }

  get #tokenKey(): string {
    return this.#keys[0] as string;
  }

  unreachable(
    votes: readonly Vote[],
    facts: { readonly attempts: number; readonly elapsedMs: number },
  ): QuorumUnreachableError {
    const { nodeCount, redlock } = this;
    return new QuorumUnreachableError({ resources: [this.name], votes, nodeCount, quorum: redlock.quorum, ...facts });
  }
}

/** State of the pool on one node. */
interface Reading {
  readonly waiting: number;
  readonly fencingToken: number | undefined;
  /** Time left of each lease in ms, by holder. */
  readonly remainingMs: ReadonlyMap<string, number>;
}

function readingOf(reply: unknown): Reading {
  const [, fence, holders, waiting, nowMs] = reply as [number, string, readonly string[], number, string];
  const remainingMs = new Map<string, number>();
  for (let at = 0; at < holders.length; at += 2)
    remainingMs.set(holders[at] as string, Math.max(0, Number(holders[at + 1]) - Number(nowMs)));
  return { waiting, fencingToken: fence === "" ? undefined : Number(fence), remainingMs };
}
