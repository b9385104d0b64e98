/** Nodes that answer, each after a while, and more callers than can be served in time. */
import { setTimeout as delay } from "node:timers/promises";
import { startProxy } from "@x/test-support";
import { expect, it, onTestFinished } from "vitest";
import { type Redlock, RedlockError, type RedlockOptions } from "../src/index.ts";
import { everyNodeAnswers, openRedlock, startNodes } from "./support/nodes.ts";

async function behindProxies(
  count: number,
  oneWayMs: number,
  options: RedlockOptions = { nodeTimeout: 1_000 },
): Promise<Redlock> {
  const proxies = await Promise.all((await startNodes(count)).map(({ path }) => startProxy({ path })));
  onTestFinished(async () => {
    await Promise.all(proxies.map((proxy) => proxy.stop()));
  });
  const redlock = openRedlock(
    proxies.map(({ url }) => url),
    options,
  );
  await everyNodeAnswers(redlock);
  await (await redlock.acquire("warm")).release();
  for (const proxy of proxies) proxy.delay(oneWayMs);
  return redlock;
}

async function outcomeOf(call: Promise<AsyncDisposable>, workMs = 0): Promise<string> {
  try {
    await using _lock = await call;
    await delay(workMs);
    return "granted";
  } catch (error) {
    return error instanceof RedlockError ? error.code : String(error);
  }
}

it.each([
  [1, 2, 10],
  [3, 2, 10],
  [1, 10, 50],
])(
  "callers that compete for a lock cause no node errors: %i nodes, round trip of %i ms, %i callers",
  async (nodes, roundTripMs, callers) => {
    const redlock = await behindProxies(nodes, roundTripMs / 2);
    const told = new Set<string>();
    redlock.on("acquired", () => told.add("acquired"));
    redlock.on("acquireFailed", ({ reason }) => told.add(reason));
    const outcomes = new Set<string>();
    const call = async (caller: number): Promise<void> => {
      const waiting = redlock.acquire("r", { timeout: 1_000 + caller });
      outcomes.add(await outcomeOf(waiting, 2_000 / callers));
    };
    for (let round = 0; round < 5; round += 1) {
      await Promise.all(Array.from({ length: callers }, async (_, caller) => await call(caller)));
    }
    expect([...outcomes].toSorted()).toEqual(["LOCK_HELD", "granted"]);
    expect([...told].toSorted()).toEqual(["acquired", "held"]);
  },
);

it("a caller and the callers behind it reject with LOCK_HELD if other callers left no time for an answer", async () => {
  const redlock = await behindProxies(1, 500, { nodeTimeout: 5_000 });
  const told: string[] = [];
  const lock = await redlock.acquire("r");
  redlock.on("acquired", () => told.push("acquired"));
  redlock.on("acquireFailed", ({ reason }) => told.push(reason));
  const calls = [1, 2, 3].map(async () => await outcomeOf(redlock.acquire("r", { timeout: 2_000 })));
  // Less than a round trip of a second is left to the callers.
  await delay(1_500);
  await lock.release();
  expect(await Promise.all(calls)).toEqual(["LOCK_HELD", "LOCK_HELD", "LOCK_HELD"]);
  expect(told).toEqual(["held", "held", "held"]);
});

it("a caller and the callers behind it reject with QUORUM_UNREACHABLE if no answer arrives within a short timeout", async () => {
  const redlock = await behindProxies(1, 500);
  const calls = [1, 2, 3].map(async () => await outcomeOf(redlock.acquire("r", { timeout: 50 })));
  expect(await Promise.all(calls)).toEqual(["QUORUM_UNREACHABLE", "QUORUM_UNREACHABLE", "QUORUM_UNREACHABLE"]);
});

it("a caller rejects with QUORUM_UNREACHABLE if its timeout ends before the caller ahead has an answer", async () => {
  const redlock = await behindProxies(1, 500, { nodeTimeout: 5_000 });
  const first = outcomeOf(redlock.acquire("r", { timeout: 5_000 }));
  expect(await outcomeOf(redlock.acquire("r", { timeout: 50 }))).toBe("QUORUM_UNREACHABLE");
  expect(await first).toBe("granted");
});
