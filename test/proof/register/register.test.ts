/** A part of the exploration of the scheduler's register by `npm run prove`. */
import { expect, it } from "vitest";
import { CASES, exploreRegister, REMOVED_RULES } from "./cases.ts";

/** The test runner makes each state ten times as slow. */
const LIMIT = 300;

it.each(CASES.map((each) => [each.name, each] as const))(
  "a tick runs once and no confirmed step is lost: %s",
  async (_name, each) => {
    const { states, violation } = await exploreRegister(each, { limit: LIMIT });
    expect(violation).toBeUndefined();
    expect(states).toBe(LIMIT);
  },
);

it("finds the lost step if a leader does not adopt the newest version", async () => {
  const removed = REMOVED_RULES.find(({ rule }) => rule === "a leader adopts the newest version");
  if (removed === undefined) throw new Error("the rule has another name");
  const { violation } = await exploreRegister(removed.in, { patches: [removed.patch] });
  expect(violation?.broken).toMatch(/does not know what term 1 confirmed/);
});
