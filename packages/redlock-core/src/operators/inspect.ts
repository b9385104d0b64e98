/** `inspect()` asks all nodes about a resource and combines their answers. */

import type { Engine } from "../lock/engine.ts";
import { clientNames } from "../rounds/client-name.ts";
import { listsEverywhere } from "../rounds/run.ts";
import { quarantineLeftMs } from "../rules/quarantine.ts";
import { quorumLargest } from "../rules/quorum.ts";
import { readReply } from "../rules/script.ts";
import { clientOf } from "../rules/token.ts";
import { INSPECT_REPLY, inspectScript } from "../scripts/inspect.lua.ts";

export interface NodeInspection {
  readonly node: string;
  /** Why the node could not be asked. The fields below are absent in this case. */
  readonly error?: string;
  /**
   * State of the resource on this node:
   * - `free`: the resource is free.
   * - `held`: the resource is locked.
   * - `reserved`: the resource is kept for a waiter for a moment.
   * - `not-a-lock`: the key has another type. The key is not a lock of this library, but nobody can acquire the
   *   resource.
   */
  readonly state?: "free" | "held" | "reserved" | "not-a-lock";
  /** Milliseconds until the key expires. -1 if the key never expires, or if the resource is free. */
  readonly ttlMs?: number;
  /**
   * Largest fencing token that the node has granted for any resource of the same register. A single node has one
   * register for all resources.
   */
  readonly fencingToken?: number;
  /** Number of waiters in the line. */
  readonly waiters?: number;
  /** Milliseconds for which the node does not vote, because it has restarted or lost its data. */
  readonly quarantineLeftMs?: number;
}

export interface Inspection {
  readonly resource: string;
  /**
   * Combined result of all nodes:
   * - `held`: one holder, or a key of another type, has the resource on a quorum.
   * - `free`: the resource is free on a quorum.
   * - `contended`: the resource is neither held nor free on a quorum.
   * - `unknown`: no quorum answered.
   */
  readonly verdict: "held" | "free" | "contended" | "unknown";
  /**
   * Milliseconds until the holder loses its quorum unless it extends the lock: the quorum-th largest lifetime of its
   * keys. 0 if the resource is not held, Infinity if the keys of a quorum never expire.
   */
  readonly remainingMs: number;
  /** Option `name` of the holder's `Redlock`. Undefined if the resource is not held, or the holder has no name. */
  readonly holder: string | undefined;
  /** Largest fencing token that any node remembers. */
  readonly fencingToken: number | undefined;
  readonly nodes: readonly NodeInspection[];
}

interface Reading {
  readonly inspection: NodeInspection;
  readonly value: string;
}

export async function inspect(engine: Engine, resource: string): Promise<Inspection> {
  const { quarantine, nodeTimeout } = engine.options;
  const target = engine.targets.of([resource]);
  const fencing = engine.targets.fencingPlaceOf(target);
  const [lockKey = ""] = target.keys;
  const replies = await listsEverywhere(engine, inspectScript, {
    keys: [fencing.key, lockKey, engine.targets.lineKeysOf(target)[0]],
    args: [fencing.register, quarantine ? "1" : "0"],
    timeoutMs: nodeTimeout,
  });
  const readings = replies.map(
    (reply): Reading =>
      reply.ok
        ? readingOf(engine, reply.node, reply.value)
        : { inspection: { node: reply.node, error: reply.error.message }, value: "" },
  );
  const { token, ...concluded } = conclude(engine, readings);
  const client = token === undefined ? undefined : clientOf(token);
  const holder = client === undefined ? undefined : (await clientNames(engine, [client])).get(client);
  return { resource, ...concluded, holder, nodes: readings.map((reading) => reading.inspection) };
}

function readingOf(engine: Engine, node: string, reply: readonly string[]): Reading {
  const { value, pttl, fence, waiters, seconds, micros, runId, knownRunId, since } = readReply(INSPECT_REPLY, reply);
  const nowUs = Number(seconds) * 1_000_000 + Number(micros);
  const inspection: NodeInspection = {
    node,
    state: stateOf(value),
    ttlMs: Math.max(Number(pttl), -1),
    waiters: Number(waiters),
    quarantineLeftMs: quarantineLeftMs(engine.quarantineMs, {
      nowUs,
      runId,
      knownRunId,
      sinceUs: Number(since),
    }),
    ...(fence === "" ? {} : { fencingToken: Number(fence) }),
  };
  return { inspection, value };
}

function stateOf(value: string): "free" | "held" | "reserved" | "not-a-lock" {
  if (value === "") return "free";
  if (value.startsWith("type:")) return "not-a-lock";
  return value.startsWith("reserved:") ? "reserved" : "held";
}

function conclude(
  engine: Engine,
  readings: readonly Reading[],
): Pick<Inspection, "verdict" | "remainingMs" | "fencingToken"> & {
  /** Token that a quorum of nodes stores. */
  readonly token?: string;
} {
  const nodeCount = engine.nodes.length;
  const fences = readings.flatMap(({ inspection }) =>
    inspection.fencingToken === undefined ? [] : [inspection.fencingToken],
  );
  const fencingToken = fences.length === 0 ? undefined : Math.max(...fences);
  const answered = readings.filter(({ inspection }) => inspection.error === undefined);
  if (answered.length < engine.quorum) return { verdict: "unknown", remainingMs: 0, fencingToken };
  const lives = new Map<string, number[]>();
  for (const { inspection, value } of answered) {
    if (inspection.state !== "held" && inspection.state !== "not-a-lock") continue;
    const pttl = inspection.ttlMs === -1 ? Number.POSITIVE_INFINITY : (inspection.ttlMs ?? 0);
    lives.set(value, [...(lives.get(value) ?? []), pttl]);
  }
  for (const [token, pttls] of lives) {
    if (pttls.length >= engine.quorum)
      return { verdict: "held", remainingMs: quorumLargest(pttls, nodeCount), fencingToken, token };
  }
  const free = answered.filter(({ inspection }) => inspection.state === "free").length;
  return { verdict: free >= engine.quorum ? "free" : "contended", remainingMs: 0, fencingToken };
}
