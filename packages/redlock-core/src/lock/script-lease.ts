/**
 * A lease that a sibling's script granted. Scripts renew and release it; in all other respects it is like any other
 * lease.
 */

import { readClock } from "../kit/clock.ts";
import type { Batcher } from "../rounds/batcher.ts";
import { type NodeReply, runOn, type ScriptCall } from "../rounds/run.ts";
import { outcome, type Vote } from "../rules/quorum.ts";
import { remainingMs } from "../rules/validity.ts";
import type { Engine } from "./engine.ts";
import { countExtension, type ExtendResult, type ExtendRound, type LeaseExtension } from "./extend.ts";

const REPLY = { done: 1, storedAgain: 3 } as const;

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

export function extendByScript(engine: Engine, scripts: LeaseScripts, request: LeaseExtension): ExtendRound {
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

/**
 * Sends every node a request that takes back a lease of an earlier request, and returns the first answers, for which
 * `close()` waits. Without an answer, the request is repeated until `untilMs`.
 */
export function takeBack(engine: Engine, call: ScriptCall, untilMs: number): readonly Promise<NodeReply>[] {
  return engine.batchers.map((batcher) => {
    const send = (): Promise<NodeReply> => ask(engine, batcher, call, engine.options.nodeTimeout);
    const first = send().then((reply) => {
      if (!reply.ok) {
        batcher.keepUndelivered({ kind: "script", untilMs, send: () => send().then(({ ok }) => ok) });
      }
      return reply;
    });
    engine.calls.follow(first);
    return first;
  });
}

/** Releases a lease. Calls `onEnd` as soon as a quorum has confirmed the release, or cannot do so any more. */
export function releaseByScript(
  engine: Engine,
  call: ScriptCall,
  untilMs: number,
  onEnd: (isConfirmed: boolean) => void,
): void {
  const tally = { yes: 0, no: 0 };
  let isEnded = false;
  for (const answer of takeBack(engine, call, untilMs)) {
    void answer.then((reply) => {
      tally[reply.ok && reply.value === REPLY.done ? "yes" : "no"] += 1;
      const verdict = outcome(tally, engine.nodes.length);
      if (verdict === "open" || isEnded) return;
      isEnded = true;
      onEnd(verdict === "won");
    });
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
  const { value } = reply;
  if (value === REPLY.storedAgain) return { ...about, vote: "failed", error: "had lost the lease, and has it again" };
  if (!Array.isArray(value)) return { ...about, vote: value === REPLY.done ? "granted" : "held" };
  const [, leftMs] = value as readonly unknown[];
  return { ...about, vote: "quarantined", quarantineLeftMs: Number(leftMs) };
}
