/**
 * The smallest programs that keep a lock's promises: the library's own script on every node, a fresh token, a ballot
 * above the last ballot, a quorum, and all clocks read before the first byte. One program sends each operation by
 * itself. The other sends the operations of a turn together, in the same bytes and portions as the library. The
 * additional cost of `Redlock` is the cost of its queues, deadlines, leases, handles, events and cancellation.
 */
import type { Redis } from "ioredis";
import { readClock, systemClock } from "../../../packages/redlock-core/src/kit/clock.ts";
import { systemRandom } from "../../../packages/redlock-core/src/kit/random.ts";
import { IoredisNode } from "../../../packages/redlock-core/src/nodes/ioredis.ts";
import { type BatchOperation, BatchRequests } from "../../../packages/redlock-core/src/rounds/batch-request.ts";
import { slotOf } from "../../../packages/redlock-core/src/rules/keys.ts";
import { acquireText, releaseText } from "../../../packages/redlock-core/src/rules/operation.ts";
import { outcome } from "../../../packages/redlock-core/src/rules/quorum.ts";
import { newToken } from "../../../packages/redlock-core/src/rules/token.ts";
import { leaseEnd, remainingMs } from "../../../packages/redlock-core/src/rules/validity.ts";
import { batchScript } from "../../../packages/redlock-core/src/scripts/batch.lua.ts";

const driftFactor = 0.01;

/** The number of operations that the library puts into one request. */
const FULL_REQUEST = { oneNode: 50, severalNodes: 100 } as const;

interface ScriptClient {
  lockScript(keyCount: number, ...keysAndArgs: readonly string[]): Promise<unknown>;
}

type Acquire = (resource: string) => Promise<() => Promise<unknown>>;

/** Sends an operation to all nodes, and calls `count` with each answer. */
type Send = (operation: BatchOperation, count: (isYes: boolean) => void) => void;

/** Each operation is a separate request. */
export function openScriptAlone(clients: readonly Redis[], ttlMs: number): Acquire {
  for (const client of clients) client.defineCommand("lockScript", { lua: batchScript.source });
  const requests = requestsOf(clients.length);
  return acquireBy(clients.length, ttlMs, (operation, count) => {
    const { keys, args } = requests.of([operation]);
    for (const client of clients as unknown as readonly ScriptClient[]) {
      client.lockScript(keys.length, ...keys, ...args).then(
        (reply) => count(!Array.isArray(reply)),
        () => count(false),
      );
    }
  });
}

interface Sent {
  readonly operation: BatchOperation;
  readonly count: (isYes: boolean) => void;
}

/** The operations of a turn share a request, through the library's own adapter. */
export function openScriptTogether(clients: readonly Redis[], ttlMs: number): Acquire {
  const nodes = clients.map((client) => IoredisNode.of(client, { nodeTimeoutMs: ttlMs, clock: systemClock }));
  const requests = requestsOf(clients.length);
  const size = clients.length === 1 ? FULL_REQUEST.oneNode : FULL_REQUEST.severalNodes;
  const ready = Promise.all(nodes.map((node) => new Promise<void>((resolve) => node.onStateChange(resolve))));
  let pending: Sent[] = [];
  let greatest: string | undefined;
  const flush = (): void => {
    const batch = pending;
    if (batch.length === 0) return;
    pending = [];
    const { keys, args } = requests.of(
      batch.map(({ operation }) => operation),
      greatest,
    );
    for (const node of nodes) {
      node.eval(batchScript, keys, args).then(
        (reply) => {
          if (typeof reply === "string" && reply > (greatest ?? "")) greatest = reply;
          for (const [index, { count }] of batch.entries()) {
            count(!Array.isArray(reply) || typeof reply[index + 2] === "number");
          }
        },
        () => {
          for (const { count } of batch) count(false);
        },
      );
    }
  };
  const acquire = acquireBy(clients.length, ttlMs, (operation, count) => {
    if (pending.length === 0) process.nextTick(flush);
    pending.push({ operation, count });
    if (pending.length === size) flush();
  });
  let isReady = false;
  return async (resource) => {
    if (!isReady) await ready;
    isReady = true;
    return await acquire(resource);
  };
}

function requestsOf(nodeCount: number): BatchRequests {
  return new BatchRequests(
    {
      isAlone: nodeCount === 1,
      isCluster: false,
      quarantineMs: 0,
      grantTtlMs: 1_000,
      countsReceivers: true,
      waiterTtlMs: 60_000,
    },
    systemClock,
  );
}

/** Resolves with the function that releases the lock. */
function acquireBy(nodeCount: number, ttlMs: number, send: Send): Acquire {
  const isAlone = nodeCount === 1;
  let ballot = 0;

  /** Resolves when a quorum has accepted, or no quorum is possible any more. */
  const ask = (operation: BatchOperation): Promise<boolean> => {
    const tally = { yes: 0, no: 0 };
    return new Promise((resolve) => {
      send(operation, (isYes) => {
        if (isYes) tally.yes += 1;
        else tally.no += 1;
        const decided = outcome(tally, nodeCount);
        if (decided !== "open") resolve(decided === "won");
      });
    });
  };

  return async (resource) => {
    const asked = readClock(systemClock);
    const end = leaseEnd(asked, ttlMs, driftFactor);
    ballot = Math.max(ballot + 1, asked.wallMs * 1_000);
    const token = newToken(systemRandom);
    const registers = isAlone ? undefined : [String(slotOf(resource))];
    const target = { resources: [resource], keys: [resource], registers, slot: 0 };
    const release = (): Promise<boolean> => ask({ target, text: releaseText(1, token), kind: "release" });
    const text = acquireText(1, token, { ttlMs, ballot: isAlone ? 0 : ballot });
    const isGranted = await ask({ target, text, kind: "acquire" });
    if (isGranted && remainingMs(end, readClock(systemClock)) > 0) return release;
    await release();
    throw new Error(`${resource} is held`);
  };
}
