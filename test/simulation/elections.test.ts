import { describe, expect, it } from "vitest";
import { DATA_SEED } from "./election-schedule.ts";
import { loadEngine } from "./engine.ts";
import { PLAYED, TEST_SEED } from "./known.ts";
import { timelineText } from "./report/text.ts";
import { search } from "./search.ts";

const SEED = process.env["SIMULATION_SEED"] ?? TEST_SEED;

/** A schedule as data takes a tenth of a second. */
const DATA_RUNS = 30;

describe("simulation of elections and schedulers", () => {
  it("keeps every invariant in random schedules full of faults", { timeout: 600_000 }, async () => {
    const found = await search(await loadEngine(), { seed: SEED, runs: PLAYED.elections, subject: "elections" });
    expect(found.violations.map(({ result }) => timelineText(result))).toEqual([]);
    expect(found.grants).toBeGreaterThan(found.runs);
  });

  it("keeps every invariant while schedules as data are written again and again", { timeout: 600_000 }, async () => {
    const seed = SEED === TEST_SEED ? DATA_SEED : `${DATA_SEED}-${SEED}`;
    const found = await search(await loadEngine(), { seed, runs: DATA_RUNS, subject: "elections" });
    expect(found.violations.map(({ result }) => timelineText(result))).toEqual([]);
    expect(found.grants).toBeGreaterThan(found.runs);
  });
});
