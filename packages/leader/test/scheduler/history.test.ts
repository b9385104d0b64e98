import { LeaderElection } from "@x/leader";
import { LeaderScheduler, type SchedulerOptions } from "@x/leader/scheduler";
import { Emitter } from "@x/redlock-core/kit";
import { ManualClock } from "@x/test-support";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { Ledger } from "../../src/record/ledger.ts";
import { SCHEDULER_EVENTS, type SchedulerEvents } from "../../src/scheduler/events.ts";
import { Recorder } from "../../src/scheduler/recorder.ts";
import { type HistoryLine, RegisterStore } from "../../src/scheduler/register-store.ts";
import {
  errorText,
  keyOf,
  lineOf,
  newestIn,
  type PastTick,
  pastOf,
  recordOf,
} from "../../src/scheduler/rules/history.ts";
import { type Tick, tickId } from "../../src/scheduler/tick.ts";
import { type Nodes, startNodes } from "../support/redis.ts";

const LEASE = { leaseDuration: 5_000, renewDeadline: 4_000, retryPeriod: 500 } as const;
const HOUR_MS = 3_600_000;

describe("the lines of a history", () => {
  const began = (scheduledAtMs: number, facts: Partial<PastTick> = {}): PastTick => ({
    outcome: "running",
    scheduledAtMs,
    suffix: "",
    lateMs: 3,
    attempt: 1,
    term: 7,
    ...facts,
  });
  const lines = (...pastTicks: readonly PastTick[]): string =>
    pastTicks.map((each) => `${keyOf(each)} ${lineOf(each, 99)}`).join("");

  it("combine the start and the end of a tick into one record, even if a node has only the start", () => {
    const ended = began(1_000, { outcome: "run", tookMs: 20 });
    for (const texts of [[lines(ended, began(1_000))], [lines(began(1_000)), lines(ended)], [lines(ended), ""]]) {
      expect(pastOf(texts)).toEqual({ nextMs: 99, pastTicks: [ended] });
    }
  });

  it("separate the attempts of a tick, and requests that were triggered at its time", () => {
    const all = [began(1_000), began(1_000, { attempt: 2 }), began(1_000, { suffix: "x1" })];
    expect(pastOf([lines(...all)]).pastTicks).toHaveLength(3);
  });

  it("contain a text for every value that a handler rejects with", () => {
    expect([new RangeError("no"), "no", undefined, Object.create(null)].map(errorText)).toEqual([
      "RangeError: no",
      "no",
      "undefined",
      "[object Object]",
    ]);
  });

  it("are ordered by the time at which the handler was called, the newest first, over all nodes", () => {
    const [one, two, three] = [began(1_000, { lateMs: 5_000 }), began(3_000), began(4_000)];
    expect(pastOf([lines(three, one), lines(one, two)]).pastTicks).toEqual([one, three, two]);
  });

  it("report a tick as running only in the term of the present leader", () => {
    expect(recordOf("s", began(1_000), 7).outcome).toBe("running");
    // The leader was looked up before the tick started.
    expect(recordOf("s", began(1_000), 6).outcome).toBe("running");
    expect(recordOf("s", began(1_000), 8).outcome).toBe("unfinished");
    expect(recordOf("s", began(1_000), undefined).outcome).toBe("unfinished");
    expect(recordOf("s", began(1_000, { outcome: "failed" }), 8).outcome).toBe("failed");
  });

  it("are decoded into the original records", () => {
    const all: readonly PastTick[] = [
      began(4_000),
      began(3_000, { outcome: "failed", tookMs: 0, error: 'no "b"\n', suffix: "a1" }),
      { outcome: "skipped", scheduledAtMs: 2_000, term: 7, reason: "overlap" },
      { outcome: "missed", scheduledAtMs: 1_000, term: 7, count: 3 },
    ];
    expect(pastOf([lines(...all)]).pastTicks).toEqual(all);
  });

  it("keep skipped and missed ticks before and after a tick, and the last of several in a row", () => {
    const skipped = (scheduledAtMs: number): PastTick => ({
      outcome: "skipped",
      scheduledAtMs,
      term: 7,
      reason: "overlap",
    });
    const missed = (scheduledAtMs: number): PastTick => ({ outcome: "missed", scheduledAtMs, term: 7, count: 2 });
    const all = [skipped(7_000), began(6_000), missed(5_000), skipped(4_000), began(3_000), missed(2_000)];
    expect(pastOf([lines(...all)]).pastTicks).toEqual(all);
    // The second node was down when the newest one was written.
    expect(pastOf([lines(...all), lines(skipped(6_500), ...all.slice(1))]).pastTicks).toEqual(all);
  });

  it("contain the ID of the tick", () => {
    expect(recordOf("a-b", began(0, { suffix: "x1" }), 7).id).toBe("a-b@19700101T000000.000Z-x1");
    expect(recordOf("a-b", began(0), 7).id).toBe("a-b@19700101T000000.000Z");
  });

  it("are found by name in a reply that covers all schedules", () => {
    expect([...newestIn('"a\\nb"\n1 {}\n"c"\n2 {}\n')]).toEqual([
      ["a\nb", "1 {}"],
      ["c", "2 {}"],
    ]);
    expect([...newestIn("")]).toEqual([]);
  });
});

