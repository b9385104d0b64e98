/** Ten thousand schedules cost little memory, and do not hold up the event loop. */
import { LeaderElection, type LeaderTerm } from "@x/leader";
import { LeaderScheduler } from "@x/leader/scheduler";
import { type Clock, systemClock } from "@x/redlock-core";
import { Emitter } from "@x/redlock-core/kit";
import { ManualClock, spawnChild } from "@x/test-support";
import { describe, expect, it } from "vitest";
import { Slice } from "../../src/kit/slice.ts";
import { SCHEDULER_EVENTS, type SchedulerEvents } from "../../src/scheduler/events.ts";
import { resolveScheduleOptions } from "../../src/scheduler/options.ts";
import { Register } from "../../src/scheduler/register.ts";
import { everyCalendar } from "../../src/scheduler/rules/calendar.ts";
import { SchedulerTerm } from "../../src/scheduler/scheduler-term.ts";
import type { Tick } from "../../src/scheduler/tick.ts";
import type { ScheduleEntry } from "../../src/scheduler/timetable.ts";
import { MemoryStore } from "../support/memory-store.ts";
import { LEASE, startNodes } from "../support/redis.ts";

const BEGIN_MS = Date.UTC(2026, 0, 1);

/** A clock that moves by a millisecond with each unit of work, and counts the units until the event loop turns. */
class WorkClock {
  #ms = 0;
  #inTurn = 0;
  longestTurn = 0;
  turns = 0;
  readonly clock: Clock = {
    ...systemClock,
    monotonicMs: () => this.#ms,
    wallMs: () => BEGIN_MS + this.#ms,
    schedule: (afterMs, run, options) =>
      systemClock.schedule(
        afterMs,
        () => {
          this.#inTurn = 0;
          this.turns += 1;
          run();
        },
        options,
      ),
  };

  restart(): void {
    this.#inTurn = 0;
    this.longestTurn = 0;
  }

