/** Schedules as data: sets and single schedules, from any process, through changes of leaders. */
import { LeaderElection } from "@x/leader";
import { LeaderScheduler, type ScheduleDefinition, type SchedulerOptions, type Tick } from "@x/leader/scheduler";
import { defineScript, protocolOf } from "@x/redlock-core/protocol";
import { describe, expect, it, onTestFinished } from "vitest";
import { VirtualLab } from "../support/virtual-lab.ts";

const SECOND = 1_000;
const HOUR = 3_600 * SECOND;

interface Replica {
  readonly scheduler: LeaderScheduler;
  readonly election: LeaderElection;
  readonly ticks: Tick[];
  readonly errors: string[];
  readonly skipped: string[];
}

class Lab extends VirtualLab {
  /** A replica that does not lead yet. Its handlers, by kind, record their ticks. */
  replica(kinds: readonly string[] = ["mail"], options: Partial<SchedulerOptions> = {}): Replica {
    const election = this.candidate("jobs");
    const scheduler = new LeaderScheduler({ election, ...options });
    const ticks: Tick[] = [];
    const errors: string[] = [];
    const skipped: string[] = [];
    scheduler.on("error", (error) => void errors.push((error as Error).message));
    scheduler.on("tickSkipped", ({ schedule, reason }) => void skipped.push(`${schedule} ${reason}`));
    for (const kind of kinds) scheduler.handle(kind, (tick) => void ticks.push(tick));
    onTestFinished(() => this.clock.until(scheduler.stop({ drainTimeout: 0 })));
    return { scheduler, election, ticks, errors, skipped };
  }

  async leads(replica: Replica): Promise<void> {
    replica.scheduler.start();
    await this.poll(() => replica.election.isLeader()).toBe(true);
  }

  /** The whole register and mailbox. */
  async stored(): Promise<string> {
    const redlock = this.redlock();
    const keys = ["register", "mailbox"].map((key) => protocolOf(redlock).keys.sideKey("leader:jobs", key));
    const lua = "return {redis.call('HGETALL', KEYS[1]), redis.call('HGETALL', KEYS[2])}";
    const replies = await this.clock.until(protocolOf(redlock).run(defineScript("test-all", lua), { keys, args: [] }));
    return JSON.stringify(replies.map((reply) => (reply.ok ? reply.value : "silent")));
  }
}

const every = (name: string, ms: number, more: Partial<ScheduleDefinition> = {}): ScheduleDefinition => ({
  name,
  kind: "mail",
  every: ms,
  ...more,
});

const namesOf = (ticks: readonly Tick[]): readonly string[] =>
  [...new Set(ticks.map(({ schedule }) => schedule))].sort();