describe("a recorder of history", () => {
  it("separates skipped ticks before and after a tick, even within a second", async () => {
    const clock = new ManualClock();
    const events = new Emitter<SchedulerEvents>(SCHEDULER_EVENTS);
    const written: HistoryLine[] = [];
    const store = {
      async record(lines: readonly HistoryLine[]): Promise<void> {
        written.push(...lines);
      },
    };
    const recorder = new Recorder({
      store: store as unknown as RegisterStore,
      clock,
      events,
      term: 7,
      kept: 10,
      nextOf: () => undefined,
    });
    const tickAt = (ms: number): Tick =>
      ({
        schedule: "s",
        id: tickId("s", ms),
        scheduledAt: new Date(ms),
        firedAt: new Date(ms),
        attempt: 1,
      }) as unknown as Tick;
    const skipAt = (ms: number): void =>
      events.emit("tickSkipped", { schedule: "s", scheduledAt: new Date(ms), reason: "overlap" });
    skipAt(100);
    events.emit("tickStarted", tickAt(200));
    events.emit("tickCompleted", { tick: tickAt(200), tookMs: 5 });
    skipAt(300);
    await recorder.end();
    expect(written.map(({ key }) => key)).toEqual(["skipped/overlap", "200/1/", "skipped/overlap"]);
    expect(
      pastOf([
        written
          .map(({ key, line }) => `${key} ${line}`)
          .reverse()
          .join(""),
      ]).pastTicks,
    ).toMatchObject([
      { outcome: "skipped", scheduledAtMs: 300 },
      { outcome: "run", scheduledAtMs: 200 },
      { outcome: "skipped", scheduledAtMs: 100 },
    ]);
  });
});

describe("a recorder whose nodes are away", () => {
  it("reports this once until they are back", async () => {
    const clock = new ManualClock();
    const events = new Emitter<SchedulerEvents>(SCHEDULER_EVENTS);
    const told: unknown[] = [];
    events.on("error", (error) => told.push(error));
    let asked = 0;
    let isAway = true;
    const away = new Error("no quorum");
    const store = {
      record: async (): Promise<void> => {
        asked += 1;
        if (isAway) throw away;
      },
    };
    const parts = {
      store: store as unknown as RegisterStore,
      clock,
      events,
      term: 7,
      kept: 10,
      nextOf: () => undefined,
    };
    const recorder = new Recorder(parts);
    const skip = (): void =>
      events.emit("tickSkipped", { schedule: "s", scheduledAt: new Date(clock.wallMs()), reason: "overlap" });
    skip();
    await clock.advance(5_000);
    expect([asked > 2, told]).toEqual([true, [away]]);
    isAway = false;
    await clock.advance(2_000);
    isAway = true;
    skip();
    await clock.advance(2_000);
    expect(told).toEqual([away, away]);
    isAway = false;
    await recorder.end();
  });
});

