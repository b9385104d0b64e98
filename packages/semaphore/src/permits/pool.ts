/**
 * A pool has permits, and gives some of them to each caller as a lease. Semaphores and read-write locks are pools.
 *
 * It guarantees the following, while the node keeps its data and its clock advances at nearly the rate of the clients'
 * (`driftFactor`):
 * - No more permits are held at once than there are.
 * - Fencing tokens increase from grant to grant.
 * - Waiters are served in the order in which they asked.
 * - A holder that dies holds nobody up for longer than its lease, and a waiter for no longer than its turn.
 * - No call outlives its timeout by more than `nodeTimeout`.
 *
 * It guarantees nothing across a failover to a replica that lags behind. `quarantine: true` covers a node that restarts
 * without its data.
 */
import { type Lock, QuorumUnreachableError, type Redlock, type Vote } from "@x/redlock-core";
import { type NodeReply, protocolOf, type RedlockProtocol, type ScriptCall } from "@x/redlock-core/protocol";
import { traces } from "../events.ts";
import { Acquisition } from "./acquisition.ts";
import { permitsScript } from "./permits.lua.ts";
import { Turns } from "./turns.ts";

export interface PoolParts {
  readonly redlock: Redlock;
  /** What the errors and events call it. */
  readonly name: string;
  /** The name of its keys, beside those of a lock of the same name. */
  readonly keys: string;
  readonly capacity: number;
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

export interface Figures {
  readonly used: number;
  readonly waiting: number;
}

export interface PoolState extends Figures {
  readonly fencingToken: number | undefined;
  readonly holders: readonly { readonly permits: number; readonly remainingMs: number }[];
}

export class Pool {
  readonly name: string;
  readonly redlock: Redlock;
  readonly protocol: RedlockProtocol;
  readonly turns: Turns;
  readonly #capacity: number;
  readonly #keys: readonly string[];

  constructor({ redlock, name, keys, capacity }: PoolParts) {
    this.name = name;
    this.redlock = redlock;
    this.protocol = protocolOf(redlock);
    this.turns = Turns.of(redlock);
    this.#capacity = capacity;
    this.protocol.checkResource(name);
    const own = ["", ":holders", ":waiters", ":places"].map((ending) => this.protocol.sideKey(name, keys + ending));
    const { quarantineMs, hash } = this.protocol.node;
    this.#keys = quarantineMs > 0 ? [...own, hash] : own;
  }

  acquire(request: PermitRequest): Promise<Lock> {
    const call = (): Promise<Lock> =>
      this.protocol.call(this.name, request.signal, () => new Acquisition(this, request).run());
    if (!traces.acquire.isHeard) return call();
    return traces.acquire.run({ resource: this.name, permits: request.permits }, call);
  }

  async inspect(): Promise<PoolState> {
    const { clock } = this.protocol;
    const startedMs = clock.monotonicMs();
    const reply = await this.protocol.call(this.name, undefined, () => this.ask(this.callOf("inspect")));
    if (!reply.ok) {
      const { node, tookMs, error } = reply;
      const elapsedMs = clock.monotonicMs() - startedMs;
      throw this.unreachable([{ node, tookMs, vote: "failed", error: error.message }], { attempts: 1, elapsedMs });
    }
    const [used, fence, holders, waiting, nowMs] = reply.value as [number, string, readonly string[], number, string];
    return Object.freeze({
      used,
      waiting,
      fencingToken: fence === "" ? undefined : Number(fence),
      holders: holdersOf(holders, Number(nowMs)),
    });
  }

  /** Returns the call of an operation; `own` are its arguments from ARGV[5] on. */
  callOf(operation: string, own: readonly string[] = []): ScriptCall {
    const { countsReceivers, quarantineMs } = this.protocol.node;
    const common = [operation, this.#capacity, quarantineMs, countsReceivers ? 1 : 0];
    const rest = Array.from({ length: 5 }, (_, index) => own[index] ?? "");
    return { script: permitsScript, keys: this.#keys, args: [...common, ...rest] };
  }

  /** Asks the node. A failure is data in the reply. */
  async ask({ script, keys, args }: ScriptCall): Promise<NodeReply> {
    const [reply] = await this.protocol.run(script, { keys, args });
    return reply as NodeReply;
  }

  unreachable(
    votes: readonly Vote[],
    facts: { readonly attempts: number; readonly elapsedMs: number },
  ): QuorumUnreachableError {
    return new QuorumUnreachableError({ resources: [this.name], votes, nodeCount: 1, quorum: 1, ...facts });
  }
}

function holdersOf(members: readonly string[], nowMs: number): PoolState["holders"] {
  const holders: { readonly permits: number; readonly remainingMs: number }[] = [];
  for (let at = 0; at < members.length; at += 2) {
    const permits = Number(members[at]?.split(":")[0]);
    holders.push({ permits, remainingMs: Math.max(0, Number(members[at + 1]) - nowMs) });
  }
  return holders;
}