  work(): void {
    this.#ms += 1;
    this.#inTurn += 1;
    this.longestTurn = Math.max(this.longestTurn, this.#inTurn);
  }
}

const COUNT = 400;
/** A slice of 10 ms, a slice of 5 ms, and the work that was begun at the end of each slice. */
const MOST_IN_A_TURN = 20;
const PERIOD_MS = 3_600_000;
/** A period so short that all these schedules are due again before each has had its turn. */
const FREQUENT_MS = 200;

/** Leads with these schedules. Returns a function that ends the term. */
function lead(store: MemoryStore, entries: ReadonlyMap<string, ScheduleEntry>): { readonly end: () => Promise<void> } {
  const over = new AbortController();
  const term = { election: "x", term: 5, fencingToken: 5, signal: over.signal, isCurrent: () => !over.signal.aborted };
  const running = new SchedulerTerm({
    term: term as unknown as LeaderTerm,
    store: store.asStore,
    clock: store.ledger.clock,
    random: () => 0,
    entries,
    handlers: new Map(),
    concurrency: 1_000,
    events: new Emitter<SchedulerEvents>(SCHEDULER_EVENTS),
    over: over.signal,
  }).run();
  return {
    end: async () => {
      over.abort(new Error("over"));
      await running;
    },
  };
}

describe("many schedules", () => {
  it("take less than 1.3 kB each, even in a leader", async () => {
    await using nodes = await startNodes(1);
    await using child = spawnChild(new URL("../children/many-schedules.ts", import.meta.url), {
      args: [...nodes.paths],
      execArgv: ["--expose-gc"],
    });
    const isCost = (message: unknown): message is { readonly perSchedule: number; readonly perLed: number } =>
      typeof message === "object" && message !== null && "perLed" in message;
    const { perSchedule, perLed } = await child.message(isCost, { timeout: 60_000 });
    expect(perSchedule).toBeLessThan(640);
    expect(perLed).toBeLessThan(1_250);
    expect(await child.exited).toMatchObject({ code: 0 });
  });

  it.each(["are loaded", "are all due", "are more than there is time for", "are far behind one of each millisecond"])(
    "are all processed, in slices, when they %s",
    async (which) => {
      const worked = new WorkClock();
      const nowMs = BEGIN_MS;
      const storedMs = which === "are loaded" ? nowMs : nowMs - 3 * PERIOD_MS;
      const entries = new Map<string, ScheduleEntry>();
      const begun = new Set<string>();
      const asked = new Set<string>();
      const frequent = new Set<string>();
      for (let at = 0; at < COUNT; at += 1) {
        const name = `s${at}`;
        // The schedules in front are due again before the last schedule has had its turn.
        if (which === "are more than there is time for" && at < COUNT / 4) frequent.add(name);
        const isDense = which.startsWith("are far behind") && at === 0;
        const periodMs = isDense ? 1 : frequent.has(name) ? FREQUENT_MS : PERIOD_MS;
        const next = (afterMs: number): number => {
          worked.work();
          asked.add(name);
          return (Math.floor(afterMs / periodMs) + 1) * periodMs;
        };
        const options = resolveScheduleOptions({ catchupWindow: 2 * PERIOD_MS }, "UTC");
        entries.set(name, { name, calendar: { next }, handler: () => begun.add(name), options });
      }
      const accountedMs = (name: string): number => (frequent.has(name) ? nowMs : storedMs);
      const store = new MemoryStore(
        [...entries.keys()].map((name) => [name, `${accountedMs(name)} 0 0`]),
        worked.clock,
      );
      const { end } = lead(store, entries);
      const done = which === "are loaded" ? asked : begun;
      await expect.poll(() => done.size, { timeout: 60_000 }).toBe(COUNT);
      await end();
      expect(worked.longestTurn).toBeLessThanOrEqual(MOST_IN_A_TURN);
    },
  );

  it("cost one write for each five hundred that are due together, however frequent they are", async () => {
    const clock = new ManualClock();
    const begun: number[] = [];
    const options = resolveScheduleOptions({}, "UTC");
    const handler = (tick: Tick): unknown => begun.push(tick.scheduledAt.getTime());
    const names = Array.from({ length: 1_000 }, (_, at) => `s${at}`);
    const entries = new Map(
      names.map((name): [string, ScheduleEntry] => [
        name,
        { name, calendar: everyCalendar(1_000, 0), handler, options },
      ]),
    );
    const store = new MemoryStore(
      names.map((name) => [name, `${clock.wallMs()} 0 0`]),
      clock,
    );
    const { end } = lead(store, entries);
    const seconds = 4;
    for (let half = 0; half < 2 * seconds; half += 1) await clock.advance(500);
    await end();
    expect(new Set(begun).size).toBe(seconds);
    expect(begun).toHaveLength(seconds * names.length);
    const claims = store.writes.map(({ fields }) => fields.length / 2);
    expect(claims).toEqual([0, ...Array.from({ length: seconds * 2 }, () => 500)]);
  });

  it("are taken over in slices", async () => {
    const worked = new WorkClock();
    const clock: Clock = {
      ...worked.clock,
      monotonicMs: () => {
        worked.work();
        return worked.clock.monotonicMs();
      },
    };
    const store = new MemoryStore(
      Array.from({ length: COUNT }, (_, at) => [`s${at}`, "1 0 0"]),
      clock,
    );
    const register = new Register({
      store: store.asStore,
      term: { term: 5, isCurrent: () => true },
      onDoubt: () => undefined,
    });
    await register.take(new Slice(clock));
    expect(register.fields.size).toBe(COUNT);
    expect(worked.turns).toBeGreaterThan(COUNT / MOST_IN_A_TURN);
  });

  it("are listed in slices", async () => {
    await using nodes = await startNodes(1);
    const worked = new WorkClock();
    const redlock = nodes.redlock({ clock: worked.clock });
    const scheduler = new LeaderScheduler({ election: new LeaderElection(redlock, { name: "listed", ...LEASE }) });
    for (let at = 0; at < COUNT; at += 1) {
      scheduler.add(
        `s${at}`,
        (after) => {
          worked.work();
          return new Date(after.getTime() + PERIOD_MS);
        },
        () => undefined,
      );
    }
    worked.restart();
    expect(await scheduler.list()).toHaveLength(COUNT);
    expect(worked.longestTurn).toBeLessThanOrEqual(MOST_IN_A_TURN);
  });
});