describe("the history of a scheduler", () => {
  let nodes: Nodes;
  beforeAll(async () => {
    nodes = await startNodes(3);
  });
  afterAll(async () => await nodes[Symbol.asyncDispose]());

  function replica(name: string, id: string, options: Partial<SchedulerOptions> = {}): LeaderScheduler {
    // A loaded machine answers late.
    const redlock = nodes.redlock({ maxTtl: 30_000, nodeTimeout: 3_000 });
    const election = new LeaderElection(redlock, { name, id, ...LEASE, cooldown: { initial: 10 } });
    const scheduler = new LeaderScheduler({ election, ...options });
    onTestFinished(async () => {
      await scheduler.stop({ drainTimeout: 0 });
      await election.stop({ drainTimeout: 0 });
    });
    return scheduler;
  }

  /** A schedule that is never due by itself, so that the test triggers each of its ticks. */
  function seldom(scheduler: LeaderScheduler, handler: () => unknown): LeaderScheduler {
    scheduler.every("s", 365 * 24 * HOUR_MS, handler);
    return scheduler;
  }

  const outcomes = async (scheduler: LeaderScheduler): Promise<readonly string[]> =>
    (await scheduler.history("s")).map(({ outcome }) => outcome);

  it("reports the outcome, delay, duration and reason of each tick in any process, the newest first", async () => {
    let fails = false;
    const scheduler = seldom(replica("told", "a"), () => {
      if (fails) throw new RangeError("x".repeat(1_000));
    });
    scheduler.start();
    await scheduler.trigger("s");
    const other = replica("told", "b");
    await expect.poll(() => outcomes(other), { timeout: 20_000 }).toEqual(["run"]);
    fails = true;
    await scheduler.trigger("s");
    await expect.poll(() => outcomes(other), { timeout: 20_000 }).toEqual(["failed", "run"]);
    const [failed, ran] = await other.history("s");
    expect(ran).toMatchObject({ attempt: 1, term: expect.any(Number), lateMs: expect.any(Number) });
    expect(ran?.tookMs).toBeGreaterThanOrEqual(0);
    expect(ran?.id).toMatch(/^s@\d{8}T\d{6}\.\d{3}Z-\w+$/);
    expect(failed?.error).toMatch(/^RangeError: x+…$/);
    expect(failed?.error).toHaveLength(200);
    const listed = async (history?: number): Promise<unknown> => {
      const [info] = await other.list({ ...(history === undefined ? {} : { history }) });
      expect(info?.lastTick).toEqual(failed);
      return info?.history;
    };
    expect(await listed()).toEqual([]);
    expect(await listed(1)).toEqual([failed]);
    expect(await listed(100)).toEqual([failed, ran]);
  });

  it("lists the histories of more schedules than one request reads, each under its own name", async () => {
    const scheduler = replica("many", "a");
    const names = Array.from({ length: 250 }, (_, at) => `s${at}`);
    for (const name of names) scheduler.every(name, 365 * 24 * HOUR_MS, () => undefined);
    const store = new RegisterStore(new Ledger(nodes.redlock(), "many", "leader:many"), "", HOUR_MS);
    const pastTick = (at: number): PastTick => ({ outcome: "missed", scheduledAtMs: 1_000 + at, term: 1, count: 1 });
    const written = names.map((name, at) => ({ name, key: "missed", line: lineOf(pastTick(at), undefined) }));
    await store.record(written.slice(1), 10);
    const told = (await scheduler.list({ history: 3 })).map(({ history }) =>
      history.map(({ scheduledAt }) => +scheduledAt),
    );
    expect(told).toEqual(names.map((_, at) => (at === 0 ? [] : [1_000 + at])));
  });

  it("reports a tick as running, and as unfinished once another leader leads", async () => {
    let end = (): void => undefined;
    const first = seldom(
      replica("gone", "a", { drainTimeout: 0 }),
      () => new Promise<void>((resolve) => (end = resolve)),
    );
    first.start();
    await first.trigger("s");
    const next = seldom(replica("gone", "b"), () => undefined);
    await expect.poll(() => outcomes(next), { timeout: 20_000 }).toEqual(["running"]);
    await first.stop();
    next.start();
    await next.trigger("s");
    await expect.poll(() => outcomes(next), { timeout: 20_000 }).toEqual(["run", "unfinished"]);
    // A handler that ends after its term is recorded as well.
    end();
    await expect.poll(() => outcomes(next), { timeout: 20_000 }).toEqual(["run", "run"]);
  });

  it("keeps a limited number of ticks of a schedule, and one line for equal skips in a row", async () => {
    const scheduler = seldom(replica("kept", "a", { history: 2 }), () => undefined);
    scheduler.every("busy", 20, ({ signal }) => new Promise((resolve) => signal.addEventListener("abort", resolve)));
    scheduler.start();
    for (let count = 1; count <= 4; count += 1) {
      const last = (await scheduler.history("s"))[0]?.id;
      await scheduler.trigger("s");
      await expect
        .poll(async () => (await scheduler.history("s"))[0], { timeout: 20_000 })
        .toMatchObject({ outcome: "run", id: expect.not.stringMatching(`^${last}$`) });
    }
    expect(await scheduler.history("s")).toHaveLength(2);
    const texts = await Promise.all(
      nodes.servers.map((server) => server.call("HGET", "{leader:kept}:history", JSON.stringify("s"))),
    );
    for (const text of texts) expect(String(text).length).toBeLessThanOrEqual(4 * 110);
    const busy = await nodes.servers[0]?.call("HGET", "{leader:kept}:history", JSON.stringify("busy"));
    const keys = Array.from(String(busy).matchAll(/^\S+/gm), ([key]) => key);
    expect(keys).toContain("skipped/overlap");
    expect(keys.filter((key, at) => key === keys[at + 1])).toEqual([]);
  });

  it("writes nothing with history: 0", async () => {
    let count = 0;
    const scheduler = seldom(replica("none", "a", { history: 0 }), () => (count += 1));
    scheduler.start();
    await scheduler.trigger("s");
    await expect.poll(() => count, { timeout: 20_000 }).toBe(1);
    await scheduler.stop();
    for (const server of nodes.servers) expect(await server.call("EXISTS", "{leader:none}:history")).toBe(0);
    expect(await scheduler.history("s")).toEqual([]);
  });

  it("lists, pauses and triggers schedules that the process lacks, but not unknown ones", async () => {
    const scheduler = replica("operated", "a");
    let count = 0;
    scheduler.every("s", 100, () => (count += 1));
    scheduler.start();
    const operator = replica("operated", "operator");
    await expect.poll(async () => (await operator.list())[0]?.lastTick?.outcome, { timeout: 20_000 }).toBe("run");
    const [info] = await operator.list();
    expect(info).toMatchObject({ name: "s", paused: false, missed: expect.any(Number), owner: { id: "a" } });
    expect(info?.next?.getTime()).toBeGreaterThan(info?.lastTick?.scheduledAt.getTime() ?? Number.NaN);
    await operator.pause("s");
    expect((await operator.list())[0]?.paused).toBe(true);
    const before = count;
    await operator.trigger("s");
    await expect.poll(() => count, { timeout: 20_000 }).toBeGreaterThan(before);
    await operator.resume("s");
    expect((await operator.list())[0]?.paused).toBe(false);
    // These are also names of fields on the nodes.
    for (const name of ["t", "p:s", ":term"]) {
      for (const verb of ["pause", "trigger", "history"] as const)
        await expect(operator[verb](name)).rejects.toMatchObject({ code: "UNKNOWN_SCHEDULE", schedule: name });
    }
  });
});
