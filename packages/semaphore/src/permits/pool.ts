/**
 * A pool has permits, and gives some of them to each caller as a lease. Semaphores and read-write locks are pools.
 *
 * It guarantees the following, while the node keeps its data and its clock advances at nearly the rate of the clients'
 * (`driftFactor`):
 * - No more permits are held at once than there are.
 * - Fencing tokens increase from grant to grant.
 * - Waiters are served in the order in which their calls began, by the node's clock as their processes know it.
 * - A holder that dies holds nobody up for longer than its lease, and a waiter for no longer than its turn.
 * - No call outlives its timeout by more than `nodeTimeout`.
 *
 * It guarantees nothing across a failover to a replica that lags behind. `quarantine: true` covers a node that restarts
 * without its data.
 *
 * The permits of a read-write lock may be granted by a quorum of several nodes. There two callers either exclude each
 * other on every node, or on none. It then guarantees the same, while fewer nodes than a quorum fail at a time, with
 * two differences. Tokens increase from one writer to the next. Those of readers are above the writers' before and
 * below the writers' after, in no order among themselves. And a waiter is only served before later ones once a quorum
 * has it in line.
 */
import { QuorumUnreachableError, type Redlock, type Vote } from "@x/redlock-core";
import {
  type Instant,
  type NodeReply,
  protocolOf,
  quorumLargest,
  type RedlockProtocol,
  type ScriptCall,
  type ScriptOptions,
} from "@x/redlock-core/protocol";
import type { PermitLine } from "./line.ts";
import { permitsScript } from "./permits.lua.ts";
import type { Answer, Figures } from "./rules/answer.ts";
import { Turns } from "./turns.ts";

/** An answer that took longer says little of the clocks, because this process may have been frozen when it came. */
const TELLING_MS = 1_000;

interface PoolParts {
  readonly redlock: Redlock;
  /** What the errors and events call it. */
  readonly name: string;
  /** The name of its keys, beside those of a lock of the same name. */
  readonly keys: string;
  readonly capacity: number;
  /** What it is, in messages. */
  readonly what: string;
}

export interface PermitRequest {
  readonly permits: number;
  readonly ttl: number;
  readonly timeout: number;
  readonly autoExtend: boolean;
  readonly maxHold: number;
  readonly signal: AbortSignal | undefined;
  /** Says what was refused, of these figures. */
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
    this.protocol.checkResource(name);
    const own = ["", ":holders", ":waiters", ":places"].map((ending) => this.protocol.sideKey(name, keys + ending));
    const { quarantineMs, hash } = this.protocol.node;
    this.#keys = quarantineMs > 0 ? [...own, hash] : own;
  }

  /** Whether both give the same permits. Those of another `Redlock` are not compared. */
  isSameAs(other: Pool): boolean {
    return this.redlock === other.redlock && this.#tokenKey === other.#tokenKey;
  }

  /** The line of this process. Callers ask for it each time, because a line without callers is forgotten. */
  get line(): PermitLine {
    return this.turns.line(this.#tokenKey, this.#capacity);
  }

  tidyLine(): void {
    this.turns.tidy(this.#tokenKey);
  }

  /** Whether one node grants by itself, and numbers the grants. */
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

  /** Returns those who hold permits on a quorum of nodes. */
  #holdersOf(readings: readonly Reading[]): PoolState["holders"] {
    const lives = new Map<string, number[]>();
    for (const { remainingMs } of readings)
      for (const [holder, ms] of remainingMs) lives.set(holder, [...(lives.get(holder) ?? []), ms]);
    return [...lives].flatMap(([holder, each]) => {
      if (each.length < this.redlock.quorum) return [];
      return [{ permits: Number(holder.split(":")[0]), remainingMs: quorumLargest(each, this.nodeCount) }];
    });
  }

  /** Returns the call of an operation; `own` are its arguments from ARGV[5] on. */
  callOf(operation: string, own: readonly string[] = []): ScriptCall {
    const { countsReceivers, quarantineMs } = this.protocol.node;
    const common = [operation, this.#capacity, quarantineMs, countsReceivers ? 1 : 0];
    const rest = Array.from({ length: 5 }, (_, index) => own[index] ?? "");
    return { script: permitsScript, keys: this.#keys, args: [...common, ...rest, this.isAlone ? 0 : 1] };
  }

  /** Asks every node. A failure is data in the reply. */
  ask({ script, keys, args }: ScriptCall, enough?: ScriptOptions["enough"]): Promise<readonly NodeReply[]> {
    return this.protocol.run(script, { keys, args }, { enough });
  }

  /** Returns the fencing token to propose to several nodes; "" where the only node numbers the grants. */
  ballot({ wallMs }: Instant): string {
    return this.isAlone ? "" : String(this.protocol.ballot(this.#tokenKey, wallMs));
  }

  /** Makes the next proposal better. */
  learn(answers: readonly Answer[], asked: Instant): void {
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

/** What one node says. */
interface Reading {
  readonly waiting: number;
  readonly fencingToken: number | undefined;
  /** What is left of each lease. */
  readonly remainingMs: ReadonlyMap<string, number>;
}

function readingOf(reply: unknown): Reading {
  const [, fence, holders, waiting, nowMs] = reply as [number, string, readonly string[], number, string];
  const remainingMs = new Map<string, number>();
  for (let at = 0; at < holders.length; at += 2)
    remainingMs.set(holders[at] as string, Math.max(0, Number(holders[at + 1]) - Number(nowMs)));
  return { waiting, fencingToken: fence === "" ? undefined : Number(fence), remainingMs };
}
