/** Ticks that wait for each other or for a slot; handlers end when the test says so. */
import { systemClock } from "@x/redlock-core";
import { Emitter } from "@x/redlock-core/kit";
import { beforeEach, describe, expect, it } from "vitest";
import type { LeaderTerm } from "../../src/leader-term.ts";
import { SCHEDULER_EVENTS, type SchedulerEvents } from "../../src/scheduler/events.ts";
import { resolveScheduleOptions } from "../../src/scheduler/options.ts";
import { everyCalendar } from "../../src/scheduler/rules/calendar.ts";
import { type ClaimedTick, Runner } from "../../src/scheduler/runner.ts";
import { type Tick, tickId } from "../../src/scheduler/tick.ts";
import { type ScheduleEntry, type Track, trackOf } from "../../src/scheduler/timetable.ts";

describe("a runner", () => {
  let term: AbortController;
  let isCurrent: boolean;
  let events: Emitter<SchedulerEvents>;
  /** By schedule and time: begun, skipped, finished. */
  let log: string[];
  let ends: Map<string, () => void>;
  let entries: Map<string, ScheduleEntry>;
  beforeEach(() => {
    term = new AbortController();
    isCurrent = true;
    events = new Emitter<SchedulerEvents>(SCHEDULER_EVENTS);
    log = [];
    ends = new Map();
    entries = new Map();
    events.on("tickSkipped", ({ schedule, scheduledAt, reason }) =>
      log.push(`${schedule}${scheduledAt.getTime()} skipped: ${reason}`),
    );
  });

  const runner = (concurrency = 100): Runner =>
    new Runner({
      term: {
        election: "x",
        term: 5,
        fencingToken: 5,
        signal: term.signal,
        isCurrent: () => isCurrent,
      } as unknown as LeaderTerm,
      clock: systemClock,
      concurrency,
      entries,
      events,
      finished: ({ name, atMs }) => log.push(`${name}${atMs} finished`),
      left: ({ name, atMs }) => log.push(`${name}${atMs} left`),
    });

  const schedule = (name: string): Track => {
    const track = trackOf(
      {
        name,
        calendar: everyCalendar(1, 0),
        handler: (tick: Tick) => {
          const own = `${name}${tick.scheduledAt.getTime()}`;
          log.push(`${own} begun`);
          return new Promise<void>((resolve) => ends.set(own, resolve));
        },
        options: resolveScheduleOptions({}, "UTC"),
      },
      { accountedMs: 0, lastMs: 0, missed: 0 },
    );
    entries.set(name, track.entry);
    return track;
  };

  const claimed = (track: Track, atMs: number, own: Partial<ClaimedTick> = {}): ClaimedTick => ({
    track,
    name: track.entry.name,
    atMs,
    id: tickId(track.entry.name, atMs),
    isCatchup: false,
    isBacklog: false,
    attempt: 1,
    delivery: "at-most-once",
    trigger: undefined,
    lastMs: 0,
    ...own,
  });

  const end = (tick: string): void => ends.get(tick)?.();

  describe("of a paused schedule", () => {
    const trigger = { id: "r", name: "a", atMs: 0 };
    const isScheduled = (each: ClaimedTick): boolean => each.trigger === undefined;

    it("drops the waiting ticks, and runs the triggered ones", async () => {
      const own = runner();
      const a = schedule("a");
      own.launch(claimed(a, 1), "run");
      own.launch(claimed(a, 2), "queue");
      own.launch(claimed(a, 3, { trigger }), "queue");
      own.launch(claimed(a, 4), "queue");
      own.dropWaiting("a", "paused", isScheduled);
      expect(log.splice(0)).toEqual(["a1 begun", "a2 skipped: paused", "a4 skipped: paused"]);
      end("a1");
      await expect.poll(() => log).toEqual(["a3 begun"]);
      end("a3");
      await own.idle();
    });

    it("drops a tick that waits for a slot, and starts the tick that waits behind it", async () => {
      const own = runner(1);
      const [a, b] = [schedule("a"), schedule("b")];
      own.launch(claimed(a, 1), "run");
      own.launch(claimed(b, 1), "run");
      own.launch(claimed(b, 2, { trigger }), "queue");
      own.dropWaiting("b", "paused", isScheduled);
      end("a1");
      await expect.poll(() => log).toEqual(["a1 begun", "b1 skipped: paused", "b2 begun"]);
      end("b2");
      await own.idle();
    });

    it("starts no further tick if a listener of the dropped tick ends the term", async () => {
      const own = runner();
      const a = schedule("a");
      own.launch(claimed(a, 1), "run");
      own.launch(claimed(a, 2), "queue");
      own.launch(claimed(a, 3, { trigger }), "queue");
      events.on("tickSkipped", () => own.end());
      own.dropWaiting("a", "paused", isScheduled);
      end("a1");
      await own.idle();
      expect(log).toEqual(["a1 begun", "a2 skipped: paused", "a3 left"]);
    });

    it("records a dropped tick that would otherwise run again", () => {
      const own = runner();
      const a = schedule("a");
      own.launch(claimed(a, 1), "run");
      own.launch(claimed(a, 2, { delivery: "at-least-once" }), "queue");
      own.dropWaiting("a", "paused", isScheduled);
      expect(log).toEqual(["a1 begun", "a2 skipped: paused", "a2 finished"]);
    });
  });

  describe("that has been ended", () => {
    it("starts no tick that waits for others or for a slot", async () => {
      const own = runner(1);
      const [a, b] = [schedule("a"), schedule("b")];
      own.launch(claimed(a, 1), "run");
      own.launch(claimed(a, 2), "queue");
      own.launch(claimed(b, 1), "run");
      own.launch(claimed(b, 2), "queue");
      own.end();
      end("a1");
      await own.idle();
      expect(log).toEqual(["a1 begun", "a2 skipped: term-over", "b1 skipped: term-over", "b2 skipped: term-over"]);
    });

    it("neither skips nor records ticks that the next leader will run", async () => {
      const own = runner();
      const a = schedule("a");
      const least = { delivery: "at-least-once" } as const;
      own.launch(claimed(a, 1, least), "run");
      own.launch(claimed(a, 2, least), "queue");
      own.end();
      own.launch(claimed(schedule("b"), 1, least), "run");
      end("a1");
      await own.idle();
      expect(log).toEqual(["a1 begun", "a2 left", "b1 left", "a1 finished"]);
    });

    it("starts a tick whose claim is answered late, if the tick can start immediately", async () => {
      const own = runner(2);
      const [a, b, c] = [schedule("a"), schedule("b"), schedule("c")];
      own.launch(claimed(a, 1), "run");
      own.end();
      own.launch(claimed(a, 2), "replace");
      own.launch(claimed(b, 1), "run");
      own.launch(claimed(c, 1), "run");
      end("a1");
      end("b1");
      await own.idle();
      expect(log).toEqual(["a1 begun", "a2 skipped: term-over", "b1 begun", "c1 skipped: term-over"]);
    });
  });

  it("gives the slot of a waiting tick to the tick that replaces it", async () => {
    const own = runner(1);
    const [a, b, c] = [schedule("a"), schedule("b"), schedule("c")];
    own.launch(claimed(a, 1), "run");
    own.launch(claimed(b, 1), "run");
    own.launch(claimed(c, 1), "run");
    own.launch(claimed(b, 2), "replace");
    own.launch(claimed(b, 3, { delivery: "at-least-once" }), "replace");
    own.launch(claimed(b, 4), "replace");
    end("a1");
    await expect.poll(() => log).toContain("b4 begun");
    end("b4");
    await expect.poll(() => log).toContain("c1 begun");
    end("c1");
    await own.idle();
    expect(log).toEqual([
      "a1 begun",
      "b1 skipped: overlap",
      "b2 skipped: overlap",
      "b3 skipped: overlap",
      "b3 finished",
      "b4 begun",
      "c1 begun",
    ]);
  });

  it("calls no handler after a listener of the tick took longer than the term", async () => {
    const own = runner();
    events.on("tickStarted", () => (isCurrent = false));
    own.launch(claimed(schedule("a"), 1), "run");
    own.launch(claimed(schedule("b"), 1, { delivery: "at-least-once" }), "run");
    await own.idle();
    expect(log).toEqual(["a1 skipped: term-over", "b1 left"]);
  });

  it("skips the waiting ticks of a removed schedule, at the latest when they would start", async () => {
    const own = runner();
    const a = schedule("a");
    own.launch(claimed(a, 1), "run");
    own.launch(claimed(a, 2), "queue");
    entries.delete("a");
    own.launch(claimed(a, 3), "queue");
    end("a1");
    await own.idle();
    expect(log).toEqual(["a1 begun", "a2 skipped: removed", "a3 skipped: removed"]);
  });

  it("returns the runs of a name, and forgets a name without runs", async () => {
    const own = runner();
    const a = schedule("a");
    own.launch(claimed(a, 1), "run");
    own.launch(claimed(a, 2), "queue");
    entries.delete("a");
    expect([own.runsOf("a").running.size, own.runsOf("a").queue.length]).toEqual([1, 1]);
    end("a1");
    await own.idle();
    expect(own.runsOf("a")).toEqual({ running: new Set(), queue: [] });
  });
});
