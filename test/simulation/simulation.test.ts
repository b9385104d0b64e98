import { describe, expect, it } from "vitest";
import { INVARIANTS } from "../../packages/testing/src/world.ts";
import { DIRECTED, runDirected } from "./directed.ts";
import { loadEngine } from "./engine.ts";
import { PLAYED, TEST_SEED } from "./known.ts";
import { MUTATIONS } from "./mutations.ts";
import { timelineSvg } from "./report/svg.ts";
import { timelineText } from "./report/text.ts";
import { runSchedule } from "./schedule.ts";
import { search } from "./search.ts";

const SEED = process.env["SIMULATION_SEED"] ?? TEST_SEED;
const engine = await loadEngine();

describe("simulation of locks", () => {
  it("keeps every invariant in random schedules full of faults", { timeout: 600_000 }, async () => {
    const found = await search(engine, { seed: SEED, runs: PLAYED.locks });
    expect(found.violations.map(({ result }) => timelineText(result))).toEqual([]);
    expect(found.grants).toBeGreaterThan(found.runs);
  });

  it.each(DIRECTED)("keeps every invariant in the directed schedule: %s", async (name) => {
    const result = await runDirected(engine, name);
    expect(result.violation).toBeUndefined();
    expect(result.grants).toBeGreaterThan(0);
  });

  it("breaks the order of tokens over a loss of data if client clocks differ by maxTtl - nodeTimeout", async () => {
    const result = await runDirected(engine, "clocks too far apart over a loss");
    expect(result.violation?.invariant).toBe(INVARIANTS.tokenOrder);
  });

  it.each([
    ["was flushed", "rot/3"],
    ["has restarted with a clock set ahead", "rot/398"],
  ])("makes no claim about the locks that a single node had granted before it %s", async (_how, seed) => {
    const result = await runSchedule(engine, seed, { nodeCount: 1 });
    expect(result.violation).toBeUndefined();
    expect(result.grants).toBeGreaterThan(0);
  });

  it("repeats a run from its seed", async () => {
    const runs = [1, 2].map(() => runSchedule(engine, "replay/1", { record: true }));
    const [first, second] = await Promise.all(runs);
    expect(second?.recordedEvents).toEqual(first?.recordedEvents);
    expect(first?.recordedEvents.length).toBeGreaterThan(100);
  });

  it("reports a violation as a timeline and a picture", async () => {
    const [mutation] = MUTATIONS.filter(({ protection }) => protection === "token compare");
    const broken = await loadEngine(mutation?.patches);
    const found = await search(broken, { seed: SEED, runs: 200 });
    const seed = found.violations[0]?.result.seed ?? "";
    const result = await runSchedule(broken, seed, { record: true });
    expect(result.violation).toEqual(found.violations[0]?.result.violation);
    expect(timelineText(result)).toContain("exclusion broke at");
    expect(timelineSvg(result)).toMatch(/^<svg .*exclusion<\/text>.*<\/svg>$/s);
  });
});
