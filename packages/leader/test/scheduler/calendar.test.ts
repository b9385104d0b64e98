/** The ticks of cron expressions on days on which a zone changes its clocks, and on all other days. */
import { Cron } from "croner";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { cronCalendar } from "../../src/scheduler/rules/calendar.ts";

/** The ticks from `from` on and before `until`. */
function ticksOf(expression: string, zone: string, from: string, until: string): readonly string[] {
  const calendar = cronCalendar(expression, zone);
  const ticks: string[] = [];
  let nextMs = calendar.next(Date.parse(from) - 1);
  while (nextMs !== null && nextMs < Date.parse(until)) {
    ticks.push(new Date(nextMs).toISOString());
    nextMs = calendar.next(nextMs);
  }
  return ticks;
}

/** Returns times such as "00:00 00:30", in UTC. */
function timesOf(expression: string, zone: string, [from, until]: readonly [string, string]): string {
  return ticksOf(expression, zone, from, until)
    .map((tick) => tick.slice(11, tick.endsWith(":00.000Z") ? 16 : 19))
    .join(" ");
}

interface Change {
  readonly zone: string;
  /** Three or four hours around the change. */
  readonly repeated: readonly [string, string];
  readonly skipped: readonly [string, string];
  /** Expression, times around the repeated hour, times around the skipped hour. */
  readonly rows: readonly (readonly [string, string, string])[];
}

const CHANGES: readonly Change[] = [
  {
    zone: "Europe/Berlin",
    // 01:00 to 04:00, with 02:00 to 03:00 twice; the second one begins at 01:00 UTC.
    repeated: ["2026-10-24T23:00Z", "2026-10-25T03:00Z"],
    // 01:00 to 05:00 without 02:00 to 03:00, which ends at 01:00 UTC.
    skipped: ["2026-03-29T00:00Z", "2026-03-29T03:00Z"],
    rows: [
      ["30 2 * * *", "00:30", "01:00"],
      ["0,30 2 * * *", "00:00 00:30", "01:00"],
      ["15,45 2 * * *", "00:15 00:45", "01:00"],
      ["30 2,14 * * *", "00:30", "01:00"],
      ["30 1,2,3 * * *", "23:30 00:30 02:30", "00:30 01:00 01:30"],
      ["30 0-4/2 * * *", "00:30", "01:00 02:30"],
      ["*/30 2 * * *", "00:00 00:30", "01:00"],
      ["20-59/30 2 * * *", "00:20 00:50", "01:00"],
      ["*/30 15 2 * * *", "00:15 00:15:30", "01:00"],
      ["?/30 ?/40 2 * * *", "00:00 00:00:30 00:40 00:40:30", "01:00"],
      ["0 0 2,3 * * *", "00:00 02:00", "01:00"],
      ["0 * * * *", "23:00 00:00 01:00 02:00", "00:00 01:00 02:00"],
      ["@hourly", "23:00 00:00 01:00 02:00", "00:00 01:00 02:00"],
      ["30 ? * * *", "23:30 00:30 01:30 02:30", "00:30 01:30 02:30"],
      ["30 */2 * * *", "00:30 01:30", "02:30"],
      ["*/30 * * * *", "23:00 23:30 00:00 00:30 01:00 01:30 02:00 02:30", "00:00 00:30 01:00 01:30 02:00 02:30"],
    ],
  },
  {
    zone: "America/New_York",
    // 00:00 to 03:00, with 01:00 to 02:00 twice; the second one begins at 06:00 UTC.
    repeated: ["2026-11-01T04:00Z", "2026-11-01T08:00Z"],
    // 01:00 to 06:00 without 02:00 to 03:00, which ends at 07:00 UTC.
    skipped: ["2026-03-08T06:00Z", "2026-03-08T10:00Z"],
    rows: [
      ["30 1 * * *", "05:30", "06:30"],
      ["0,30 1-2 * * *", "05:00 05:30 07:00 07:30", "06:00 06:30 07:00"],
      ["*/30 1 * * *", "05:00 05:30", "06:00 06:30"],
      ["30 2,14 * * *", "07:30", "07:00"],
      ["0 * * * *", "04:00 05:00 06:00 07:00", "06:00 07:00 08:00 09:00"],
    ],
  },
  {
    zone: "Australia/Lord_Howe",
    // 01:00 to 03:00, with 01:30 to 02:00 twice; the second one begins at 15:00 UTC.
    repeated: ["2026-04-04T14:00Z", "2026-04-04T16:30Z"],
    // 01:00 to 03:30 without 02:00 to 02:30, which ends at 15:30 UTC.
    skipped: ["2026-10-03T14:30Z", "2026-10-03T16:30Z"],
    rows: [
      ["45 1 * * *", "14:45", "15:15"],
      ["0,30,45 1 * * *", "14:00 14:30 14:45", "14:30 15:00 15:15"],
      ["15 2,14 * * *", "15:45", "15:30"],
      ["*/15 2 * * *", "15:30 15:45 16:00 16:15", "15:30 15:45"],
      ["45 * * * *", "14:45 15:15 16:15", "15:15 15:45"],
      ["*/30 * * * *", "14:00 14:30 15:00 15:30 16:00", "14:30 15:00 15:30 16:00"],
    ],
  },
];

