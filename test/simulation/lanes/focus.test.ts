/** The unchanged lane in the schedules that catch its mutations, with few steps and few keys. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { PLAYED, TEST_SEED } from "../known.ts";
import { loadLanes } from "./load.ts";
import { FOCUSES } from "./mutations.ts";
import { laneText } from "./report.ts";
import { searchLanes } from "./search.ts";
import { LaneWorld } from "./world.ts";

const SEED = process.env["SIMULATION_SEED"] ?? TEST_SEED;
const RUNS = Number(process.env["LANE_RUNS"] ?? PLAYED.focus);
const code = await loadLanes();

let world: LaneWorld;
beforeAll(async () => {
  world = await LaneWorld.start();
});
afterAll(async () => {
  await world[Symbol.asyncDispose]();
});

describe("lanes, step by step", () => {
  it.each([...FOCUSES])(
    "keep every invariant in the difficult schedule: %s",
    { timeout: 600_000 },
    async (_name, focus) => {
      const found = await searchLanes(code, { seed: SEED, runs: RUNS, focus, world });
      expect(found.violation === undefined ? "" : laneText(found.violation)).toBe("");
    },
  );
});