describe("a set of schedules as data", () => {
  it("runs on the leader, with its data, and on each later leader", async () => {
    const lab = new Lab();
    const [a, b] = [lab.replica(), lab.replica()];
    await lab.leads(a);
    const result = await lab.clock.until(
      b.scheduler.reconcile([every("x", SECOND, { data: { customer: 42 } }), every("y", SECOND)]),
    );
    expect(result).toEqual({ added: ["x", "y"], changed: [], removed: [], unchanged: [], isOutdated: false });
    await lab.poll(() => namesOf(a.ticks)).toEqual(["x", "y"]);
    expect(a.ticks.find(({ schedule }) => schedule === "x")?.data).toEqual({ customer: 42 });
    expect(a.ticks.find(({ schedule }) => schedule === "y")?.data).toBeUndefined();
    await lab.clock.until(a.scheduler.stop());
    await lab.leads(b);
    await lab.poll(() => namesOf(b.ticks)).toEqual(["x", "y"]);
    await lab.poll(() => b.ticks.length).toBeGreaterThan(6);
    const ids = [...a.ticks, ...b.ticks]
      .filter(({ schedule }) => schedule === "x")
      .map(({ scheduledAt }) => scheduledAt.getTime());
    expect(ids).toEqual(ids.map((_, index) => (ids[0] ?? 0) + index * SECOND));
  });

  it("can be written while nobody leads", async () => {
    const lab = new Lab();
    const [a, writer] = [lab.replica(), lab.replica([])];
    await lab.clock.until(writer.scheduler.reconcile([every("x", SECOND)]));
    await lab.leads(a);
    await lab.poll(() => namesOf(a.ticks)).toEqual(["x"]);
  });

  it("is compared with the stored set", async () => {
    const lab = new Lab();
    const a = lab.replica();
    await lab.leads(a);
    const reconcile = (wanted: readonly ScheduleDefinition[]): Promise<unknown> =>
      lab.clock.until(a.scheduler.reconcile(wanted));
    await reconcile([every("same", SECOND), every("data", SECOND, { data: 1 }), every("gone", SECOND)]);
    await lab.poll(() => namesOf(a.ticks)).toEqual(["data", "gone", "same"]);
    const next = [
      every("same", SECOND, { options: { catchup: "latest" } }),
      every("data", SECOND, { data: 2 }),
      every("new", SECOND),
    ];
    expect(await reconcile(next)).toEqual({
      added: ["new"],
      changed: ["data"],
      removed: ["gone"],
      unchanged: ["same"],
      isOutdated: false,
    });
    await lab.clock.advance(100);
    const before = a.ticks.length;
    await lab.clock.advance(3 * SECOND);
    const later = a.ticks.slice(before);
    expect(namesOf(later)).toEqual(["data", "new", "same"]);
    expect(later.filter(({ schedule }) => schedule === "data").map(({ data }) => data)).toEqual([2, 2, 2]);
    const stored = await lab.stored();
    expect(await reconcile(next)).toMatchObject({
      added: [],
      changed: [],
      removed: [],
      unchanged: ["same", "data", "new"],
    });
    expect((await lab.stored()).includes("w:set")).toBe(stored.includes("w:set"));
    expect((await lab.clock.until(a.scheduler.list())).map(({ name, kind }) => [name, kind])).toEqual(
      ["same", "data", "new"].map((name) => [name, "mail"]),
    );
  });

  it("with a smaller revision than the stored set is not written", async () => {
    const lab = new Lab();
    const [a, old] = [lab.replica(), lab.replica()];
    await lab.leads(a);
    await lab.clock.until(a.scheduler.reconcile([every("new", SECOND)], { revision: 8 }));
    const outdated = await lab.clock.until(old.scheduler.reconcile([every("old", SECOND)], { revision: 7 }));
    expect(outdated).toEqual({ added: [], changed: [], removed: [], unchanged: [], isOutdated: true });
    await lab.clock.advance(2 * SECOND);
    expect(await lab.clock.until(old.scheduler.reconcile([every("old", SECOND)], { revision: 7 }))).toMatchObject({
      isOutdated: true,
    });
    expect(namesOf(a.ticks)).toEqual(["new"]);
    // The revision is recorded even if the schedules are the same.
    await lab.clock.until(a.scheduler.reconcile([every("new", SECOND)], { revision: 9 }));
    expect(await lab.clock.until(old.scheduler.reconcile([], { revision: 8 }))).toMatchObject({ isOutdated: true });
    expect(await lab.clock.until(old.scheduler.reconcile([]))).toMatchObject({ removed: ["new"], isOutdated: false });
  });

  it("that is written at the same time as another is in force as a whole, or the other is", async () => {
    const lab = new Lab();
    const [a, b, c] = [lab.replica(), lab.replica(), lab.replica()];
    await lab.leads(a);
    const one = ["p", "q"].map((name) => every(name, SECOND, { data: "one" }));
    const other = ["q", "r"].map((name) => every(name, SECOND, { data: "other" }));
    await lab.clock.until(Promise.all([b.scheduler.reconcile(one), c.scheduler.reconcile(other)]));
    await lab.clock.advance(100);
    const before = a.ticks.length;
    await lab.clock.advance(3 * SECOND);
    const ran = a.ticks.slice(before).map(({ schedule, data }) => `${schedule} ${String(data)}`);
    expect([
      ["p one", "q one"],
      ["q other", "r other"],
    ]).toContainEqual([...new Set(ran)].sort());
  });

  it("replaces schedules that were written one by one before, and not the schedules of later calls", async () => {
    const lab = new Lab();
    const a = lab.replica();
    await lab.leads(a);
    await lab.clock.until(a.scheduler.upsert("before", { kind: "mail", every: SECOND }));
    await lab.clock.until(a.scheduler.reconcile([every("x", SECOND), every("y", SECOND)]));
    await lab.clock.until(a.scheduler.upsert("after", { kind: "mail", every: SECOND }));
    await lab.clock.until(a.scheduler.remove("y"));
    await lab.poll(() => a.ticks.length).toBeGreaterThan(4);
    const [first] = a.ticks;
    const sinceMs = (first?.scheduledAt.getTime() ?? 0) + SECOND;
    expect(namesOf(a.ticks.filter(({ scheduledAt }) => scheduledAt.getTime() >= sinceMs))).toEqual(["after", "x"]);
  });
});

