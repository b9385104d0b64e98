import { coordinator } from "@x/leader/node-cron";
import { QuorumUnreachableError, type Redlock } from "@x/redlock-core";
import { createTask, type RunCoordinator, type TaskContext } from "node-cron";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { type Nodes, startNodes } from "./support/redis.ts";
import { VirtualLab } from "./support/virtual-lab.ts";

const TICK = "report:2026-01-01T03:00:00.000Z";
const LEASE_MS = 30_000;

describe.each([1, 5])("a coordinator on %i nodes", (count) => {
  let nodes: Nodes;
  beforeAll(async () => {
    nodes = await startNodes(count);
  });
  afterAll(() => nodes[Symbol.asyncDispose]());

  const replica = (): Redlock => nodes.redlock({ maxTtl: 60_000, nodeTimeout: 5_000 });

  it("gives each tick to one of the replicas that ask for it at the same time", async () => {
    const replicas = Array.from({ length: 8 }, () => coordinator(replica()));
    for (let tick = 0; tick < 20; tick += 1) {
      const told = await Promise.all(replicas.map((one) => one.shouldRun(`together:${tick}`, LEASE_MS)));
      expect(told.filter(Boolean)).toHaveLength(1);
    }
  });

  it("keeps the claim when the run has ended and its replica is gone", async () => {
    const first = replica();
    expect(await coordinator(first).shouldRun("kept", LEASE_MS)).toBe(true);
    await first.close();
    expect(await coordinator(replica()).shouldRun("kept", LEASE_MS)).toBe(false);
  });

  it("keeps the claim for maxTtl, or for claimFor and the task's distributedLease", async () => {
    const locks = replica();
    const lastsFor = async (name: string): Promise<number> => (await locks.inspect(`node-cron:${name}`)).remainingMs;
    await coordinator(locks).shouldRun("default", 1);
    await coordinator(locks, { claimFor: 5_000 }).shouldRun("short", 1);
    await coordinator(locks, { claimFor: 5_000 }).shouldRun("long", 40_000);
    await coordinator(locks, { claimFor: 5_000 }).shouldRun("longest", 3_600_000);
    expect(await lastsFor("default")).toBeGreaterThan(50_000);
    expect(await lastsFor("short")).toBeLessThanOrEqual(5_000);
    expect(await lastsFor("long")).toBeGreaterThan(5_000);
    expect(await lastsFor("longest")).toBeLessThanOrEqual(60_000);
  });

  it("runs each tick of a task once in three replicas of node-cron", async () => {
    const runs: string[] = [];
    const skipped: TaskContext[] = [];
    const tasks = Array.from({ length: 3 }, () => {
      const runCoordinator: RunCoordinator = coordinator(replica(), { prefix: "each-second:" });
      const run = ({ dateLocalIso }: TaskContext): void => void runs.push(dateLocalIso);
      const task = createTask("* * * * * *", run, { name: "report", distributed: true, runCoordinator });
      task.on("execution:skipped", (context) => void skipped.push(context));
      return task;
    });
    onTestFinished(async () => {
      for (const task of tasks) await task.destroy();
    });
    for (const task of tasks) await task.start();
    await expect.poll(() => runs.length, { timeout: 20_000 }).toBeGreaterThanOrEqual(3);
    await expect.poll(() => skipped.length, { timeout: 20_000 }).toBeGreaterThanOrEqual(6);
    expect(new Set(runs).size).toBe(runs.length);
    expect(new Set(skipped.map(({ reason }) => reason))).toEqual(new Set(["not-elected"]));
  });
});

it("runs no task without a quorum, and rejects with the reason", async () => {
  await using nodes = await startNodes(3);
  const locks = nodes.redlock({ maxTtl: 60_000 });
  for (const server of nodes.servers.slice(1)) await server.stop();
  await expect(coordinator(locks).shouldRun(TICK, LEASE_MS)).rejects.toThrow(QuorumUnreachableError);
});

it("refuses invalid claims", async () => {
  await using nodes = await startNodes(1);
  const locks = nodes.redlock({ ttl: 10_000, maxTtl: 10_000 });
  expect(() => coordinator(locks, { claimFor: 10_001 })).toThrow(
    "claimFor must be an integer from 3000 to 10000 (ms), got 10001",
  );
  expect(() => coordinator(locks, { claimFor: 2_999 })).toThrow(RangeError);
  expect(() => coordinator(nodes.redlock({ ttl: 2_000, maxTtl: 2_000 }))).toThrow(
    "redlock.options.maxTtl must be an integer >= 3000 (ms), got 2000",
  );
  const { shouldRun } = coordinator(locks);
  await expect(shouldRun("", LEASE_MS)).rejects.toThrow(RangeError);
  await expect(shouldRun(TICK, 0)).rejects.toThrow(RangeError);
});

it("makes claims that are never reported as lost, because they end at their time", async () => {
  const lab = new VirtualLab();
  const locks = lab.redlock();
  const told: unknown[] = [];
  locks.on("lost", ({ resources }) => told.push(["lost", ...resources]));
  locks.on("released", ({ resources, confirmed }) => told.push(["release", confirmed, ...resources]));
  expect(await lab.clock.until(coordinator(locks, { claimFor: 3_000 }).shouldRun(TICK, 1))).toBe(true);
  await lab.clock.advance(2_900);
  expect(told).toEqual([]);
  await lab.clock.advance(200);
  expect(told).toEqual([["release", false, `node-cron:${TICK}`]]);
});
