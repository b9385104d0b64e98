/** Runs scripts on every node: for operators, and for siblings that decide by majority. */

import { callback, shaped, texts, textsAndNumbers } from "../kit/schema/check.ts";
import { Schema, type ShapeOf } from "../kit/schema/schema.ts";
import { show } from "../kit/schema/show.ts";
import { deferred } from "../kit/signals.ts";
import { type LockNode, notConnected, plainError, requestError } from "../nodes/node.ts";
import type { NodeScript } from "../rules/script.ts";
import type { Batcher } from "./batcher.ts";
import type { RoundEngine } from "./round-engine.ts";

/** Answer of one node. A failure is part of the data, never a rejection. */
export type NodeReply =
  | { readonly node: string; readonly tookMs: number; readonly ok: true; readonly value: unknown }
  | { readonly node: string; readonly tookMs: number; readonly ok: false; readonly error: Error };

export interface ScriptOptions {
  /**
   * Called with the answers so far after each answer. If the function returns true, the call resolves with these
   * answers, so that a node that hangs costs nothing once the answers suffice. Default: wait for all nodes.
   */
  readonly enough?: ((replies: readonly NodeReply[]) => boolean) | undefined;
}

export interface ScriptInput {
  readonly keys: readonly string[];
  readonly args: readonly (string | number)[];
}

export interface ScriptCall extends ScriptInput {
  readonly script: NodeScript;
}

interface RunRequest {
  readonly keys: readonly string[];
  readonly args: readonly string[];
  readonly timeoutMs: number;
  readonly enough?: ScriptOptions["enough"];
}

const SCRIPT = shaped<NodeScript>("a script of defineScript", ({ name, source, sha1 }) =>
  [name, source, sha1].every((each) => typeof each === "string"),
);

const INPUT = new Schema({ keys: texts, args: textsAndNumbers } satisfies ShapeOf<ScriptInput>);

const OPTIONS = new Schema({
  enough: callback<(replies: readonly NodeReply[]) => boolean>().optional(),
} satisfies ShapeOf<ScriptOptions>);

/** Checks the arguments of `RedlockProtocol.run`. */
export function resolveRun(
  script: NodeScript,
  input: ScriptInput,
  options: ScriptOptions,
  timeoutMs: number,
): RunRequest {
  SCRIPT.of("script", script);
  const { keys, args } = INPUT.resolve(input, "request");
  const { enough } = OPTIONS.resolve(options);
  return { keys, args: args.map(String), timeoutMs, enough };
}

/**
 * Runs a script on every node. Resolves when every node has answered, when the answers suffice, or when the time is
 * over.
 */
export function runEverywhere(
  engine: RoundEngine,
  script: NodeScript,
  request: RunRequest,
): Promise<readonly NodeReply[]> {
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

/** Answer to a script that replies a list. */
export type ListReply =
  | (NodeReply & { readonly ok: false })
  | (NodeReply & { readonly ok: true; readonly value: readonly string[] });

/** Runs a script that replies a list. If a custom node replies anything else, its answer counts as failed. */
export async function listsEverywhere(
  engine: RoundEngine,
  script: NodeScript,
  request: RunRequest,
): Promise<readonly ListReply[]> {
  const replies = await runEverywhere(engine, script, request);
  return replies.map((reply): ListReply => {
    if (!reply.ok) return reply;
    const { node, tookMs, value } = reply;
    if (Array.isArray(value)) return { node, tookMs, ok: true, value: value.map(String) };
    return { node, tookMs, ok: false, error: new Error(`unexpected reply ${show(value)}`) };
  });
}

/** Runs a script on one node. Never rejects. */
export async function runOn(
  engine: RoundEngine,
  batcher: Batcher,
  script: NodeScript,
  request: RunRequest,
): Promise<NodeReply> {
  const { node } = batcher;
  const startedMs = engine.clock.monotonicMs();
  const deadline = startDeadline(engine, request.timeoutMs);
  try {
    if (node.state === "connecting") {
      await untilNodes([node], () => node.state !== "connecting", deadline.over);
      if (node.state === "connecting") throw notConnected(node, " in time");
    }
    const ask = (): Promise<unknown> => {
      const answer = node.eval(script, request.keys, request.args);
      const heard = (): void => batcher.onScriptAnswered();
      answer.then(heard, heard);
      return Promise.race([answer, deadline.over]);
    };
    const value = await ask().catch((error: unknown) => {
      // The script cache was flushed: nothing has run, and the adapter loads the script again.
      if (error instanceof Error && error.message.startsWith("NOSCRIPT")) return ask();
      throw error;
    });
    if (value === TIMED_OUT) {
      batcher.watch.suspect();
      throw new Error(`no answer within ${Math.round(request.timeoutMs)} ms`);
    }
    return { node: node.name, tookMs: engine.clock.monotonicMs() - startedMs, ok: true, value };
  } catch (error) {
    return {
      node: node.name,
      tookMs: engine.clock.monotonicMs() - startedMs,
      ok: false,
      error: plainError(requestError(error, node)),
    };
  } finally {
    deadline.cancel();
  }
}

const TIMED_OUT: unique symbol = Symbol("timed out");

function startDeadline(
  engine: RoundEngine,
  timeoutMs: number,
): { over: Promise<typeof TIMED_OUT>; cancel: () => void } {
  let cancel: () => void = () => undefined;
  const over = new Promise<typeof TIMED_OUT>((resolve) => {
    cancel = engine.clock.schedule(timeoutMs, () => resolve(TIMED_OUT), { keepAlive: true });
  });
  return { over, cancel };
}

/** Resolves when `isDone` returns true, now or after a change of a node's state, or when `over` resolves. */
export async function untilNodes(
  nodes: readonly LockNode[],
  isDone: () => boolean,
  over: Promise<unknown>,
): Promise<void> {
  const { promise: done, resolve } = deferred<void>();
  const check = (): void => {
    if (isDone()) resolve();
  };
  const stops = nodes.map((node) => node.onStateChange(check));
  check();
  await Promise.race([done, over]);
  for (const stop of stops) stop();
}
