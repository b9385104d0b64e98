import { describe, expect, it } from "vitest";
import { FencingClock } from "../src/rounds/fencing-clock.ts";

const random = { token: (): string => "t", fraction: (): number => 0.5 };
const wallMs = 1_795_000_000_000;

/** Within a millisecond of the wall clock: nothing that was seen has moved it. */
const near = (ballot: number): boolean => Math.abs(ballot - wallMs * 1_000) < 1_000;

describe("FencingClock", () => {
  it("proposes a number above every number seen for any of the resources", () => {
    const clock = new FencingClock(random);
    const future = wallMs * 1_000 + 5_000_000;
    clock.see(["b"], future);
    expect(clock.ballot(["a", "b"], wallMs)).toBe(future + 1);
    expect(clock.ballot(["a"], wallMs)).toBe(future + 2);
    expect(near(clock.ballot(["c"], wallMs))).toBe(true);
  });

  it("proposes a number above every previous ballot, even if the clock was set back", () => {
    const clock = new FencingClock(random);
    const ballots = [wallMs, wallMs, wallMs - 3_600_000, wallMs + 1].map((ms) => clock.ballot(["a"], ms));
    expect(ballots.toSorted((a, b) => a - b)).toEqual(ballots);
    expect(new Set(ballots).size).toBe(ballots.length);
  });

  it("returns from a clock that was ahead once the nodes have reported the time", () => {
    const clock = new FencingClock(random);
    clock.ballot(["a"], wallMs + 3_600_000);
    clock.seeNodeTimes([wallMs * 1_000], wallMs, wallMs);
    expect(near(clock.ballot(["a"], wallMs))).toBe(true);
  });

  it("never goes back for a resource", () => {
    const clock = new FencingClock(random);
    clock.see(["a"], 2_000_000_000_000_000);
    clock.see(["a"], 5);
    expect(clock.ballot(["a"], wallMs)).toBe(2_000_000_000_000_001);
  });

  it("corrects its clock by the median of the nodes' clocks", () => {
    const clock = new FencingClock(random);
    const right = (wallMs + 600_000) * 1_000;
    clock.seeNodeTimes([right, right, right * 2], wallMs, wallMs);
    expect(clock.ballot(["a"], wallMs)).toBe(right + 500);
    expect(clock.place(wallMs)).toBe(right);
  });

  it("does not treat an answer that was read late as a wrong clock", () => {
    const clock = new FencingClock(random);
    clock.seeNodeTimes([wallMs * 1_000], wallMs - 1, wallMs + 900);
    expect(clock.place(wallMs)).toBe(wallMs * 1_000);
    clock.seeNodeTimes([(wallMs + 5_000) * 1_000], wallMs - 1, wallMs);
    expect(clock.place(wallMs)).toBe((wallMs + 5_000) * 1_000);
  });

  it("forgets the oldest resources, so that its size is bounded", () => {
    const clock = new FencingClock(random);
    const high = wallMs * 2_000;
    for (let index = 0; index < 20_000; index += 1) clock.see([`r${index}`], high);
    expect(clock.ballot(["r19999"], wallMs)).toBe(high + 1);
    expect(near(clock.ballot(["r0"], wallMs))).toBe(true);
  });
});
