import { LeaderElection } from "@x/leader";
import { LeaderScheduler, type ScheduleOptions, type Tick, type TickHandler } from "@x/leader/scheduler";
import { systemClock } from "@x/redlock-core";
import type { RedisServer } from "@x/test-support";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { pause } from "../support/lab.ts";
import { LEASE, type Nodes, startNodes } from "../support/redis.ts";

interface Replica extends AsyncDisposable {
  readonly election: LeaderElection;
  readonly scheduler: LeaderScheduler;
}

/** The clock of a replica that starts after a time without a leader. */
const afterGap = (): number => systemClock.wallMs() + 2_500;

describe("LeaderScheduler", () => {
  let nodes: Nodes;
  beforeAll(async () => {
    nodes = await startNodes(3);
  });
  afterAll(async () => {
    await nodes[Symbol.asyncDispose]();
  });

  function replica(
    name: string,
    id: string,
    drainTimeout?: number,
    wallMs = (): number => systemClock.wallMs(),
  ): Replica {
    const redlock = nodes.redlock({ clock: { ...systemClock, wallMs }, nodeTimeout: 700 });
    const election = new LeaderElection(redlock, { name, id, ...LEASE, cooldown: { initial: 10 } });
    const scheduler = new LeaderScheduler({ election, ...(drainTimeout === undefined ? {} : { drainTimeout }) });
    return {
      election,
      scheduler,
      async [Symbol.asyncDispose](): Promise<void> {
        await scheduler.stop();
        await election.stop();
      },
    };
  }

  async function untilTicked(ticks: readonly Tick[], count: number): Promise<void> {
    await expect.poll(() => ticks.length, { timeout: 20_000 }).toBeGreaterThanOrEqual(count);
  }

  it("runs each tick on one of two replicas, and continues after a hand-over", async () => {
    await using a = replica("handover", "a");
    await using b = replica("handover", "b");
    const ticks: { by: string; tick: Tick }[] = [];
    for (const each of [a, b]) {
      each.scheduler.every("fast", 100, (tick) => ticks.push({ by: each.election.id, tick }), {
        catchup: "all",
        overlap: "allowAll",
      });
      each.scheduler.start();
    }
    await expect.poll(() => ticks.length).toBeGreaterThan(5);
    const leader = a.election.isLeader() ? a : b;
    await leader.scheduler.stop();
    const before = ticks.length;
    await expect.poll(() => ticks.length).toBeGreaterThan(before + 5);
    const ids = ticks.map(({ tick }) => tick.id);
    expect(new Set(ids).size).toBe(ids.length);
    const times = ticks.map(({ tick }) => tick.scheduledAt.getTime());
    expect(times).toEqual(times.map((_, index) => (times[0] ?? 0) + 100 * index));
    expect(new Set(ticks.map(({ by }) => by)).size).toBe(2);
  });

  it("catches up on ticks that passed without a leader", async () => {
    const ticks: Tick[] = [];
    const options: ScheduleOptions = { catchup: "all", catchupWindow: 60_000 };
    {
      await using first = replica("gap", "a");
      first.scheduler.every("fast", 200, (tick) => ticks.push(tick), options);
      first.scheduler.start();
      await untilTicked(ticks, 3);
    }
    const before = ticks.length;
    await using second = replica("gap", "b", undefined, afterGap);
    second.scheduler.every("fast", 200, (tick) => ticks.push(tick), options);
    second.scheduler.start();
    await untilTicked(ticks, before + 15);
    const times = ticks.map((tick) => tick.scheduledAt.getTime());
    expect(times).toEqual(times.map((_, index) => (times[0] ?? 0) + 200 * index));
    expect(ticks[before]?.catchup).toBe(true);
    expect(ticks[before]?.lastRunAt?.getTime()).toBe(times[before - 1]);
  });

  it("stops in one drainTimeout even if a handler does not end", async () => {
    await using stubborn = replica("stubborn", "a", 1_000);
    const ends: (() => void)[] = [];
    stubborn.scheduler.every("fast", 100, () => new Promise<void>((resolve) => void ends.push(resolve)));
    stubborn.scheduler.start();
    await expect.poll(() => ends.length).toBe(1);
    const order: string[] = [];
    let another: NodeJS.Timeout | undefined;
    stubborn.election.on("drainTimedOut", () => {
      order.push("one drainTimeout");
      another = setTimeout(() => order.push("another"), 1_000);
    });
    await stubborn.scheduler.stop();
    clearTimeout(another);
    expect(order).toEqual(["one drainTimeout"]);
    ends[0]?.();
  });

  describe("the drainTimeout of stop()", () => {
    /** A replica that leads, and runs a handler that only `end` ends. */
    async function stubborn(name: string, drainTimeout: number): Promise<Replica & { readonly end: () => void }> {
      const own = replica(name, "a", drainTimeout);
      const ends: (() => void)[] = [];
      own.scheduler.every("fast", 100, () => new Promise<void>((resolve) => void ends.push(resolve)));
      own.scheduler.start();
      await expect.poll(() => ends.length).toBe(1);
      return { ...own, end: () => ends[0]?.() };
    }

    it("applies if it is shorter than the scheduler's", async () => {
      await using patient = await stubborn("patient", 600_000);
      let timeouts = 0;
      patient.election.on("drainTimedOut", () => (timeouts += 1));
      await patient.scheduler.stop({ drainTimeout: 50 });
      expect([timeouts, patient.election.health().running, patient.election.isLeader()]).toEqual([1, false, true]);
      let isStopped = false;
      const stopped = patient.scheduler.stop().then(() => (isStopped = true));
      await expect.poll(() => patient.election.isLeader()).toBe(false);
      expect(isStopped).toBe(false);
      patient.end();
      await stopped;
    });

    it("applies if it is longer than the scheduler's", async () => {
      await using hasty = await stubborn("hasty", 50);
      const events: string[] = [];
      for (const name of ["drainTimedOut", "ended"] as const) hasty.election.on(name, () => events.push(name));
      const stopped = hasty.scheduler.stop({ drainTimeout: 600_000 });
      // Longer than the scheduler's own timeout, whose timer would fire earlier.
      await pause(200);
      expect([events, hasty.election.isLeader()]).toEqual([[], true]);
      hasty.end();
      await stopped;
      expect([events, await hasty.election.leader()]).toEqual([["ended"], null]);
    });

    it("may be shortened by a later call, but not prolonged", async () => {
      await using own = await stubborn("shortened", 600_000);
      const first = own.scheduler.stop({ drainTimeout: 300_000 });
      const second = own.scheduler.stop({ drainTimeout: 50 });
      await Promise.all([first, second, own.scheduler.stop({ drainTimeout: 600_000 })]);
      expect(own.election.health().running).toBe(false);
      own.end();
    });

    it("does not apply to tasks that the election runs afterwards", async () => {
      await using own = await stubborn("afterwards", 600_000);
      await own.scheduler.stop({ drainTimeout: 50 });
      own.end();
      const controller = new AbortController();
      let end: () => void = () => undefined;
      const runs = own.election.run(() => new Promise<void>((resolve) => (end = resolve)), {
        signal: controller.signal,
      });
      await expect.poll(() => own.election.isLeader(), { timeout: 5_000 }).toBe(true);
      let timeouts = 0;
      own.election.on("drainTimedOut", () => (timeouts += 1));
      controller.abort();
      // Longer than the drainTimeout of the earlier stop(), whose timer would fire earlier.
      await pause(100);
      end();
      await runs;
      expect(timeouts).toBe(0);
    });
  });

  it("runs only the newest missed tick by default, and counts the others", async () => {
    const ticks: Tick[] = [];
    {
      await using first = replica("latest", "a");
      first.scheduler.every("fast", 200, (tick) => ticks.push(tick));
      first.scheduler.start();
      await untilTicked(ticks, 2);
    }
    const before = ticks.length;
    await using second = replica("latest", "b", undefined, afterGap);
    second.scheduler.every("fast", 200, (tick) => ticks.push(tick));
    second.scheduler.start();
    await untilTicked(ticks, before + 3);
    const missed = (await second.scheduler.list())[0]?.missed ?? 0;
    expect(missed).toBeGreaterThan(8);
    const gap = (ticks[before]?.scheduledAt.getTime() ?? 0) - (ticks[before - 1]?.scheduledAt.getTime() ?? 0);
    expect(gap / 200 - 1).toBeLessThanOrEqual(missed);
  });

  it("pauses, resumes and triggers from a process that does not lead", async () => {
    await using leader = replica("orders", "a");
    await using operator = replica("orders", "b");
    const ticks: Tick[] = [];
    const handler: TickHandler = (tick) => ticks.push(tick);
    leader.scheduler.every("fast", 100, handler);
    operator.scheduler.every("fast", 100, handler);
    leader.scheduler.start();
    await untilTicked(ticks, 2);
    const skipped: string[] = [];
    leader.scheduler.on("tickSkipped", ({ reason }) => skipped.push(reason));
    await operator.scheduler.pause("fast");
    await expect.poll(() => skipped.filter((reason) => reason === "paused").length).toBeGreaterThan(3);
    const paused = ticks.length;
    expect((await operator.scheduler.list())[0]).toMatchObject({ name: "fast", paused: true, owner: { id: "a" } });
    await operator.scheduler.trigger("fast");
    await untilTicked(ticks, paused + 1);
    expect(ticks.length).toBe(paused + 1);
    await operator.scheduler.resume("fast");
    await untilTicked(ticks, paused + 4);
    expect(new Set(ticks.map((tick) => tick.id)).size).toBe(ticks.length);
  });

  describe("a request to run a schedule now", () => {
    it("waits for a leader that has the schedule, and is reported once by a leader without it", async () => {
      await using old = replica("deploy", "a");
      await using own = replica("deploy", "b");
      const ran: string[] = [];
      const errors: unknown[] = [];
      old.scheduler.on("error", (error) => errors.push(error));
      old.scheduler.every("old", 3_600_000, () => void ran.push("old"));
      old.scheduler.start();
      for (const name of ["old", "new"]) own.scheduler.every(name, 3_600_000, () => void ran.push(name));
      await own.scheduler.trigger("new");
      await expect.poll(() => errors).toMatchObject([{ code: "UNKNOWN_SCHEDULE", schedule: "new" }]);
      for (const count of [1, 2]) {
        await own.scheduler.trigger("old");
        await expect.poll(() => ran.length).toBe(count);
      }
      own.scheduler.start();
      await old.scheduler.stop();
      await expect.poll(() => ran).toEqual(["old", "old", "new"]);
      expect(errors.length).toBe(1);
      for (const server of nodes.servers)
        await expect.poll(() => server.call("HLEN", "{leader:deploy}:mailbox")).toBe(0);
    });

    it("is not run again by a later leader when a node returns the request again", async () => {
      const field = async (server: RedisServer | undefined, name: string): Promise<string[]> =>
        (await server?.call("HGETALL", `{leader:missed}:${name}`)) as string[];
      const [lost, , away] = nodes.servers;
      await using operator = replica("missed", "op");
      let ran = 0;
      const handler = (): void => void (ran += 1);
      operator.scheduler.every("s", 3_600_000, handler);
      await operator.scheduler.trigger("s");
      await expect.poll(() => field(away, "mailbox")).toHaveLength(2);
      const order = await field(away, "mailbox");
      {
        await using first = replica("missed", "a");
        first.scheduler.every("s", 3_600_000, handler);
        first.scheduler.start();
        await expect.poll(() => ran).toBe(1);
        for (const server of nodes.servers)
          await expect.poll(() => field(server, "mailbox"), { timeout: 10_000 }).toEqual([]);
      }
      await away?.call("HSET", "{leader:missed}:mailbox", ...order);
      await lost?.call("DEL", "{leader:missed}:register");
      await using second = replica("missed", "b");
      second.scheduler.every("s", 3_600_000, handler);
      second.scheduler.start();
      await expect.poll(() => field(away, "mailbox"), { timeout: 20_000 }).toEqual([]);
      await expect.poll(async () => (await field(lost, "register")).includes(String(order[0]))).toBe(true);
      expect(ran).toBe(1);
    });

    it("is dropped by the leader when it is more than a day old", async () => {
      await using operator = replica("stale", "a", undefined, () => systemClock.wallMs() - 25 * 3_600_000);
      await using leader = replica("stale", "b");
      const skipped = new Set<string>();
      let ran = 0;
      for (const name of ["fast", "unknown"]) operator.scheduler.every(name, 3_600_000, () => undefined);
      leader.scheduler.every("fast", 3_600_000, () => (ran += 1));
      leader.scheduler.on("tickSkipped", ({ schedule, reason }) => skipped.add(`${schedule} ${reason}`));
      for (const name of ["unknown", "fast"]) await operator.scheduler.trigger(name);
      leader.scheduler.start();
      await expect.poll(() => skipped).toEqual(new Set(["fast expired", "unknown expired"]));
      for (const server of nodes.servers)
        await expect.poll(() => server.call("HLEN", "{leader:stale}:mailbox")).toBe(0);
      expect(ran).toBe(0);
    });
  });

  describe("ticks that passed without a leader", () => {
    const ahead = (): number => systemClock.wallMs() + 30_000;
    const options: ScheduleOptions = { catchup: "all", maxCatchup: 1_000 };

    it.each(["by pause()", "from the first"])("are not caught up if the schedule was paused, %s", async (how) => {
      const ticks: Tick[] = [];
      const own = { ...options, paused: how === "from the first" };
      {
        await using first = replica(how, "a");
        const told = [0, 0];
        first.scheduler.on("tickStarted", () => (told[0] = 1));
        first.scheduler.on("tickSkipped", () => (told[1] = 1));
        first.scheduler.every("fast", 200, () => undefined, own);
        first.scheduler.start();
        await expect.poll(() => told).toContain(1);
        if (!own.paused) await first.scheduler.pause("fast");
      }
      await using second = replica(how, "b", undefined, ahead);
      second.scheduler.every("fast", 200, (tick) => ticks.push(tick), own);
      const resumedMs = ahead();
      await second.scheduler.resume("fast");
      second.scheduler.start();
      await untilTicked(ticks, 3);
      expect(ticks[0]?.scheduledAt.getTime()).toBeGreaterThan(resumedMs - 1);
      expect((await second.scheduler.list())[0]?.missed).toBe(0);
    });

    it("are caught up if the schedule was not paused when it was resumed", async () => {
      const ticks: Tick[] = [];
      {
        await using first = replica("redundant", "a");
        first.scheduler.every("fast", 200, (tick) => ticks.push(tick), options);
        first.scheduler.start();
        await untilTicked(ticks, 2);
        await first.scheduler.pause("fast");
        await first.scheduler.resume("fast");
        await untilTicked(ticks, ticks.length + 2);
      }
      const before = ticks.length;
      await using second = replica("redundant", "b", undefined, ahead);
      second.scheduler.every("fast", 200, (tick) => ticks.push(tick), options);
      await second.scheduler.resume("fast");
      second.scheduler.start();
      await untilTicked(ticks, before + 1);
      expect(ticks[before]?.lastRunAt).toEqual(ticks[before - 1]?.scheduledAt);
      expect((ticks[before]?.scheduledAt.getTime() ?? 0) - (ticks[before - 1]?.scheduledAt.getTime() ?? 0)).toBe(200);
    });

    it("do not delay a schedule that was resumed by a replica whose clock is an hour ahead", async () => {
      const ticks: Tick[] = [];
      await using operator = replica("hour", "a", undefined, () => systemClock.wallMs() + 3_600_000);
      await using leader = replica("hour", "b");
      operator.scheduler.every("fast", 200, () => undefined);
      leader.scheduler.every("fast", 200, (tick) => ticks.push(tick));
      await operator.scheduler.pause("fast");
      await operator.scheduler.resume("fast");
      leader.scheduler.start();
      await untilTicked(ticks, 3);
    });
  });

  describe("an order to pause or resume", () => {
    /** Returns orders in the mailboxes, or in the register of the leader that has taken them over. */
    const stored = (name: string): Promise<unknown[]> =>
      Promise.all(
        nodes.servers.map(async (server) => {
          const [inMailbox, inRegister] = await Promise.all(
            ["mailbox", "register"].map((hash) => server.call("HGET", `{leader:${name}}:${hash}`, "p:fast")),
          );
          return inMailbox ?? inRegister;
        }),
      );

    it("replaces all earlier orders, even from a replica whose clock is an hour behind", async () => {
      await using leader = replica("behind", "a");
      await using operator = replica("behind", "b", undefined, () => systemClock.wallMs() - 3_600_000);
      const ticks: Tick[] = [];
      leader.scheduler.every("fast", 100, (tick) => ticks.push(tick));
      operator.scheduler.every("fast", 100, () => undefined);
      leader.scheduler.start();
      await untilTicked(ticks, 2);
      await leader.scheduler.pause("fast");
      await operator.scheduler.resume("fast");
      expect((await leader.scheduler.list())[0]?.paused).toBe(false);
      await untilTicked(ticks, ticks.length + 3);
      await operator.scheduler.pause("fast");
      expect((await leader.scheduler.list())[0]?.paused).toBe(true);
      await leader.scheduler.resume("fast");
      await untilTicked(ticks, ticks.length + 3);
      await expect.poll(async () => new Set(await stored("behind")).size).toBe(1);
      expect((await stored("behind"))[0]).toMatch(/^\d+ 0 /);
    });

    it.each([0, 1, 2])("replaces an order that is newer by its clock and only on node %i", async (index) => {
      await using operator = replica(`minority-${index}`, "a");
      operator.scheduler.every("fast", 100, () => undefined);
      await nodes.servers[index]?.call("HSET", `{leader:minority-${index}}:mailbox`, "p:fast", "9000000000000 1 0");
      await operator.scheduler.resume("fast");
      const [first, ...others] = await stored(`minority-${index}`);
      expect(first).toMatch(/^9000000000001 0 /);
      expect(others).toEqual([first, first]);
      expect((await operator.scheduler.list())[0]?.paused).toBe(false);
    });

    it.each([0, 1, 2])(
      "to resume loses no tick because of node %i, which has missed the order, and reaches the node later",
      async (index) => {
        const name = `missed-${index}`;
        await using leader = replica(name, "a");
        const ticks: Tick[] = [];
        const skipped: string[] = [];
        leader.scheduler.every("fast", 100, (tick) => ticks.push(tick));
        leader.scheduler.start();
        await untilTicked(ticks, 1);
        await leader.scheduler.pause("fast");
        const paused = (await stored(name))[0];
        await leader.scheduler.resume("fast");
        await untilTicked(ticks, ticks.length + 2);
        leader.scheduler.on("tickSkipped", ({ reason }) => skipped.push(reason));
        await nodes.servers[index]?.call("DEL", `{leader:${name}}:register`);
        await nodes.servers[index]?.call("HSET", `{leader:${name}}:mailbox`, "p:fast", String(paused));
        await untilTicked(ticks, ticks.length + 5);
        await expect.poll(async () => new Set(await stored(name)).size, { timeout: 10_000 }).toBe(1);
        expect([(await stored(name))[0], skipped.includes("paused")]).toEqual([
          expect.stringMatching(/^\d+ 0 /),
          false,
        ]);
      },
    );

    it("has one outcome on all nodes when two orders are sent at the same time by equal clocks", async () => {
      await using a = replica("tie", "a", undefined, () => 1_000);
      await using b = replica("tie", "b", undefined, () => 1_000);
      for (const { scheduler } of [a, b]) scheduler.every("fast", 100, () => undefined);
      for (let round = 0; round < 50; round += 1) {
        await Promise.all([a.scheduler.pause("fast"), b.scheduler.resume("fast")]);
        expect(new Set(await stored("tie")).size).toBe(1);
      }
    });
  });

  it("refuses invalid expressions, zones, names and options immediately", async () => {
    await using one = replica("bad", "a");
    const { scheduler } = one;
    const nothing: TickHandler = () => undefined;
    expect(() => scheduler.cron("a", "99 * * * *", nothing)).toThrow(/99/);
    expect(() => scheduler.cron("a", "* * * * *", nothing, { timezone: "Mars/Base" })).toThrow(
      new RangeError('timezone must be an IANA time zone, got "Mars/Base"'),
    );
    expect(() => scheduler.every("a", 1_000, nothing, { timezone: "Mars" })).toThrow(/^timezone must be an IANA/);
    expect(() => new LeaderScheduler({ election: one.election, timezone: "Mars" })).toThrow(
      /^timezone must be an IANA/,
    );
    expect(() => scheduler.cron("a:b", "* * * * *", nothing)).toThrow(
      /name must be a string of 1 to 200 characters without ":"/,
    );
    expect(() => scheduler.every("a", 0, nothing)).toThrow(/ms must be an integer >= 1 \(ms\), got 0/);
    expect(() => scheduler.every("a", 200, nothing, { jitter: 201 })).toThrow(
      new RangeError("jitter must be at most the period of 200 ms, got 201"),
    );
    expect(() => scheduler.every("a", 1, nothing, { catchup: "some" as "all" })).toThrow(
      /catchup must be "none", "latest" or "all", got "some"/,
    );
    for (const add of [
      (options: object) => scheduler.cron("a", "* * * * *", nothing, options),
      (options: object) => scheduler.every("a", 1_000, nothing, options),
    ])
      expect(() => add({ timeout: 50 })).toThrow(
        new TypeError('unknown option "timeout": how long a handler may run is maxRunTime'),
      );
    scheduler.every("a", 1_000, nothing);
    expect(() => scheduler.every("a", 1_000, nothing)).toThrow(/name must be new/);
    await expect(scheduler.pause("b")).rejects.toMatchObject({ code: "UNKNOWN_SCHEDULE", schedule: "b" });
  });
});
