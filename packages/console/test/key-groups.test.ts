/** The groups of keys, by which the page filters. */
import type { BusyKey } from "@x/workers";
import { expect, it } from "vitest";
import { filterOf, groupsOf } from "../src/page/rules/key-groups.ts";

const AT = 10_000_000;

function keyOf(key: string, given: Partial<BusyKey> = {}): BusyKey {
  const none = { holder: undefined, holders: [], sinceMs: undefined, paused: undefined, limitedUntilMs: undefined };
  const limits = { slots: 1, rate: undefined, policy: undefined, waitingSinceMs: undefined, keysAhead: undefined };
  return { key, parked: 0, isStalled: false, ...none, ...limits, ...given };
}

const KEYS: readonly BusyKey[] = [
  keyOf("free"),
  keyOf("one", { parked: 1, waitingSinceMs: AT }),
  keyOf("three", { parked: 3, waitingSinceMs: AT - 999, limitedUntilMs: AT + 1 }),
  keyOf("past", { parked: 3, waitingSinceMs: AT - 1_000, limitedUntilMs: AT }),
  keyOf("many", { parked: 513, waitingSinceMs: AT - 1_800_000, isStalled: true }),
  keyOf("paused", { paused: { reason: "stop", sinceMs: 0 } }),
  keyOf("halted", { parked: 4, waitingSinceMs: AT - 299_999, paused: { reason: "failed", sinceMs: 0, jobId: "1" } }),
  // The clock of the worker that added the job is ahead.
  keyOf("ahead", { parked: 1, waitingSinceMs: AT + 5_000 }),
];

const named = (group: string): readonly string[] | undefined => {
  const filter = filterOf(group, AT);
  return filter === undefined ? undefined : KEYS.filter(filter).map(({ key }) => key);
};

it("counts each key once in the charts, and in each of its states", () => {
  const { counts, lines, ages, fifth } = groupsOf(KEYS, AT);
  expect(counts).toEqual({ waiting: 6, limited: 1, paused: 1, halted: 1, stalled: 1 });
  expect(lines.filter(({ keys }) => keys > 0)).toEqual([
    { least: 1, keys: 2, jobs: 2 },
    { least: 2, keys: 2, jobs: 6 },
    { least: 4, keys: 1, jobs: 4 },
    { least: 512, keys: 1, jobs: 513 },
  ]);
  expect(ages.map(({ keys }) => keys)).toEqual([3, 1, 0, 1, 0, 1]);
  expect(fifth).toBe(1);
  expect(groupsOf([], AT)).toMatchObject({ counts: { waiting: 0 }, fifth: 0 });
});

it("filters by what the charts and the buttons count", () => {
  const { counts, lines, ages } = groupsOf(KEYS, AT);
  for (const [state, keys] of Object.entries(counts)) expect([state, named(state)?.length]).toEqual([state, keys]);
  for (const { least, keys } of lines) expect([least, named(`line-${least}`)?.length]).toEqual([least, keys]);
  for (const { leastMs, keys } of ages) expect([leastMs, named(`age-${leastMs}`)?.length]).toEqual([leastMs, keys]);
  expect(named("line-2")).toEqual(["three", "past"]);
  expect(named("age-1800000")).toEqual(["many"]);
});

it.each(["", "all", "line-3", "line-", "age-x", "constructor", "-"])("shows all keys for the group %j", (group) => {
  expect(named(group)).toBeUndefined();
});