describe.each(CHANGES)("cron expressions when the clocks change in $zone", ({ zone, repeated, skipped, rows }) => {
  it.each(rows)("%s", (expression, whenRepeated, whenSkipped) => {
    expect([timesOf(expression, zone, repeated), timesOf(expression, zone, skipped)]).toEqual([
      whenRepeated,
      whenSkipped,
    ]);
  });

  it("neither repeat nor lose a run in a year", () => {
    const [from, until] = ["2026-01-01T12:00Z", "2027-01-01T12:00Z"];
    for (const [expression, aDay] of [
      ["30 1,13 * * *", 2],
      ["30 2,14 * * *", 2],
      ["45 1-3 * * *", 3],
    ] as const)
      expect(ticksOf(expression, zone, from, until)).toHaveLength(365 * aDay);
  });
});

describe("cron expressions", () => {
  it("skip a time that does not exist until midnight", () => {
    const days = ticksOf("30 11,23 * * *", "America/Nuuk", "2027-03-27T12:00Z", "2027-03-29T12:00Z");
    expect(days).toEqual(["2027-03-27T13:30:00.000Z", "2027-03-28T12:30:00.000Z", "2027-03-29T00:30:00.000Z"]);
  });

  it("match croner's times on every day that has 24 hours", () => {
    const field = (most: number): fc.Arbitrary<string> => {
      const value = fc.integer({ min: 0, max: most });
      const step = fc.integer({ min: 1, max: most });
      const range = fc.tuple(value, value).map(([a, b]) => `${Math.min(a, b)}-${Math.max(a, b)}`);
      const item = fc.oneof(
        value.map(String),
        range,
        fc.tuple(range, step).map(([from, by]) => `${from}/${by}`),
      );
      return fc.oneof(
        fc.constantFrom("*", "?"),
        step.map((by) => `*/${by}`),
        fc.array(item, { minLength: 1, maxLength: 4 }).map((items) => items.join(",")),
      );
    };
    const expressions = fc
      .tuple(fc.option(field(59), { nil: undefined }), field(59), field(23))
      .map((fields) => [...fields.filter((each) => each !== undefined), "* * *"].join(" "));
    // No zone here changes its clocks in these weeks.
    const after = fc.integer({ min: Date.parse("2026-06-01"), max: Date.parse("2026-08-20") });
    const zone = fc.constantFrom(...CHANGES.map((change) => change.zone), "UTC");
    fc.assert(
      fc.property(expressions, zone, fc.array(after, { minLength: 1, maxLength: 5 }), (expression, timezone, times) => {
        const plain = new Cron(expression, { paused: true, timezone });
        const calendar = cronCalendar(expression, timezone);
        for (const afterMs of times) expect(calendar.next(afterMs)).toBe(plain.nextRun(new Date(afterMs))?.getTime());
      }),
    );
  });
});
