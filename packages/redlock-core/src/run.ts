/** A script of somebody else's on every node: what the sibling packages build their own majority decisions on. */
import type { Batcher } from "./batcher.ts";
import type { Engine } from "./engine.ts";
import { type LockNode, type NodeScript, notConnected } from "./node.ts";

/** How one node answered. A node's failure is data here, never a rejection. */
export type NodeReply =
  | { readonly node: string; readonly ms: number; readonly ok: true; readonly value: unknown }
  | { readonly node: string; readonly ms: number; readonly ok: false; readonly error: Error };

export interface RunRequest {
  readonly keys: readonly string[];
  readonly args: readonly string[];
  readonly timeoutMs: number;
  /** Called after each answer with all answers so far; true ends the round at once. */
  readonly enough?: ((replies: readonly NodeReply[]) => boolean) | undefined;
}

/** Resolves when every node has answered, the answers are enough, or the time is over. */
export function runEverywhere(engine: Engine, script: NodeScript, request: RunRequest): Promise<readonly NodeReply[]> {
  const rounds = engine.batchers.map((batcher) => runOn(engine, batcher, script, request));
  const { enough } = request;
  if (enough === undefined) return Promise.all(rounds);
  return new Promise((resolve, reject) => {
    const replies: NodeReply[] = [];
    for (const round of rounds) {
      round
        .then((reply) => {
          replies.push(reply);
          if (replies.length === rounds.length || enough([...replies])) resolve([...replies]);
        })
        .catch(reject);
    }
  });
}

async function runOn(engine: Engine, batcher: Batcher, script: NodeScript, request: RunRequest): Promise<NodeReply> {
  const { node } = batcher;
  const startedMs = engine.clock.monotonicMs();
  const deadline = startDeadline(engine, request.timeoutMs);
  try {
    if (node.state === "connecting") await untilSettled(node, deadline.over);
    const ask = (): Promise<unknown> => {
      const answer = node.eval(script, request.keys, request.args);
      const heard = (): void => batcher.heard();
      answer.then(heard, heard);
      return Promise.race([answer, deadline.over]);
    };
    const value = await ask().catch((error: unknown) => {
      // The script cache was flushed: nothing has run, and the adapter sends the script again.
      if (error instanceof Error && error.message.startsWith("NOSCRIPT")) return ask();
      throw error;
    });
    if (value === TIMED_OUT) {
      batcher.suspect();
      throw new Error(`no answer within ${Math.round(request.timeoutMs)} ms`);
    }
    return { node: node.name, ms: engine.clock.monotonicMs() - startedMs, ok: true, value };
  } catch (error) {
    const reason = error instanceof Error ? error : new Error(String(error));
    return { node: node.name, ms: engine.clock.monotonicMs() - startedMs, ok: false, error: reason };
  } finally {
    deadline.cancel();
  }
}

const TIMED_OUT: unique symbol = Symbol("timed out");

function startDeadline(engine: Engine, timeoutMs: number): { over: Promise<typeof TIMED_OUT>; cancel: () => void } {
  let cancel: () => void = () => undefined;
  const over = new Promise<typeof TIMED_OUT>((resolve) => {
    cancel = engine.clock.schedule(timeoutMs, () => resolve(TIMED_OUT), { keepAlive: true });
  });
  return { over, cancel };
}

async function untilSettled(node: LockNode, over: Promise<unknown>): Promise<void> {
  let stop: () => void = () => undefined;
  const settled = new Promise<void>((resolve) => {
    stop = node.onStateChange(() => {
      if (node.state !== "connecting") resolve();
    });
  });
  await Promise.race([settled, over]);
  stop();
  if (node.state === "connecting") throw notConnected(node, " in time");
}
