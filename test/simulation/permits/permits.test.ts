import { expect, it } from "vitest";
import { loadEngine } from "../engine.ts";
import { PLAYED, TEST_SEED } from "../known.ts";
import { timelineText } from "../report/text.ts";
import { search } from "../search.ts";

const SEED = process.env["SIMULATION_SEED"] ?? TEST_SEED;

it("permits keep every invariant in random schedules full of faults", { timeout: 600_000 }, async () => {
  const found = await search(await loadEngine(), { seed: SEED, runs: PLAYED.permits, subject: "permits" });
  expect(found.violations.map(({ result }) => timelineText(result))).toEqual([]);
  expect(found.grants).toBeGreaterThan(found.runs);
});

it("a waiter returns to its first place on a node that has forgotten later waiters", async () => {
  const found = await search(await loadEngine(), { seed: "pa/89", runs: 1, subject: "permits" });
  expect(found.violations.map(({ result }) => timelineText(result))).toEqual([]);
});

it("latches keep every invariant in their own schedules", { timeout: 600_000 }, async () => {
  const found = await search(await loadEngine(), { seed: SEED, runs: PLAYED.latches, subject: "latches" });
  expect(found.violations.map(({ result }) => timelineText(result))).toEqual([]);
  expect(found.grants).toBeGreaterThan(found.runs);
});

it.each([3, 5])("read-write locks of %i nodes keep every invariant", { timeout: 600_000 }, async (nodeCount) => {
  const found = await search(await loadEngine(), { seed: SEED, runs: 16, subject: "permits", nodeCount });
  expect(found.violations.map(({ result }) => timelineText(result))).toEqual([]);
  expect(found.grants).toBeGreaterThan(found.runs);
});
