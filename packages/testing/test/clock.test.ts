import { LeaderElection } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { Redlock } from "@x/redlock-core";
import { defineScript } from "@x/redlock-core/protocol";
import { memoryNodes, VirtualClock, type VirtualProcess } from "@x/testing";
import { describe, expect, it } from "vitest";

describe("a virtual clock", () => {
  it("stands still until a test advances it", async () => {
    const clock = new VirtualClock({ startAt: Date.UTC(2026, 0, 1) });
    const before = clock.monotonicMs();
    await clock.advance(3_600_000);
    expect(clock.monotonicMs() - before).toBe(3_600_000);
    expect(new Date(clock.wallMs()).toISOString()).toBe("2026-01-01T01:00:00.000Z");
  });

  it("runs due events in order, each with its promise continuations", async () => {
    const clock = new VirtualClock();
    const told: string[] = [];
    const work = async (name: string, ms: number): Promise<void> => {
      await clock.sleep(ms);
      told.push(`${name} at ${clock.elapsedMs}`);
      await clock.sleep(ms);
      told.push(`${name} at ${clock.elapsedMs}`);
    };
    const done = Promise.all([work("slow", 30), work("fast", 10)]);
    await clock.advance(25);
    expect(told).toEqual(["fast at 10", "fast at 20"]);
    await clock.until(done);
    expect(told.slice(2)).toEqual(["slow at 30", "slow at 60"]);
  });

  it("rejects when an awaited promise does not settle in time", async () => {
    const clock = new VirtualClock();
    await expect(clock.until(new Promise(() => undefined), { within: 500 })).rejects.toThrow(
      "did not settle within 500 ms of virtual time",
    );
    expect(clock.elapsedMs).toBe(500);
  });

  it("ends a sleep with the signal's reason, and drops its timer", async () => {
    const clock = new VirtualClock();
    const controller = new AbortController();
    const slept = clock.sleep(1_000, { signal: controller.signal });
    controller.abort(new Error("enough"));
    await expect(slept).rejects.toThrow("enough");
  });

  it("steps the wall clock of one process only", async () => {
    const clock = new VirtualClock();
    const other = clock.process("other");
    other.skew(-5_000);
    expect(other.wallMs() - clock.wallMs()).toBe(-5_000);
    expect(other.monotonicMs()).toBe(clock.monotonicMs());
  });
});

it("an election changes hands when the leader's process dies", async () => {
  const clock = new VirtualClock();
  const nodes = memoryNodes(3, { clock });
  const candidate = (name: string): { readonly process: VirtualProcess; readonly election: LeaderElection } => {
    const process = clock.process(name);
    const redlock = new Redlock(memoryNodes(nodes, { clock: process }), { clock: process });
    return { process, election: new LeaderElection(redlock, { name: "reports", id: name }) };
  };
  const [first, second] = [candidate("first"), candidate("second")];
  const term = await clock.until(first.election.campaign());
  const campaign = second.election.campaign();
  await clock.advance(60_000);
  expect([term.isCurrent(), second.election.isLeader()]).toEqual([true, false]);
  first.process.kill();
  const next = await clock.until(campaign);
  expect([term.isCurrent(), next.isCurrent()]).toEqual([false, true]);
  expect(next.fencingToken).toBeGreaterThan(term.fencingToken);
});

it("a schedule ticks through midnight in virtual time", async () => {
  const clock = new VirtualClock({ startAt: Date.UTC(2026, 0, 1, 23, 45) });
  const redlock = new Redlock(memoryNodes(3, { clock }), { clock });
  const election = new LeaderElection(redlock, { name: "nightly" });
  const scheduler = new LeaderScheduler({ election });
  const ticks: string[] = [];
  scheduler.cron("report", "*/10 * * * *", () => ticks.push(new Date(clock.wallMs()).toISOString().slice(0, 16)), {
    timezone: "UTC",
  });
  scheduler.start();
  await clock.advance(30 * 60_000);
  expect(ticks).toEqual(["2026-01-01T23:50", "2026-01-02T00:00", "2026-01-02T00:10"]);
  await clock.until(scheduler.stop());
  await clock.until(election.stop());
});

it("any other script runs on a node, and one with an unknown command fails by its name", async () => {
  const clock = new VirtualClock();
  const [node] = memoryNodes(1, { clock });
  await clock.advance(1);
  const permits = defineScript(
    "permits",
    `redis.call("ZREMRANGEBYSCORE", KEYS[1], "-inf", ARGV[1])
     if redis.call("ZCARD", KEYS[1]) >= 2 then return 0 end
     redis.call("ZADD", KEYS[1], ARGV[1] + 1000, ARGV[2])
     return 1`,
  );
  const take = (nowMs: number, who: string): Promise<unknown> | undefined =>
    node?.eval(permits, ["permits"], [String(nowMs), who]);
  expect([await take(1, "a"), await take(2, "b"), await take(3, "c"), await take(1_002, "c")]).toEqual([1, 1, 0, 1]);
  const unknown = node?.eval(defineScript("geo", "return redis.call('GEOADD', KEYS[1])"), ["k"], []);
  await expect(unknown).rejects.toThrow("the simulated Redis has no GEOADD");
  await expect(clock.advance(0)).rejects.toThrow("GEOADD");
});
