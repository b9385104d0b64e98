/** A part of what `npm run prove` explores of the read-write lock. */
import { expect, it } from "vitest";
import { exploreWithout } from "../explored.ts";
import { READ_WRITE_LOCK } from "./cases.ts";

/** The test runner makes each state ten times as slow. */
const LIMIT = 300;

it.each(READ_WRITE_LOCK.cases.map((each) => [each.name, each] as const))(
  "a writer holds the lock alone, and tokens are in order: %s",
  async (_name, { explore }) => {
    const { states, violation } = await explore(LIMIT);
    expect(violation).toBeUndefined();
    expect(states).toBe(LIMIT);
  },
);

it("finds two writers if a node grants more permits than there are", async () => {
  const { violation } = await exploreWithout(READ_WRITE_LOCK, "a node grants no more permits than there are");
  expect(violation?.broken).toMatch(/holds the lock together with writer/);
});