describe("one schedule as data", () => {
  it("is added, changed, left unchanged and removed", async () => {
    const lab = new Lab();
    const a = lab.replica();
    await lab.leads(a);
    const upsert = (data: unknown): Promise<string> =>
      lab.clock.until(a.scheduler.upsert("x", { kind: "mail", every: SECOND, data }));
    expect([await upsert(1), await upsert(1), await upsert(2)]).toEqual(["added", "unchanged", "changed"]);
    await lab.poll(() => a.ticks.at(-1)?.data).toBe(2);
    expect(await lab.clock.until(a.scheduler.remove("x"))).toBe(true);
    expect(await lab.clock.until(a.scheduler.remove("x"))).toBe(false);
    await lab.clock.advance(100);
    const { length } = a.ticks;
    await lab.clock.advance(3 * SECOND);
    expect(a.ticks).toHaveLength(length);
    expect(await lab.clock.until(a.scheduler.list())).toEqual([]);
    await expect(lab.clock.until(a.scheduler.trigger("x"))).rejects.toThrow("no schedule");
  });

  it("can be paused, resumed, triggered and previewed by a process without a handler", async () => {
    const lab = new Lab();
    const [a, operator] = [lab.replica(), lab.replica([])];
    await lab.clock.until(
      operator.scheduler.upsert("x", { kind: "mail", cron: "0 3 * * *", timezone: "Europe/Berlin" }),
    );
    const preview = await lab.clock.until(operator.scheduler.preview("x", 3));
    expect(preview).toHaveLength(3);
    expect(new Set(preview.map((date) => date.toLocaleTimeString("de", { timeZone: "Europe/Berlin" })))).toEqual(
      new Set(["03:00:00"]),
    );
    await lab.clock.until(operator.scheduler.pause("x"));
    await lab.leads(a);
    await lab.poll(async () => (await operator.scheduler.list())[0]?.paused).toBe(true);
    await lab.clock.until(operator.scheduler.trigger("x"));
    await lab.poll(() => a.ticks.length).toBe(1);
    await lab.clock.until(operator.scheduler.resume("x"));
    expect((await lab.clock.until(operator.scheduler.list()))[0]?.next).toEqual(preview[0]);
    await expect(lab.clock.until(operator.scheduler.preview("y", 1))).rejects.toThrow("no schedule");
  });

  it("loses its pause when it is removed", async () => {
    const lab = new Lab();
    const a = lab.replica();
    await lab.leads(a);
    const define = { kind: "mail", every: SECOND };
    await lab.clock.until(a.scheduler.upsert("x", define));
    await lab.clock.until(a.scheduler.pause("x"));
    await lab.clock.advance(100);
    await lab.clock.until(a.scheduler.remove("x"));
    await lab.clock.advance(100);
    await lab.clock.until(a.scheduler.upsert("x", define));
    await lab.poll(() => a.ticks.length).toBeGreaterThan(1);
  });
});

describe("a handler that this process does not have", () => {
  it("leaves the ticks to a later leader, and is reported once for a kind", async () => {
    const lab = new Lab();
    const [a, b] = [lab.replica([]), lab.replica()];
    await lab.leads(a);
    const options = { catchup: "all", catchupWindow: HOUR } as const;
    await lab.clock.until(a.scheduler.reconcile([every("x", SECOND, { options }), every("y", SECOND)]));
    const sinceMs = lab.clock.wallMs();
    await lab.clock.advance(5 * SECOND);
    expect(a.errors).toEqual([expect.stringContaining('no handler for schedules of kind "mail"')]);
    await lab.clock.until(a.scheduler.stop());
    await lab.leads(b);
    await lab.poll(() => b.ticks.filter(({ schedule }) => schedule === "x").length).toBeGreaterThan(5);
    const first = b.ticks.find(({ schedule }) => schedule === "x")?.scheduledAt.getTime() ?? 0;
    expect(first - sinceMs).toBeLessThanOrEqual(SECOND);
  });

  it("can be added to a process that leads", async () => {
    const lab = new Lab();
    const a = lab.replica([]);
    await lab.leads(a);
    await lab.clock.until(a.scheduler.reconcile([every("x", SECOND)]));
    await lab.clock.advance(100);
    a.scheduler.handle("mail", (tick) => void a.ticks.push(tick));
    await lab.poll(() => a.ticks.length).toBeGreaterThan(1);
  });
});

