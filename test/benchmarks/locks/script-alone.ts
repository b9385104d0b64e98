/**
 * The smallest program that keeps a lock's promises: the library's own script on every node, a fresh token, a ballot above the last one, a
 * quorum, and both clocks read before the first byte. What `Redlock` costs more are its batches, queues, deadlines, events and handles.
 */
import type { Redis } from "ioredis";
import { readClock, systemClock } from "../../../packages/redlock-core/src/kit/clock.ts";
import { systemRandom } from "../../../packages/redlock-core/src/kit/random.ts";
import { type BatchOperation, BatchRequests } from "../../../packages/redlock-core/src/rounds/batch-request.ts";
import { slotOf } from "../../../packages/redlock-core/src/rules/keys.ts";
import { acquireText, releaseText } from "../../../packages/redlock-core/src/rules/operation.ts";
import { outcome } from "../../../packages/redlock-core/src/rules/quorum.ts";
import { newToken } from "../../../packages/redlock-core/src/rules/token.ts";
import { leaseEnd, remainingMs } from "../../../packages/redlock-core/src/rules/validity.ts";
import { batchScript } from "../../../packages/redlock-core/src/scripts/batch.lua.ts";

const driftFactor = 0.01;

interface ScriptClient {
  lockScript(keyCount: number, ...keysAndArgs: readonly string[]): Promise<unknown>;
}

/** Resolves with the function that gives the lock back. */
export function openScriptAlone(
  clients: readonly Redis[],
  ttlMs: number,
): (resource: string) => Promise<() => Promise<unknown>> {
  for (const client of clients) client.defineCommand("lockScript", { lua: batchScript.source });
  const isAlone = clients.length === 1;
  const requests = new BatchRequests({
    isAlone,
    isCluster: false,
    quarantineMs: 0,
    grantTtlMs: 1_000,
    countsReceivers: true,
    waiterTtlMs: 60_000,
  });
  let ballot = 0;

  /** Resolves when a quorum has answered with a number or a number as text, which is a yes, or cannot any more. */
  const ask = (operation: BatchOperation): Promise<boolean> => {
    const { keys, args } = requests.of([operation]);
    const tally = { yes: 0, no: 0 };
    return new Promise((resolve) => {
      const count = (isYes: boolean): void => {
        if (isYes) tally.yes += 1;
        else tally.no += 1;
        const decided = outcome(tally, clients.length);
        if (decided !== "open") resolve(decided === "won");
      };
      for (const client of clients as unknown as readonly ScriptClient[]) {
        client.lockScript(keys.length, ...keys, ...args).then(
          (reply) => count(!Array.isArray(reply)),
          () => count(false),
        );
      }
    });
  };

  return async (resource) => {
    const asked = readClock(systemClock);
    const end = leaseEnd(asked, ttlMs, driftFactor);
    ballot = Math.max(ballot + 1, asked.wallMs * 1_000);
    const token = newToken(systemRandom);
    const registers = isAlone ? undefined : [String(slotOf(resource))];
    const target = { resources: [resource], keys: [resource], registers, slot: 0 };
    const release = (): Promise<boolean> =>
      ask({ target, text: releaseText(1, token), isAcquisition: false, isRelease: true });
    const text = acquireText(1, token, { ttlMs, ballot: isAlone ? 0 : ballot });
    const isGranted = await ask({ target, text, isAcquisition: true, isRelease: false });
    if (isGranted && remainingMs(end, readClock(systemClock)) > 0) return release;
    await release();
    throw new Error(`${resource} is held`);
  };
}
