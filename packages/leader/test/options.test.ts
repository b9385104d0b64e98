/** An unknown option is refused with the name of the intended one. */
import { LeaderElection, type LeaderElectionOptions, type TaskOptions } from "@x/leader";
import {
  type IntervalOptions,
  LeaderScheduler,
  type ScheduleOptions,
  type SchedulerOptions,
} from "@x/leader/scheduler";
import { Redlock } from "@x/redlock-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";

describe("options", () => {
  let redlock: Redlock;
  let election: LeaderElection;
  let scheduler: LeaderScheduler;
  const task = (): void => undefined;
  const as = (options: object): never => options as never;
  beforeAll(() => {
    redlock = new Redlock([{ path: "/nowhere" }], { quarantine: false });
    election = new LeaderElection(redlock, { name: "x" });
    scheduler = new LeaderScheduler({ election });
  });
  afterAll(async () => {
    await election.stop();
    await redlock.close();
  });

  it.each([
    [{ leaseduration: 5 }, 'unknown option "leaseduration": did you mean "leaseDuration"?'],
    [{ renewDeadlne: 5 }, 'unknown option "renewDeadlne": did you mean "renewDeadline"?'],
    [{ ttl: 5 }, /^unknown option "ttl": known are name, id, value, leaseDuration, /],
    [{ cooldown: 5 }, "cooldown must be an object, got 5"],
    [{ cooldown: { inital: 5 } }, 'unknown option "cooldown.inital": did you mean "cooldown.initial"?'],
    [
      { renewal: { worker: { redlock: "file:///x.js", maxblock: 5 } } },
      'unknown option "renewal.worker.maxblock": did you mean "renewal.worker.maxBlock"?',
    ],
    [{ renewal: { worker: { redlock: "file:///x.js", maxBlock: 500 }, other: 1 } }, /^unknown option "renewal.other"/],
  ])("%j of an election are refused", (options, message) => {
    const make = (): LeaderElection => new LeaderElection(redlock, as({ name: "x", ...options }));
    expect(make).toThrow(TypeError);
    expect(make).toThrow(message);
  });

  it.each([
    ["run", () => election.run(task, as({ onTaskEnds: "stop" })), "onTaskEnd"],
    ["campaign", () => election.campaign(as({ signl: 1 })), "signal"],
    ["tryCampaign", () => election.tryCampaign(as({ signl: 1 })), "signal"],
    ["observe", () => election.observe(as({ Signal: 1 })).next(), "signal"],
    ["stop", async () => election.stop(as({ draintimeout: 1 })), "drainTimeout"],
  ])("of %s() are refused", async (_, call, known) => {
    await expect(call()).rejects.toThrow(TypeError);
    await expect(call()).rejects.toThrow(`did you mean "${known}"?`);
    expect(election.state).toBe("idle");
  });

  it.each([
    ["health()", () => election.health(as({ maxToleratedExpiredLease: 1 })), "maxTolerableExpiredLease"],
    ["a scheduler", () => new LeaderScheduler(as({ election, timeZone: "UTC" })), "timezone"],
    ["cron()", () => scheduler.cron("a", "* * * * *", task, as({ catchUp: "all" })), "catchup"],
    ["every()", () => scheduler.every("a", 1_000, task, as({ offsets: 5 })), "offset"],
    ["add()", () => scheduler.add("a", () => null, task, as({ overlaps: "skip" })), "overlap"],
  ])("of %s are refused", (_, call, known) => {
    expect(call).toThrow(TypeError);
    expect(call).toThrow(`did you mean "${known}"?`);
  });

  it("that are undefined count as left out", async () => {
    const options: LeaderElectionOptions = {
      name: "undefined",
      id: undefined,
      value: undefined,
      leaseDuration: undefined,
      renewDeadline: undefined,
      retryPeriod: undefined,
      jitter: undefined,
      lockDelay: undefined,
      eligible: undefined,
      renewal: undefined,
      cooldown: undefined,
    };
    await using own = new LeaderElection(redlock, options);
    const stopped = new AbortController();
    stopped.abort();
    const run: TaskOptions = {
      onTaskError: undefined,
      onTaskEnd: undefined,
      drainTimeout: undefined,
    };
    await own.run(task, { ...run, signal: stopped.signal });
    const schedule: ScheduleOptions = {
      timezone: undefined,
      catchup: undefined,
      catchupWindow: undefined,
      maxCatchup: undefined,
      overlap: undefined,
      delivery: undefined,
      maxAttempts: undefined,
      jitter: undefined,
      maxRunTime: undefined,
      startAt: undefined,
      endAt: undefined,
      paused: undefined,
    };
    const interval: IntervalOptions = { ...schedule, offset: undefined };
    const all: SchedulerOptions = {
      election: own,
      keyPrefix: undefined,
      timezone: undefined,
      concurrency: undefined,
      drainTimeout: undefined,
    };
    const scheduler = new LeaderScheduler(all);
    const tick = new Date("2030-01-01T00:00:00.000Z");
    expect(scheduler.every("a", 60_000, task, interval).next(tick)).toEqual(new Date("2030-01-01T00:01:00.000Z"));
    expect(scheduler.cron("b", "@hourly", task, schedule).next(tick)).toEqual(new Date("2030-01-01T01:00:00.000Z"));
    expect(own.health({ maxTolerableExpiredLease: undefined })).toMatchObject({ healthy: true, state: "idle" });
    expect(new LeaderElection(redlock, { name: "x", cooldown: { initial: undefined } }).state).toBe("idle");
    await own.stop({ drainTimeout: undefined });
  });

  it.each([["redis://:secret@host"], [undefined], [null], [{}], [[]], [Redlock]])(
    "of an election without a Redlock are not checked",
    (given) => {
      const make = (): LeaderElection => new LeaderElection(as(given as object), { name: "x" });
      expect(make).toThrow(TypeError);
      expect(make).toThrow(/^redlock must be a Redlock \(of @x\/redlock-core\), got (?!.*secret)/);
    },
  );
});
