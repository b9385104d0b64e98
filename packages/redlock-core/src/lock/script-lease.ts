/**
 * A lease that a sibling's script granted on one node, or in one Cluster. It is renewed and released by scripts, and
 * is otherwise a lease like any other.
 */
import type { Vote } from "../errors.ts";
import { readClock } from "../kit/clock.ts";
import { sleep } from "../kit/signals.ts";
import type { NodeScript } from "../nodes/node.ts";
import type { Engine } from "../rounds/engine.ts";
import { type NodeReply, runEverywhere, type ScriptInput } from "../rounds/run.ts";
import { type LeaseEnd, leaseEnd, remainingMs } from "../rules/validity.ts";
import type { ExtendResult, ExtendRound } from "./extend.ts";

export interface ScriptCall extends ScriptInput {
  readonly script: NodeScript;
}

/** What a sibling's lease is renewed and released by. */
export interface LeaseScripts {
  /** Replies 1 if the lease now lasts for `ttlMs` from now or longer, and 0 if it is not ours. */
  extend(ttlMs: number): ScriptCall;
  /** Replies 1 if the lease was ours until now, else 0. It may come twice. */
  release(): ScriptCall;
}

/** The pause before a release is sent again that was not answered. */
const REDELIVERY_MS = 250;

export function extendByScript(
  engine: Engine,
  scripts: LeaseScripts,
  request: { readonly ttlMs: number; readonly timeoutMs: number; readonly end: LeaseEnd },
): ExtendRound {
  const { clock, options } = engine;
  const asked = readClock(clock);
  const timeoutMs = Math.min(request.timeoutMs, Math.max(remainingMs(request.end, asked), 1));
  const result = call(engine, scripts.extend(request.ttlMs), timeoutMs).then((reply): ExtendResult => {
    if (reply.ok && reply.value === 0) return { kind: "lost", reason: "taken", votes: [voteOf(reply)] };
    const isInTime = remainingMs(request.end, readClock(clock)) > 0;
    if (!reply.ok || reply.value !== 1 || !isInTime) return { kind: "failed", votes: [voteOf(reply)] };
    return { kind: "extended", end: leaseEnd(asked, request.ttlMs, options.driftFactor) };
  });
  return { result, sentTo: engine.everyNode };
}

/**
 * Releases the lease. Calls `onEnd` with the first answer, or with false without one. It is then sent again as long as
 * the lease may last on the node.
 */
export function releaseByScript(
  engine: Engine,
  scripts: LeaseScripts,
  { longestTtlMs, closed }: { readonly longestTtlMs: number; readonly closed: AbortSignal },
  onEnd: (isConfirmed: boolean) => void,
): void {
  const { clock, options } = engine;
  const untilMs = clock.monotonicMs() + longestTtlMs;
  const send = (): Promise<NodeReply> => call(engine, scripts.release(), options.nodeTimeout);
  void send().then(async (first) => {
    onEnd(first.ok && first.value === 1);
    let isAnswered = first.ok;
    while (!isAnswered && !closed.aborted && clock.monotonicMs() < untilMs) {
      await sleep(clock, REDELIVERY_MS, closed).catch(() => undefined);
      if (!closed.aborted) isAnswered = (await send()).ok;
    }
  });
}

export interface Owed {
  readonly call: ScriptCall;
  /** What is to be taken back is over on the node by then. */
  readonly untilMs: number;
}

/**
 * Takes back what calls have asked for, until the node answers or it is over there. All share one loop, so an outage
 * with many calls costs one request per `REDELIVERY_MS`.
 */
export class TakenBack {
  readonly #engine: Engine;
  readonly #closed: AbortSignal;
  readonly #owed: Owed[] = [];
  #isRunning = false;

  constructor(engine: Engine, closed: AbortSignal) {
    this.#engine = engine;
    this.#closed = closed;
  }

  /** Resolves after the first request; without an answer, it is sent again. */
  async send(owed: Owed): Promise<void> {
    if (await this.#isAnswered(owed)) return;
    this.#owed.push(owed);
    if (!this.#isRunning) void this.#redeliver();
  }

  async #redeliver(): Promise<void> {
    const { clock } = this.#engine;
    this.#isRunning = true;
    while (this.#owed.length > 0 && !this.#closed.aborted) {
      await sleep(clock, REDELIVERY_MS, this.#closed).catch(() => undefined);
      for (let next = this.#owed.shift(); next !== undefined && !this.#closed.aborted; next = this.#owed.shift()) {
        if (clock.monotonicMs() >= next.untilMs || (await this.#isAnswered(next))) continue;
        this.#owed.push(next);
        break;
      }
    }
    this.#isRunning = false;
  }

  async #isAnswered(owed: Owed): Promise<boolean> {
    return (await call(this.#engine, owed.call, this.#engine.options.nodeTimeout)).ok;
  }
}

async function call(engine: Engine, { script, keys, args }: ScriptCall, timeoutMs: number): Promise<NodeReply> {
  const [reply] = await runEverywhere(engine, script, { keys, args: args.map(String), timeoutMs });
  return reply as NodeReply;
}

function voteOf(reply: NodeReply): Vote {
  const about = { node: reply.node, tookMs: Math.round(reply.tookMs) };
  return reply.ok
    ? { ...about, vote: reply.value === 1 ? "granted" : "held" }
    : { ...about, vote: "failed", error: reply.error.message };
}