describe("a change", () => {
  it("counts ticks from the time of the call: the old times apply before, even if nobody led", async () => {
    const lab = new Lab();
    const [a, b, writer] = [lab.replica(), lab.replica(), lab.replica([])];
    await lab.leads(a);
    const options = { catchup: "all", catchupWindow: HOUR } as const;
    await lab.clock.until(writer.scheduler.reconcile([every("x", 10 * SECOND, { data: "old", options })]));
    await lab.poll(() => a.ticks.length).toBe(1);
    await lab.clock.until(a.scheduler.stop());
    await lab.clock.advance(25 * SECOND);
    const changedMs = lab.clock.wallMs();
    const changed = every("x", 10 * SECOND, { data: "new", options: { ...options, offset: 5 * SECOND } });
    await lab.clock.until(writer.scheduler.reconcile([changed]));
    await lab.clock.advance(25 * SECOND);
    await lab.leads(b);
    await lab.poll(() => b.ticks.filter(({ data }) => data === "new").length).toBeGreaterThan(2);
    const times = b.ticks.map(({ scheduledAt }) => scheduledAt.getTime());
    const firstMs = a.ticks[0]?.scheduledAt.getTime() ?? 0;
    // A tick gets the data of the time at which its handler is called.
    expect(b.ticks[0]?.data).toBe("old");
    expect(times.filter((atMs) => atMs <= changedMs)).toEqual([firstMs + 10 * SECOND, firstMs + 20 * SECOND]);
    const [first = 0, ...others] = times.filter((atMs) => atMs > changedMs);
    expect(first - changedMs).toBeLessThanOrEqual(10 * SECOND);
    expect(first % (10 * SECOND)).toBe(5 * SECOND);
    expect(others).toEqual(others.map((_, index) => first + (index + 1) * 10 * SECOND));
  });

  it("of data leaves a tick that is due meanwhile, and a schedule that is added again repeats none", async () => {
    const lab = new Lab();
    const a = lab.replica();
    await lab.leads(a);
    for (let round = 0; round < 12; round += 1) {
      await lab.clock.until(a.scheduler.reconcile([every("x", SECOND, { data: round }), every("y", SECOND)]));
      await lab.clock.advance(330);
      await lab.clock.until(a.scheduler.reconcile([every("x", SECOND, { data: -round })]));
    }
    await lab.clock.advance(SECOND);
    const times = (name: string): number[] =>
      a.ticks.filter(({ schedule }) => schedule === name).map(({ scheduledAt }) => scheduledAt.getTime());
    const xs = times("x");
    expect(xs).toEqual(xs.map((_, index) => (xs[0] ?? 0) + index * SECOND));
    expect(new Set(times("y")).size).toBe(times("y").length);
  });
});

