/** A part of what `npm run prove` explores of the lane. */
import { expect, it } from "vitest";
import { exploreWithout } from "../explored.ts";
import { LANE } from "./cases.ts";

/** The states of the shortest runs. `npm run prove` visits all states. */
const LIMIT = 150;

it.each(LANE.cases.map((each) => [each.name, each] as const))(
  "jobs of a key run one at a time, in order, and each job ends: %s",
  async (_name, { explore }) => {
    const { states, violation } = await explore(LIMIT);
    expect(violation).toBeUndefined();
    expect(states).toBeGreaterThanOrEqual(50);
  },
);

it.each([
  ["claim of a free key", /job-2 of key a starts while job-1 has the key/],
  ["place kept in line", /starts before job-2, which was added earlier/],
  ["all keys of a job are handed over", /key b stays with job-2, which has ended/],
])("finds the shortest run that breaks a promise without: %s", async (rule, broken) => {
  const { violation } = await exploreWithout(LANE, rule);
  expect(violation?.broken).toMatch(broken);
});
