/** A part of what `npm run prove` explores of the read-write lock. */
import { expect, it } from "vitest";
import { exploreReadWrite, READ_WRITE_CASES, READ_WRITE_RULES } from "./cases.ts";

/** The test runner makes each state ten times as slow. */
const LIMIT = 300;

it.each(READ_WRITE_CASES.map((each) => [each.name, each] as const))(
  "a writer holds the lock alone, and tokens are in order: %s",
  async (_name, each) => {
    const { states, violation } = await exploreReadWrite(each, { limit: LIMIT });
    expect(violation).toBeUndefined();
    expect(states).toBe(LIMIT);
  },
);

it("finds two writers if a node grants more permits than there are", async () => {
  const removed = READ_WRITE_RULES.find(({ rule }) => rule === "a node grants no more permits than there are");
  if (removed === undefined) throw new Error("the rule has another name");
  const { violation } = await exploreReadWrite(removed.in, { patches: [removed.patch] });
  expect(violation?.broken).toMatch(/holds the lock together with writer/);
});
