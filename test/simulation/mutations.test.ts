/** Each protection of the protocol, the elections and the scheduler is needed: without it, a simulation breaks an invariant. */
import { afterAll, describe, expect, it } from "vitest";
import { loadEngine } from "./engine.ts";
import { StaleSchedules, TEST_SEED } from "./known.ts";
import { isCaught, runMutation } from "./mutation-run.ts";
import { MUTATIONS } from "./mutations.ts";

const SEED = process.env["SIMULATION_SEED"] ?? TEST_SEED;

const stale = new StaleSchedules();
afterAll(() => stale.tell());

describe("the simulation", () => {
  it.each(MUTATIONS.map((mutation) => [mutation.protection, mutation] as const))(
    "breaks an invariant without: %s",
    { timeout: 600_000 },
    async (_protection, mutation) => {
      const result = await runMutation(mutation, { seed: SEED, budget: 600, quick: true });
      stale.note(mutation.protection, SEED, result.brokenBy);
      expect(isCaught(result)).toBe(true);
    },
  );

  it("refuses a mutation whose text to replace does not occur exactly once", async () => {
    const patch = { file: "redlock-core/src/rules/quorum.ts", find: "tally", replace: "count" };
    await expect(loadEngine([patch])).rejects.toThrow('must contain "tally" once');
    await expect(loadEngine([{ ...patch, file: "redlock-core/src/none.ts" }])).rejects.toThrow("no source was loaded");
  });
});
