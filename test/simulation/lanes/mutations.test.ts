/** Each protection of the lane is needed: without it, a schedule breaks an invariant. */
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { StaleSchedules, TEST_SEED } from "../known.ts";
import { isCaught } from "../mutation-run.ts";
import { loadLanes } from "./load.ts";
import { MutationServers, runLaneMutation } from "./mutation-run.ts";
import { LANE_MUTATIONS } from "./mutations.ts";

const SEED = process.env["SIMULATION_SEED"] ?? TEST_SEED;

const stale = new StaleSchedules();
let servers: MutationServers;
beforeAll(async () => {
  servers = await MutationServers.start();
});
afterAll(async () => {
  await servers[Symbol.asyncDispose]();
  stale.tell();
});

describe("the simulation of the lane", () => {
  it.each(LANE_MUTATIONS.map((mutation) => [mutation.protection, mutation] as const))(
    "breaks an invariant without: %s",
    { timeout: 600_000 },
    async (_protection, mutation) => {
      const result = await runLaneMutation(mutation, { seed: SEED, budget: 200, quick: true }, servers);
      stale.note(mutation.protection, SEED, result.brokenBy);
      expect(isCaught(result)).toBe(true);
    },
  );

  it("refuses a mutation whose text to replace does not occur exactly once", async () => {
    const patch = { file: "workers/src/scripts/lane.lua.ts", find: "call", replace: "call" };
    await expect(loadLanes([patch])).rejects.toThrow('must contain "call" once');
  });
});
