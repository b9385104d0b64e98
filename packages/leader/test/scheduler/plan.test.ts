import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { cronCalendar, everyCalendar, ownCalendar } from "../../src/scheduler/rules/calendar.ts";
import { type Catchup, ON_TIME_MS, type Plan, type PlanInput, planInSteps } from "../../src/scheduler/rules/plan.ts";

const catchup = fc.constantFrom<Catchup>("none", "latest", "all");

/** Runs all steps of a plan in one call. */
function planTicks(input: PlanInput): Plan {
  const planning = planInSteps(input);
  for (;;) {
    const step = planning.next();
    if (step.done === true) return step.value;
  }
}

describe("planInSteps", () => {
  it("runs each tick at most once and forgets none, however often it is called", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 50, max: 5_000 }),
        fc.array(fc.integer({ min: 1, max: 20_000 }), { minLength: 1, maxLength: 20 }),
        catchup,
        fc.integer({ min: 0, max: 30_000 }),
        (period, pauses, policy, windowMs) => {
          const calendar = everyCalendar(period, 0);
          let accountedMs = 1_000_000;
          let nowMs = accountedMs;
          let missed = 0;
          const fired: number[] = [];
          for (const pause of pauses) {
            nowMs += pause;
            const plan = planTicks({ calendar, accountedMs, nowMs, catchup: policy, windowMs, maxCatchup: 100 });
            expect(plan.accountedMs).toBeGreaterThanOrEqual(accountedMs);
            expect(plan.accountedMs).toBeLessThanOrEqual(nowMs);
            ({ accountedMs } = plan);
            missed += plan.missed;
            fired.push(...plan.fire.map((tick) => tick.atMs));
          }
          expect(fired).toEqual([...new Set(fired)].toSorted((a, b) => a - b));
          expect(fired.length + missed).toBe(Math.floor(nowMs / period) - Math.floor(1_000_000 / period));
        },
      ),
    );
  });

  it("never runs ticks older than the window, nor more ticks than the cap", () => {
    fc.assert(
      fc.property(
        catchup,
        fc.integer({ min: 0, max: 100_000 }),
        fc.integer({ min: 1, max: 50 }),
        fc.integer({ min: 1, max: 1e7 }),
        (policy, windowMs, maxCatchup, gap) => {
          const nowMs = 1e9 + gap;
          const plan = planTicks({
            calendar: everyCalendar(1_000, 0),
            accountedMs: 1e9,
            nowMs,
            catchup: policy,
            windowMs,
            maxCatchup,
          });
          expect(plan.fire.length).toBeLessThanOrEqual(policy === "all" ? maxCatchup : 1);
          const limit = policy === "none" ? ON_TIME_MS : Math.max(windowMs, ON_TIME_MS);
          for (const tick of plan.fire) expect(nowMs - tick.atMs).toBeLessThanOrEqual(limit);
        },
      ),
    );
  });

  it("runs a tick that is a little late as on time, with any policy", () => {
    for (const policy of ["none", "latest", "all"] as const) {
      const plan = planTicks({
        calendar: everyCalendar(60_000, 0),
        accountedMs: 0,
        nowMs: 60_400,
        catchup: policy,
        windowMs: 0,
        maxCatchup: 1,
      });
      expect(plan.fire).toEqual([{ atMs: 60_000, isCatchup: false }]);
    }
  });

  it("is bounded after a year's gap of a dense schedule", () => {
    let asked = 0;
    const every = everyCalendar(10, 0);
    const calendar = {
      next: (afterMs: number): number | null => {
        asked += 1;
        return every.next(afterMs);
      },
    };
    const year = 365 * 86_400_000;
    const plan = planTicks({
      calendar,
      accountedMs: 0,
      nowMs: year,
      catchup: "all",
      windowMs: year,
      maxCatchup: 1_000,
    });
    expect(plan.fire.length).toBeGreaterThan(0);
    expect(plan.fire.at(-1)?.atMs).toBe(year);
    expect(plan.missed).toBeGreaterThanOrEqual(1_000);
    expect(asked).toBeLessThan(50_000);
  });
});

