/**
 * A lease that a sibling's script granted. Scripts renew and release it; in all other respects it is like any other
 * lease.
 */

import { readClock } from "../kit/clock.ts";
import type { InFlight } from "../kit/in-flight.ts";
import { sleep } from "../kit/signals.ts";
import type { Batcher } from "../rounds/batcher.ts";
import type { Engine } from "../rounds/engine.ts";
import { type NodeReply, runOn, type ScriptCall } from "../rounds/run.ts";
import { dropOldest } from "../rounds/undelivered.ts";
import { outcome, type Vote } from "../rules/quorum.ts";
import { type LeaseEnd, remainingMs } from "../rules/validity.ts";
import { countExtension, type ExtendResult, type ExtendRound } from "./extend.ts";

/** Scripts that renew and release a sibling's lease on each node. */
export interface LeaseScripts {
  /**
   * Replies 1 if the lease now lasts for at least `ttlMs` from now, and 0 if the caller does not hold it.
   * With several nodes, the reply is 3 if the node had lost the lease and stores it again, and {2, ms} in quarantine.
   * Neither reply counts, because another caller may have had this node's vote in the meantime.
   */
  extend(ttlMs: number): ScriptCall;
  /** Replies 1 if the caller held the lease until now, otherwise 0. May be sent twice. */
  release(): ScriptCall;
}

/** Pause before an unanswered release is sent again. */
const REDELIVERY_MS = 250;

export function extendByScript(
  engine: Engine,
  scripts: LeaseScripts,
  request: { readonly ttlMs: number; readonly timeoutMs: number; readonly end: LeaseEnd },
): ExtendRound {
  const asked = readClock(engine.clock);
  const timeoutMs = Math.min(request.timeoutMs, Math.max(remainingMs(request.end, asked), 1));
  const call = scripts.extend(request.ttlMs);
  const count = countExtension(engine, asked, request);
  const result = new Promise<ExtendResult>((resolve) => {
    for (const batcher of engine.batchers) {
      void ask(engine, batcher, call, timeoutMs).then((reply) => {
        const vote = voteOf(reply);
        const decided = count(vote, vote.vote === "held" ? "taken" : undefined);
        if (decided !== undefined) resolve(decided);
      });
    }
  });
  return { result, sentTo: engine.everyNode };
}

/** Sends requests that take back leases of earlier requests. `close()` waits for the first answers. */
export class TakenBack {
  readonly #engine: Engine;
  readonly #calls: InFlight;
  readonly #nodes: readonly NodeDebts[];

  constructor(engine: Engine, calls: InFlight, closed: AbortSignal) {
    this.#engine = engine;
    this.#calls = calls;
    this.#nodes = engine.batchers.map((batcher) => new NodeDebts(engine, batcher, closed));
  }

  /**
   * Sends the request to every node and returns the first answers. Without an answer, the request is repeated until
   * `untilMs`.
   */
  send(call: ScriptCall, untilMs: number): readonly Promise<NodeReply>[] {
    const answers = this.#nodes.map((node) => node.send({ call, untilMs }));
    for (const answer of answers) this.#calls.follow(answer);
    return answers;
  }

  /** Releases a lease. Calls `onEnd` as soon as a quorum has confirmed the release, or cannot do so any more. */
  release(call: ScriptCall, untilMs: number, onEnd: (isConfirmed: boolean) => void): void {
    const tally = { yes: 0, no: 0 };
    let isEnded = false;
    for (const answer of this.send(call, untilMs)) {
      void answer.then((reply) => {
        tally[reply.ok && reply.value === 1 ? "yes" : "no"] += 1;
        const verdict = outcome(tally, this.#engine.nodes.length);
        if (verdict === "open" || isEnded) return;
        isEnded = true;
        onEnd(verdict === "won");
      });
    }
  }
}

interface Owed {
  readonly call: ScriptCall;
  /** Time of the monotonic clock after which nothing is left to take back on the node. */
  readonly untilMs: number;
}

/**
 * Requests to which one node still owes an answer. The number is limited, because everything that these requests would
 * free also expires. All requests share one loop, so an outage costs one request per `REDELIVERY_MS`.
 */
class NodeDebts {
  readonly #engine: Engine;
  readonly #batcher: Batcher;
  readonly #closed: AbortSignal;
  readonly #owed: Owed[] = [];
  #isRunning = false;

  constructor(engine: Engine, batcher: Batcher, closed: AbortSignal) {
    this.#engine = engine;
    this.#batcher = batcher;
    this.#closed = closed;
  }

  /** Resolves with the outcome of the first request. Without an answer, the request is repeated. */
  async send(owed: Owed): Promise<NodeReply> {
    const reply = await this.#ask(owed);
    if (reply.ok) return reply;
    this.#owed.push(owed);
    dropOldest(this.#owed, this.#engine.clock.monotonicMs());
    if (!this.#isRunning) void this.#redeliver();
    return reply;
  }

  async #redeliver(): Promise<void> {
    const { clock } = this.#engine;
    this.#isRunning = true;
    while (this.#owed.length > 0 && !this.#closed.aborted) {
      await sleep(clock, REDELIVERY_MS, this.#closed).catch(() => undefined);
      for (let next = this.#owed.shift(); next !== undefined && !this.#closed.aborted; next = this.#owed.shift()) {
        if (clock.monotonicMs() >= next.untilMs || (await this.#ask(next)).ok) continue;
        this.#owed.push(next);
        break;
      }
    }
    this.#isRunning = false;
  }

  #ask({ call }: Owed): Promise<NodeReply> {
    return ask(this.#engine, this.#batcher, call, this.#engine.options.nodeTimeout);
  }
}

function ask(
  engine: Engine,
  batcher: Batcher,
  { script, keys, args }: ScriptCall,
  timeoutMs: number,
): Promise<NodeReply> {
  return runOn(engine, batcher, script, { keys, args: args.map(String), timeoutMs });
}

function voteOf(reply: NodeReply): Vote {
  const about = { node: reply.node, tookMs: Math.round(reply.tookMs) };
  if (!reply.ok) return { ...about, vote: "failed", error: reply.error.message };
  if (Array.isArray(reply.value)) return { ...about, vote: "quarantined", quarantineLeftMs: Number(reply.value[1]) };
  if (reply.value === 3) return { ...about, vote: "failed", error: "had lost the lease, and has it again" };
  return { ...about, vote: reply.value === 1 ? "granted" : "held" };
}