describe("a schedule in code", () => {
  it("is not affected by a set, and cannot be in one", async () => {
    const lab = new Lab();
    const a = lab.replica();
    a.scheduler.every("code", SECOND, (tick) => void a.ticks.push(tick));
    await lab.leads(a);
    await lab.clock.until(a.scheduler.reconcile([every("x", SECOND)]));
    await lab.clock.until(a.scheduler.reconcile([]));
    await lab.clock.advance(100);
    a.ticks.length = 0;
    await lab.poll(() => a.ticks.length).toBeGreaterThan(1);
    expect(namesOf(a.ticks)).toEqual(["code"]);
    await expect(a.scheduler.reconcile([every("code", 1)])).rejects.toThrow(
      /wanted\[0\].name must not be of a schedule in the code/,
    );
    await expect(a.scheduler.upsert("code", { kind: "k", every: 1 })).rejects.toThrow("in the code");
    await expect(a.scheduler.remove("code")).rejects.toThrow("in the code");
  });

  it("hides a stored schedule of its name, and is reported", async () => {
    const lab = new Lab();
    const [a, writer] = [lab.replica(), lab.replica()];
    await lab.leads(a);
    await lab.clock.until(writer.scheduler.reconcile([every("x", SECOND, { data: "stored" })]));
    await lab.poll(() => a.ticks.length).toBeGreaterThan(0);
    const own = a.scheduler.every("x", SECOND, (tick) => void a.ticks.push(tick));
    a.ticks.length = 0;
    await lab.poll(() => a.ticks.length).toBe(2);
    expect(a.ticks.map(({ data }) => data)).toEqual([undefined, undefined]);
    expect(a.errors).toEqual([expect.stringContaining('"x" is in the code of this process')]);
    own.remove();
    await lab.poll(() => a.ticks.at(-1)?.data).toBe("stored");
  });
});

describe("the register", () => {
  it("forgets removed schedules after a day, and a late copy of an order brings nothing back", async () => {
    const lab = new Lab();
    const a = lab.replica();
    await lab.leads(a);
    await lab.clock.until(a.scheduler.upsert("kept", { kind: "mail", every: HOUR }));
    await lab.clock.until(a.scheduler.upsert("gone", { kind: "mail", every: HOUR }));
    await lab.clock.advance(SECOND);
    const registered = JSON.parse(await lab.stored()) as [[string[], string[]]];
    const [fields] = registered[0];
    const late = fields[fields.indexOf("d:gone") + 1] ?? "";
    expect(late).toContain("gone");
    await lab.clock.until(a.scheduler.remove("gone"));
    await lab.clock.advance(SECOND);
    await lab.clock.until(a.scheduler.stop());
    await lab.clock.advance(26 * HOUR);
    const b = lab.replica();
    await lab.leads(b);
    await lab.clock.advance(SECOND);
    const stored = await lab.stored();
    expect(stored).not.toContain("gone");
    expect(stored).not.toContain("d:kept");
    expect(stored).toContain("kept");
    const redlock = lab.redlock();
    const key = protocolOf(redlock).keys.sideKey("leader:jobs", "mailbox");
    const order = defineScript("test-hset", "return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])");
    await lab.clock.until(protocolOf(redlock).run(order, { keys: [key], args: ["d:gone", late] }));
    await lab.clock.advance(10 * SECOND);
    expect((await lab.clock.until(b.scheduler.list())).map(({ name }) => name)).toEqual(["kept"]);
    expect(await lab.stored()).not.toContain("d:gone");
    expect(b.errors).toEqual([]);
  });

  it("reports damaged definitions once, and runs the others", async () => {
    const lab = new Lab();
    const a = lab.replica();
    await lab.clock.until(a.scheduler.reconcile([every("x", SECOND)]));
    const redlock = lab.redlock();
    const key = protocolOf(redlock).keys.sideKey("leader:jobs", "mailbox");
    const order = defineScript("test-hset", "return redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])");
    const put = (field: string, line: string): Promise<unknown> =>
      lab.clock.until(protocolOf(redlock).run(order, { keys: [key], args: [field, line] }));
    await put("d:odd", `${Date.now() * 2} n 5 ["odd","mail",1000,"",[],{"catchup"\u0001"some"}]`);
    await put("d:bad", `${Date.now() * 2} n 5 ["bad"]`);
    await put("d:worse", "x");
    await lab.leads(a);
    await lab.poll(() => a.ticks.length).toBeGreaterThan(6);
    expect(namesOf(a.ticks)).toEqual(["x"]);
    expect(a.errors.toSorted()).toEqual([
      expect.stringMatching(/^"d:worse" of the mailbox of schedules contains "x", which is not valid: it is removed/),
      expect.stringMatching(/^a schedule as data is damaged/),
      expect.stringMatching(/^schedule "odd" has a value that this process does not know: .*catchup must be/),
    ]);
  });
});

