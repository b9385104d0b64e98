import { describe, expect, it } from "vitest";
import { Sightings } from "../src/sightings.ts";

const random = { token: (): string => "t", fraction: (): number => 0.5 };
const wallMs = 1_795_000_000_000;

describe("Sightings", () => {
  it("proposes above what was seen of any of the resources", () => {
    const sightings = new Sightings(random);
    const future = wallMs * 1_000 + 5_000_000;
    sightings.see(["b"], future);
    expect(sightings.ballot(["a", "b"], wallMs)).toBe(future + 1);
    expect(sightings.ballot(["a"], wallMs)).toBe(wallMs * 1_000 + 500);
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
    sightings.seeNodeTimes([right, right, right * 2], wallMs);
    expect(sightings.ballot(["a"], wallMs)).toBe(right + 500);
    expect(sightings.order(wallMs)).toBe(right);
  });

  it("forgets the oldest resources rather than grow for ever", () => {
    const sightings = new Sightings(random);
    const high = wallMs * 2_000;
    for (let index = 0; index < 20_000; index += 1) sightings.see([`r${index}`], high);
    expect(sightings.ballot(["r19999"], wallMs)).toBe(high + 1);
    expect(sightings.ballot(["r0"], wallMs)).toBe(wallMs * 1_000 + 500);
  });
});