describe("calendars", () => {
  const berlin = cronCalendar("30 2 * * *", "Europe/Berlin");
  const ticksOf = (from: string, count: number): string[] => {
    const ticks: string[] = [];
    let afterMs = Date.parse(from);
    while (ticks.length < count) {
      const next = berlin.next(afterMs);
      if (next === null) break;
      ticks.push(new Date(next).toISOString());
      afterMs = next;
    }
    return ticks;
  };

  it("run a fixed time once on the day in spring that skips the time", () => {
    expect(ticksOf("2026-03-28T00:00:00Z", 3)).toEqual([
      "2026-03-28T01:30:00.000Z",
      "2026-03-29T01:00:00.000Z",
      "2026-03-30T00:30:00.000Z",
    ]);
  });

  it("run a fixed time once on the day in autumn that repeats the time", () => {
    const ticks = ticksOf("2026-10-24T00:00:00Z", 3);
    expect(ticks.map((tick) => tick.slice(0, 10))).toEqual(["2026-10-24", "2026-10-25", "2026-10-26"]);
  });

  it("find a monthly tick that is further away than the longest timer", () => {
    const monthly = cronCalendar("0 0 1 * *", "UTC");
    const from = Date.parse("2026-01-01T00:00:00Z");
    expect(monthly.next(from)).toBe(Date.parse("2026-02-01T00:00:00Z"));
    expect((monthly.next(from) ?? 0) - from).toBeGreaterThan(2 ** 31 - 1);
  });

  it.each([
    ["0 0 30 2 *", /must have a next tick, got "0 0 30 2 \*", which never fires/],
    ["0 0 0 1 1 * 2030", /must have 5 or 6 fields, or be a nickname as "@daily", got "0 0 0 1 1 \* 2030"/],
    ["2030-01-01T00:00:00", /must have 5 or 6 fields/],
    ["* * *", /must have 5 or 6 fields/],
    ["99 * * * *", /must be a cron expression, got "99 \* \* \* \*": Invalid value for minute: 99/],
    ["@reboot", /must be a cron expression, got "@reboot"/],
  ])("refuse %j", (expression, message) => {
    expect(() => cronCalendar(expression, "UTC")).toThrow(RangeError);
    expect(() => cronCalendar(expression, "UTC")).toThrow(message);
  });

  it.each(["@hourly", "@daily", "@weekly", "@monthly", "@yearly", "0 0 29 2 *", "* * * * * *"])(
    "accept %s",
    (expression) => {
      expect(cronCalendar(expression, "UTC").next(0)).toBeGreaterThan(0);
    },
  );

  it("keep the phase of an interval across processes", () => {
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 1e9 }),
        fc.nat({ max: 1e9 }),
        fc.integer({ min: 0, max: 2e12 }),
        (ms, offset, after) => {
          const next = everyCalendar(ms, offset).next(after) ?? 0;
          expect(next).toBeGreaterThan(after);
          expect(next - after).toBeLessThanOrEqual(ms);
          expect(Math.abs((next - offset) % ms)).toBe(0);
        },
      ),
    );
  });

  it("have no tick later than the last Date", () => {
    const calendar = everyCalendar(Number.MAX_SAFE_INTEGER, 0);
    expect([calendar.next(0), everyCalendar(8.64e15, 0).next(0)]).toEqual([null, 8.64e15]);
  });

  it("refuse a custom calendar that does not advance", () => {
    for (const bad of [(after: Date) => after, () => new Date(Number.NaN), () => undefined as unknown as Date]) {
      expect(() => ownCalendar("mine", bad).next(5)).toThrow(/next tick of "mine" must be null or a Date later than/);
    }
  });
});
