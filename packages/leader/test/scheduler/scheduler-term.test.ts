/** One term of the scheduler, against a store whose answers the test determines. */
import { setImmediate as immediate } from "node:timers/promises";
import { Emitter, onAbort } from "@x/redlock-core/kit";
import { ManualClock } from "@x/test-support";
import { beforeEach, describe, expect, it } from "vitest";
import { LeadershipLostError } from "../../src/errors.ts";
import type { LeaderTerm } from "../../src/leader-term.ts";
import { SCHEDULER_EVENTS, type SchedulerEvents } from "../../src/scheduler/events.ts";
import { resolveScheduleOptions, type ScheduleOptions } from "../../src/scheduler/options.ts";
import type { Write } from "../../src/scheduler/register-store.ts";
import { everyCalendar } from "../../src/scheduler/rules/calendar.ts";
import { SchedulerTerm } from "../../src/scheduler/scheduler-term.ts";
import type { Tick } from "../../src/scheduler/tick.ts";
import type { ScheduleEntry } from "../../src/scheduler/timetable.ts";
import { MemoryStore } from "../support/memory-store.ts";

const PERIOD_MS = 20;
const mentions = ({ fields }: Write, field: string): boolean => fields.includes(field);

describe("a session", () => {
  let clock: ManualClock;
  let controller: AbortController;
  let isCurrent: boolean;
  let entries: Map<string, ScheduleEntry>;
  let events: Emitter<SchedulerEvents>;
  let ticks: Tick[];
  let log: string[];
  beforeEach(() => {
    clock = new ManualClock();
    controller = new AbortController();
    isCurrent = true;
    events = new Emitter<SchedulerEvents>(SCHEDULER_EVENTS);
    ticks = [];
    log = [];
    events.on("tickSkipped", ({ reason }) => log.push(`skipped: ${reason}`));
    events.on("error", (error) => log.push(String(error)));
  });

  const lose = (): void => {
    isCurrent = false;
    controller.abort(new LeadershipLostError({ election: "x", term: 5, reason: "renew-deadline" }));
  };
  const beStopped = (): void =>
    controller.abort(new LeadershipLostError({ election: "x", term: 5, reason: "stopping" }));
  /** A register whose schedule is processed until now; later ticks are claimed. */
  const upToNow = (): readonly [string, string] => ["s", `${clock.wallMs()} 0 0`];
  const memoryStore = (fields: readonly (readonly [string, string])[] = []): MemoryStore =>
    new MemoryStore(fields, clock);

  /** Lets time pass until the expectations hold. */
  async function pass(expectations: () => void): Promise<void> {
    for (let left = 1_000; ; left -= 1) {
      await clock.advance(PERIOD_MS / 4);
      try {
        return expectations();
      } catch (error) {
        if (left === 0) throw error;
      }
    }
  }

  /** Lets time pass until the session has ended. */
  async function passAll(running: Promise<void>): Promise<void> {
    let isOver = false;
    void running.then(() => (isOver = true));
    await pass(() => expect(isOver).toBe(true));
  }

  /** Resolves when more than `count` ticks have fallen due, while another call lets time pass. */
  async function dueMoreThan(count: number): Promise<void> {
    const untilMs = clock.wallMs() + (count + 1) * PERIOD_MS;
    while (clock.wallMs() < untilMs) await immediate();
  }

  const ranAt = (atMs: number): readonly Tick[] => ticks.filter((tick) => tick.scheduledAt.getTime() === atMs);

  function session(
    store: MemoryStore,
    options: ScheduleOptions = {},
    handler?: (tick: Tick) => unknown,
  ): SchedulerTerm {
    const term = {
      election: "x",
      term: 5,
      fencingToken: 5,
      signal: controller.signal,
      isCurrent: () => isCurrent,
    } as unknown as LeaderTerm;
    const entry: ScheduleEntry = {
      name: "s",
      calendar: everyCalendar(PERIOD_MS, 0),
      handler: (tick) => {
        ticks.push(tick);
        return handler?.(tick);
      },
      options: resolveScheduleOptions(options, "UTC"),
    };
    entries = new Map([["s", entry]]);
    return new SchedulerTerm({
      term,
      store: store.asStore,
      clock,
      random: () => 0,
      entries,
      handlers: new Map(),
      concurrency: 100,
      events,
      over: controller.signal,
    });
  }

  /** Runs until a tick has been claimed by the clock, then loses the term. */
  async function runAWhile(own: SchedulerTerm): Promise<void> {
    const running = own.run();
    const fromMs = clock.wallMs();
    await pass(() => expect(ticks.some((tick) => tick.scheduledAt.getTime() >= fromMs)).toBe(true));
    lose();
    await passAll(running);
  }

  it("does not call the handler of a tick if its claim is answered after the term is over", async () => {
    const store = memoryStore();
    store.before = () => {
      if (store.writes.length > 0) isCurrent = false;
    };
    await passAll(session(store).run());
    expect(store.said("s").map(([, line]) => line.split(" ")[1] === "0")).toEqual([true, false]);
    expect([ticks, log]).toEqual([[], ["skipped: term-over"]]);
  });

  it("neither claims a tick nor accepts a request once it has to end", async () => {
    const store = memoryStore();
    store.before = async () => {
      if (store.writes.length > 0) return;
      store.mail.set("t:r", `${clock.wallMs()} 0 s`);
      await dueMoreThan(2);
      beStopped();
    };
    await passAll(session(store).run());
    expect([ticks, log]).toEqual([[], []]);
    expect([store.writes.length, [...store.mail.keys()]]).toEqual([1, ["t:r"]]);
  });

  it("writes nothing if it has to end before it has read the register", async () => {
    const store = memoryStore([upToNow()]);
    const read = store.promise.bind(store);
    store.promise = async (term) => {
      const answers = await read(term);
      beStopped();
      return answers;
    };
    await passAll(session(store).run());
    expect(store.writes).toEqual([]);
  });

  it("returns a waiting trigger when it ends", async () => {
    const store = memoryStore([upToNow()]);
    const line = `${clock.wallMs()} 0 s`;
    const own = session(store, {}, ({ signal }) => new Promise<void>((resolve) => onAbort(signal, () => resolve())));
    const running = own.run();
    await pass(() => expect(ticks.length).toBe(1));
    store.mail.set("t:r", line);
    own.hear();
    await pass(() => expect(store.said("t:r").map(([, said]) => said.split(" ")[1])).toEqual(["1"]));
    beStopped();
    await passAll(running);
    expect([store.fields.get("t:r"), ticks.length]).toEqual([line, 1]);
  });

  it("skips a tick that falls due in the step that accepts a trigger of the same schedule", async () => {
    const store = memoryStore([upToNow()]);
    let running = 0;
    let most = 0;
    const own = session(store, {}, async ({ id }) => {
      running += 1;
      most = Math.max(most, running);
      if (id.endsWith("-r")) await new Promise<void>((resolve) => clock.schedule(PERIOD_MS / 2, resolve));
      running -= 1;
    });
    let isSent = false;
    store.before = async (write) => {
      if (isSent || !mentions(write, "s")) return;
      isSent = true;
      store.mail.set("t:r", `${clock.wallMs()} 0 s`);
      await dueMoreThan(1);
    };
    const ended = own.run();
    await pass(() => expect(ticks.some(({ id }) => id.endsWith("-r"))).toBe(true));
    lose();
    await passAll(ended);
    expect([most, log]).toEqual([1, ["skipped: overlap"]]);
  });

  it("runs a trigger that an earlier session has returned", async () => {
    const store = memoryStore([["t:r", `${clock.wallMs()} 0 s`]]);
    await runAWhile(session(store));
    expect(ticks.filter(({ id }) => id.endsWith("-r"))).toHaveLength(1);
    expect(store.fields.get("t:r")).toMatch(/^\d+ 1 s$/);
  });

  it("reports a request as removed if its schedule is removed while the request is accepted", async () => {
    const store = memoryStore([upToNow()]);
    const own = session(store);
    store.mail.set("t:r", `${clock.wallMs()} 0 s`);
    store.before = () => {
      entries.delete("s");
      own.forget("s");
    };
    const running = own.run();
    await pass(() => expect(log).toContain("skipped: removed"));
    lose();
    await passAll(running);
    // A tick of the schedule's own may have been due in the same moment.
    expect(new Set(log)).toEqual(new Set(["skipped: removed"]));
    expect(ticks).toEqual([]);
  });

  it("removes a request that a node returns again, and runs it once", async () => {
    const line = `${clock.wallMs()} 0 s`;
    const store = memoryStore();
    store.mail.set("t:r", line);
    const own = session(store);
    const running = own.run();
    await pass(() => expect([store.mail.size, ticks.filter(({ id }) => id.endsWith("-r")).length]).toEqual([0, 1]));
    store.mail.set("t:r", line);
    own.hear();
    await pass(() => expect(store.mail.size).toBe(0));
    lose();
    await passAll(running);
    expect(ticks.filter(({ id }) => id.endsWith("-r"))).toHaveLength(1);
  });

  it("forgets its requests once they are old enough to be dropped", async () => {
    const oldMs = clock.wallMs() - 25 * 3_600_000 - 60_000;
    const younger = `t:younger`;
    const store = memoryStore([
      [younger, `${oldMs + 120_000} 1 s`],
      ["t:older", `${oldMs} 1 s`],
    ]);
    await runAWhile(session(store));
    expect([store.fields.has("t:older"), store.fields.has(younger)]).toEqual([false, true]);
  });

  it("claims a tick again if too few nodes answered, and runs it once", async () => {
    const store = memoryStore();
    const asked: string[] = [];
    store.before = ({ fields }) => {
      if (store.writes.length === 0) return;
      asked.push(fields.join());
      if (asked.length < 3) throw new Error("silent");
    };
    const running = session(store, { catchup: "all" }).run();
    await pass(() => expect(ticks.length).toBeGreaterThan(12));
    lose();
    await passAll(running);
    expect(asked.slice(0, 3)).toEqual([asked[0], asked[0], asked[0]]);
    const times = ticks.map((tick) => tick.scheduledAt.getTime());
    expect(times).toEqual(times.map((_, index) => (times[0] ?? 0) + PERIOD_MS * index));
    expect(log.filter((line) => line.startsWith("Error"))).toEqual(["Error: silent"]);
  });

  it("reports each message of an outage once, and again in the next outage, with any numbers and in any order", async () => {
    const store = memoryStore([upToNow()]);
    const messages = ["1 ms: a: x; b: y", "2 ms: b: y; a: x", "3 ms: b: y", "4 ms: a: x; b: y", "", "5 ms: a: x; b: y"];
    let tries = 0;
    store.before = () => {
      tries += 1;
      const message = messages[tries - 1] ?? "";
      if (message !== "") throw new Error(message);
    };
    await runAWhile(session(store));
    expect(log.filter((line) => line.startsWith("Error"))).toEqual([
      "Error: 1 ms: a: x; b: y",
      "Error: 3 ms: b: y",
      "Error: 5 ms: a: x; b: y",
    ]);
  });

  it("reports once that it cannot read orders, even if its steps succeed", async () => {
    const store = memoryStore([upToNow()]);
    let polls = 0;
    store.poll = () => {
      polls += 1;
      return Promise.reject(new Error("no orders"));
    };
    const own = session(store);
    const running = own.run();
    await pass(() => {
      own.hear();
      expect(polls).toBeGreaterThan(2);
    });
    lose();
    await passAll(running);
    expect(log.filter((line) => line.startsWith("Error"))).toEqual(["Error: no orders"]);
  });

  it("runs an earlier leader's unfinished tick, even if too few nodes answered at first", async () => {
    const store = memoryStore([["r:s@2000", "1"]]);
    let tries = 0;
    store.before = () => {
      tries += 1;
      if (tries < 3) throw new Error("silent");
    };
    await runAWhile(session(store, { delivery: "at-least-once" }));
    expect(store.said("r:s@2000")).toEqual([
      ["r:s@2000", "2"],
      ["r:s@2000", ""],
    ]);
    expect(ranAt(2_000).map((tick) => tick.attempt)).toEqual([2]);
    expect(log[0]).toBe("Error: silent");
  });

  it("calls no handler of an unfinished tick before its attempt is confirmed", async () => {
    const store = memoryStore([["r:s@1000", "1"]]);
    const begun: number[] = [];
    store.before = async () => {
      await dueMoreThan(1);
      begun.push(ticks.length);
    };
    await runAWhile(session(store, { delivery: "at-least-once" }));
    expect(begun[0]).toBe(0);
    expect(ranAt(1_000)).toHaveLength(1);
  });

  it("runs no more ticks once it has seen a newer term, even if its own has not ended yet", async () => {
    const store = memoryStore();
    let asked = 0;
    store.before = () => {
      asked += 1;
      if (asked === 2) store.promised = 6;
    };
    const running = session(store).run();
    await pass(() => expect(asked).toBe(2));
    await clock.advance(6 * PERIOD_MS);
    expect([asked, ticks]).toEqual([2, []]);
    lose();
    await passAll(running);
  });

  it("skips no tick that falls due while the last catch-up tick runs", async () => {
    const lastMs = (Math.floor(clock.wallMs() / PERIOD_MS) - 3) * PERIOD_MS;
    const ends: (() => void)[] = [];
    const store = memoryStore([["s", `${lastMs} ${lastMs} 0`]]);
    let newestMs = Number.POSITIVE_INFINITY;
    store.before = ({ fields }) => {
      const [accounted] = (fields[fields.indexOf("s") + 1] ?? "").split(" ");
      if (fields.includes("s")) newestMs = Math.min(newestMs, Number(accounted));
    };
    const running = session(store, { catchup: "all", overlap: "skip" }, ({ scheduledAt }) =>
      scheduledAt.getTime() < newestMs ? undefined : new Promise<void>((resolve) => ends.push(resolve)),
    ).run();
    await pass(() => expect(store.said("s").length).toBeGreaterThan(4));
    await pass(() => {
      ends.shift()?.();
      expect(ticks.length).toBeGreaterThan(10);
    });
    lose();
    for (const end of ends) end();
    await passAll(running);
    const times = ticks.map((tick) => tick.scheduledAt.getTime());
    expect(times).toEqual(times.map((_, index) => lastMs + PERIOD_MS * (index + 1)));
    expect(log.filter((line) => line === "skipped: overlap")).toEqual([]);
  });

  it("waits for its handlers and records the finished ticks before it ends", async () => {
    const order: string[] = [];
    const store = memoryStore();
    let end: () => void = () => undefined;
    store.before = ({ fields }) => {
      const at = fields.findIndex((field) => field.startsWith("r:"));
      if (at >= 0 && fields[at + 1] === "") order.push("finished");
    };
    const running = session(
      store,
      { delivery: "at-least-once" },
      () =>
        new Promise<void>((resolve) => {
          end = () => {
            order.push("handler ends");
            resolve();
          };
        }),
    ).run();
    await pass(() => expect(ticks.length).toBe(1));
    beStopped();
    await clock.advance(3 * PERIOD_MS);
    end();
    await passAll(running);
    expect(order).toEqual(["handler ends", "finished"]);
    expect([...store.fields.keys()]).toEqual(["s"]);
  });

  it("records finished ticks until it succeeds, tries once more if the term ends first, and does not reject", async () => {
    let end: () => void = () => undefined;
    for (const failures of [2, 3]) {
      controller = new AbortController();
      isCurrent = true;
      ticks = [];
      log = [];
      let tries = 0;
      const store = memoryStore();
      store.before = () => {
        if (!controller.signal.aborted) return;
        tries += 1;
        if (failures > 2 && tries === 2) isCurrent = false;
        if (tries <= failures) throw new Error("silent");
      };
      const handler = (): Promise<void> =>
        new Promise<void>((resolve) => {
          end = resolve;
        });
      const running = session(store, { delivery: "at-least-once" }, handler).run();
      await pass(() => expect(ticks.length).toBe(1));
      beStopped();
      end();
      await passAll(running);
      const silences = log.filter((line) => line === "Error: silent").length;
      expect([tries, silences]).toEqual(failures === 2 ? [3, 1] : [2, 1]);
    }
  });

  it("does not record a tick as finished if its handler ended after the term, or because of its end", async () => {
    const store = memoryStore();
    const handler = (tick: Tick): Promise<void> =>
      new Promise((_, reject) => {
        tick.signal.addEventListener("abort", () => reject(tick.signal.reason as Error));
      });
    const running = session(store, { delivery: "at-least-once" }, handler).run();
    await pass(() => expect(ticks.length).toBe(1));
    beStopped();
    await passAll(running);
    expect([...store.fields].filter(([field]) => field.startsWith("r:")).map(([, line]) => line)).toEqual(["1"]);
  });

  describe("when the answer to a claim contains an order to pause", () => {
    const least = { delivery: "at-least-once", catchup: "all" } as const;

    it("neither runs the tick nor leaves a note of it", async () => {
      const store = memoryStore([upToNow()]);
      store.before = ({ fields }) => {
        if (fields.some((field) => field.startsWith("r:"))) store.mail.set("p:s", "7 1 0");
      };
      const running = session(store, least).run();
      await pass(() => expect([store.fields.get("p:s"), store.mail.size]).toEqual(["7 1 0", 0]));
      await pass(() => expect([...store.fields.keys()].filter((field) => field.startsWith("r:"))).toEqual([]));
      lose();
      await passAll(running);
      expect([ticks, new Set(log)]).toEqual([[], new Set(["skipped: paused"])]);
    });

    it("runs no tick from before the end of a pause that is reported with the answer", async () => {
      const store = memoryStore([upToNow()]);
      let resumedMs = Number.POSITIVE_INFINITY;
      store.before = async ({ fields }) => {
        if (resumedMs < Number.POSITIVE_INFINITY || !fields.some((field) => field.startsWith("r:"))) return;
        await dueMoreThan(2);
        resumedMs = clock.wallMs();
        store.mail.set("p:s", `7 0 ${resumedMs}`);
      };
      const running = session(store, least).run();
      await pass(() => expect(ticks.length).toBeGreaterThan(2));
      lose();
      await passAll(running);
      expect(ticks[0]?.scheduledAt.getTime()).toBeGreaterThan(resumedMs);
    });
  });

  it("does not run the unfinished tick of an earlier leader if its schedule is paused", async () => {
    const store = memoryStore([
      ["p:s", "1 1 0"],
      ["r:s@1000", "1"],
    ]);
    const running = session(store, { delivery: "at-least-once" }).run();
    await pass(() => expect(store.said("r:s@1000").at(-1)).toEqual(["r:s@1000", ""]));
    lose();
    await passAll(running);
    expect([ticks, log[0]]).toEqual([[], "skipped: paused"]);
  });

  it("counts no attempt for a tick that it leaves to the next leader without having started it", async () => {
    const notes = ["r:s@1000", "r:s@2000", "r:s@3000"];
    const store = memoryStore(notes.map((note) => [note, "3"]));
    const running = session(
      store,
      { delivery: "at-least-once" },
      ({ signal }) => new Promise((_, reject) => onAbort(signal, () => reject(signal.reason as Error))),
    ).run();
    await pass(() => expect(ticks.length).toBe(1));
    expect(notes.map((note) => store.fields.get(note))).toEqual(["4", "4", "4"]);
    beStopped();
    await passAll(running);
    expect(notes.map((note) => store.fields.get(note))).toEqual(["4", "3", "3"]);
  });

  it("runs a tick again that an earlier leader started, and abandons it after maxAttempts", async () => {
    for (const [line, expected] of [
      ["4", { attempts: [5], log: [] }],
      ["5", { attempts: [], log: ["skipped: attempts"] }],
    ] as const) {
      controller = new AbortController();
      isCurrent = true;
      ticks = [];
      log = [];
      const store = memoryStore([["r:s@1000", line]]);
      await runAWhile(session(store, { delivery: "at-least-once", maxAttempts: 5, overlap: "allowAll" }));
      expect([ranAt(1_000).map(({ attempt }) => attempt), log]).toEqual([expected.attempts, expected.log]);
      expect(ranAt(1_000).map(({ id }) => id)).toEqual(expected.attempts.map(() => "s@19700101T000001.000Z"));
      expect(store.fields.has("r:s@1000")).toBe(false);
    }
  });

  it("does not run its own running tick again when the schedule is added again", async () => {
    const store = memoryStore();
    const own = session(store, { delivery: "at-least-once" }, () => new Promise(() => undefined));
    const running = own.run();
    await pass(() => expect(ticks.length).toBe(1));
    const [entry] = entries.values();
    if (entry === undefined) throw new Error("no entry");
    entries.set("s", { ...entry });
    own.forget("s");
    await pass(() => expect(log.filter((line) => line === "skipped: overlap").length).toBeGreaterThan(2));
    expect([ticks.length, store.writes.some((write) => mentions(write, "r:s@1000"))]).toEqual([1, false]);
    expect(store.said("r:").map(([, line]) => line)).toEqual(["1"]);
    lose();
    void running;
  });
});
