/** A part of the exploration of the scheduler's register by `npm run prove`. */
import { expect, it } from "vitest";
import { exploreWithout } from "../explored.ts";
import { REGISTER } from "./cases.ts";

/** The test runner makes each state ten times as slow. */
const LIMIT = 300;

it.each(REGISTER.cases.map((each) => [each.name, each] as const))(
  "a tick runs once and no confirmed step is lost: %s",
  async (_name, { explore }) => {
    const { states, violation } = await explore(LIMIT);
    expect(violation).toBeUndefined();
    expect(states).toBe(LIMIT);
  },
);

it("finds the lost step if a leader does not adopt the newest version", async () => {
  const { violation } = await exploreWithout(REGISTER, "a leader adopts the newest version");
  expect(violation?.broken).toMatch(/does not know what term 1 confirmed/);
});
