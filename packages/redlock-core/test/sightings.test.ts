import { describe, expect, it } from "vitest";
import { Sightings } from "../src/sightings.ts";

const random = { token: (): string => "t", fraction: (): number => 0.5 };
const wallMs = 1_795_000_000_000;

/** Within a millisecond of the wall clock: nothing that was seen has moved it. */
const near = (ballot: number): boolean => Math.abs(ballot - wallMs * 1_000) < 1_000;

describe("Sightings", () => {
  it("proposes above what was seen of any of the resources", () => {
    const sightings = new Sightings(random);
    const future = wallMs * 1_000 + 5_000_000;
    sightings.see(["b"], future);
    expect(sightings.ballot(["a", "b"], wallMs)).toBe(future + 1);
    expect(sightings.ballot(["a"], wallMs)).toBe(future + 2);
    expect(near(sightings.ballot(["c"], wallMs))).toBe(true);
  });

  it("proposes above every ballot before, also when the clock was set back", () => {
    const sightings = new Sightings(random);
    const ballots = [wallMs, wallMs, wallMs - 3_600_000, wallMs + 1].map((ms) => sightings.ballot(["a"], ms));
    expect(ballots.toSorted((a, b) => a - b)).toEqual(ballots);
    expect(new Set(ballots).size).toBe(ballots.length);
  });

  it("comes back from a clock that was ahead once the nodes have told the time", () => {
    const sightings = new Sightings(random);
    sightings.ballot(["a"], wallMs + 3_600_000);
    sightings.seeNodeTimes([wallMs * 1_000], wallMs, wallMs);
    expect(near(sightings.ballot(["a"], wallMs))).toBe(true);
  });

  it("never goes back for a resource", () => {
    const sightings = new Sightings(random);
    sightings.see(["a"], 2_000_000_000_000_000);
    sightings.see(["a"], 5);
    expect(sightings.ballot(["a"], wallMs)).toBe(2_000_000_000_000_001);
  });

  it("corrects its clock by the median of the nodes' clocks", () => {
    const sightings = new Sightings(random);
    const right = (wallMs + 600_000) * 1_000;
    sightings.seeNodeTimes([right, right, right * 2], wallMs, wallMs);
    expect(sightings.ballot(["a"], wallMs)).toBe(right + 500);
    expect(sightings.order(wallMs)).toBe(right);
  });

  it("does not take an answer that was read late for a wrong clock", () => {
    const sightings = new Sightings(random);
    sightings.seeNodeTimes([wallMs * 1_000], wallMs - 1, wallMs + 900);
    expect(sightings.order(wallMs)).toBe(wallMs * 1_000);
    sightings.seeNodeTimes([(wallMs + 5_000) * 1_000], wallMs - 1, wallMs);
    expect(sightings.order(wallMs)).toBe((wallMs + 5_000) * 1_000);
  });

  it("forgets the oldest resources rather than grow for ever", () => {
    const sightings = new Sightings(random);
    const high = wallMs * 2_000;
    for (let index = 0; index < 20_000; index += 1) sightings.see([`r${index}`], high);
    expect(sightings.ballot(["r19999"], wallMs)).toBe(high + 1);
    expect(near(sightings.ballot(["r0"], wallMs))).toBe(true);
  });
});
