import { describe, expect, it } from "vitest";
import { PLAYED, TEST_SEED } from "../known.ts";
import { loadLanes } from "./load.ts";
import { laneText } from "./report.ts";
import { searchLanes } from "./search.ts";

const SEED = process.env["SIMULATION_SEED"] ?? TEST_SEED;
const RUNS = Number(process.env["LANE_RUNS"] ?? PLAYED.lanes);

describe("lanes, step by step", () => {
  it("keep every invariant even if the queue is sifted before each end fetches, as with many ends", async () => {
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
});
