import { describe, expect, it } from "vitest";
import { isCaught } from "../mutation-run.ts";
import { loadLanes } from "./load.ts";
import { runLaneMutation } from "./mutation-run.ts";
import { LANE_MUTATIONS } from "./mutations.ts";
import { laneText } from "./report.ts";
import { searchLanes } from "./search.ts";
import { type Focus, STEPS, type Step } from "./setting.ts";

const SEED = process.env["SIMULATION_SEED"] ?? "ci";
const RUNS = Number(process.env["LANE_RUNS"] ?? 80);
const code = await loadLanes();

const focuses = new Map<string, Focus>(
  LANE_MUTATIONS.flatMap(({ focus }) => (focus === undefined ? [] : [[focus.name, focus] as const])),
);

describe("lanes, step by step", () => {
  it("keep every invariant in random schedules of every step", { timeout: 600_000 }, async () => {
    const taken = new Set<Step>();
    const found = await searchLanes(code, {
      seed: SEED,
      runs: RUNS,
      onResult: ({ steps }) => {
        for (const step of steps.keys()) taken.add(step);
      },
    });
    expect(found.violation === undefined ? "" : laneText(found.violation)).toBe("");
    expect(found.handedOut).toBeGreaterThan(10 * found.runs);
    expect(found.parked).toBeGreaterThan(found.runs);
    expect(STEPS.filter((step) => !taken.has(step))).toEqual([]);
  });

  it.each([...focuses])("keep every invariant where it is hard: %s", async (_name, focus) => {
    const found = await searchLanes(code, { seed: SEED, runs: 8, focus });
    expect(found.violation === undefined ? "" : laneText(found.violation)).toBe("");
  });

  it("expect a LIFO job that is retried by hand in front, as BullMQ puts it there", async () => {
    const found = await searchLanes(code, { seed: "hostile-b/59", runs: 1 });
    expect(found.violation === undefined ? "" : laneText(found.violation)).toBe("");
  });

  it("keep every invariant though the queue is sifted before each end fetches, as among many ends", async () => {
    const eager = await loadLanes([
      {
        file: "workers/src/scripts/lane.lua.ts",
        find: "if slow then slow.sift(ending) end",
        replace: "contended().sift(ending)",
      },
    ]);
    const found = await searchLanes(eager, { seed: SEED, runs: RUNS });
    expect(found.violation === undefined ? "" : laneText(found.violation)).toBe("");
    expect(found.parked).toBeGreaterThan(found.runs);
  }, 600_000);

  it("replay from their seed", async () => {
    const logs: (readonly string[])[] = [];
    for (let time = 0; time < 2; time += 1) {
      await searchLanes(code, { seed: "replay/1", runs: 1, onResult: ({ log }) => logs.push(log) });
    }
    expect(logs[1]).toEqual(logs[0]);
    expect(logs[0]?.length).toBeGreaterThan(50);
  });
});

describe("mutations of the lane", () => {
  it.each(LANE_MUTATIONS.map((mutation) => [mutation.protection, mutation] as const))(
    "breaks an invariant without: %s",
    { timeout: 120_000 },
    async (_protection, mutation) => {
      const result = await runLaneMutation(mutation, { seed: SEED, budget: 200, quick: true });
      expect(isCaught(result)).toBe(true);
    },
  );

  it("fails loudly when the text to replace is not there once", async () => {
    const patch = { file: "workers/src/scripts/lane.lua.ts", find: "call", replace: "call" };
    await expect(loadLanes([patch])).rejects.toThrow('must contain "call" once');
  });
});