describe("a wrong schedule as data", () => {
  it.each<[string, unknown, string]>([
    ["no array", "x", "wanted must be an array of schedules, got a string of 1 characters"],
    ["no object", [5], "wanted[0] must be an object, got 5"],
    ["no name", [{ kind: "k", every: 1 }], "wanted[0].name must be a string"],
    ["a name with a colon", [every("a:b", 1)], 'wanted[0].name must be a string of 1 to 200 characters without ":"'],
    ["no kind", [{ name: "n", every: 1 }], "wanted[0].kind must be a string of 1 to 200 characters, got undefined"],
    ["neither cron nor every", [{ name: "n", kind: "k" }], "wanted[0] must have one of cron and every, got neither"],
    ["both", [every("n", 1, { cron: "@daily" })], "wanted[0] must have one of cron and every, got both"],
    ["a wrong cron", [{ name: "n", kind: "k", cron: "61 * * * *" }], "wanted[0].cron must be a cron expression"],
    ["a cron that never fires", [{ name: "n", kind: "k", cron: "0 0 30 2 *" }], "wanted[0].cron must have a next tick"],
    [
      "a wrong zone",
      [{ name: "n", kind: "k", cron: "@daily", timezone: "Mars" }],
      "wanted[0].timezone must be an IANA time zone",
    ],
    ["a zone with every", [every("n", 1, { timezone: "UTC" })], "wanted[0].timezone must be left out with every"],
    ["a wrong option", [every("n", 1, { options: { catchup: "x" as "all" } })], "wanted[0].options.catchup must be"],
    [
      "an unknown option",
      [every("n", 1, { options: { cachup: "all" } as object })],
      'did you mean "wanted[0].options.catchup"',
    ],
    [
      "an offset of cron",
      [{ name: "n", kind: "k", cron: "@daily", options: { offset: 1 } }],
      'unknown option "wanted[0].options.offset"',
    ],
    [
      "a long jitter",
      [every("n", 5, { options: { jitter: 6 } })],
      "wanted[0].options.jitter must be at most the period of 5 ms",
    ],
    ["data that is no JSON", [every("n", 1, { data: new Date() })], "wanted[0].data must be a JSON value"],
    [
      "much data",
      [every("n", 1, { data: "x".repeat(4_095) })],
      "wanted[0].data must have at most 4096 characters as JSON, got 4097",
    ],
    ["a name twice", [every("n", 1), every("n", 2)], 'wanted[1].name must be used once in wanted, got "n" again'],
    [
      "an unknown name",
      [{ ...every("n", 1), cronn: 1 }],
      'unknown option "wanted[0].cronn": did you mean "wanted[0].cron"?',
    ],
    [
      "too much in total",
      Array.from({ length: 1_000 }, (_, at) => every(`n${at}`, 1, { data: "x".repeat(4_000) })),
      "wanted must have at most 4000000 characters as JSON, got more at wanted[",
    ],
  ])("is refused before anything is sent: %s", async (_, wanted, message) => {
    const lab = new Lab();
    const a = lab.replica();
    const refused = lab.clock.until(a.scheduler.reconcile(wanted as readonly ScheduleDefinition[]));
    await expect(refused).rejects.toThrow(message);
    expect(await lab.stored()).toBe("[[[],[]]]");
  });

  it("is refused by upsert, remove, preview, handle and the revision as well", async () => {
    const lab = new Lab();
    const { scheduler } = lab.replica();
    await expect(scheduler.upsert("a:b", { kind: "k", every: 1 })).rejects.toThrow("name must be");
    await expect(scheduler.upsert("n", { kind: "k", cron: "x" })).rejects.toThrow(
      "definition.cron must have 5 or 6 fields",
    );
    await expect(
      scheduler.upsert("n", { name: "n", kind: "k", every: 1 } as object as ScheduleDefinition),
    ).rejects.toThrow("unknown option");
    await expect(scheduler.remove(5 as never)).rejects.toThrow("name must be");
    await expect(scheduler.preview("n", 0)).rejects.toThrow("count must be an integer from 1 to 1000");
    await expect(scheduler.reconcile([], { revision: -1 })).rejects.toThrow("revision must be an integer >= 0");
    expect(() => scheduler.handle("", () => undefined)).toThrow("kind must be");
    expect(() => scheduler.handle("mail", () => undefined)).toThrow('kind must be new to this scheduler, got "mail"');
    expect(() => scheduler.handle("k", 5 as never)).toThrow("handler must be a function");
    expect(await lab.stored()).toBe("[[[],[]]]");
  });
});
