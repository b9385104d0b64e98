import type { Vote } from "@x/redlock-core";
import { describe, expect, it } from "vitest";
import { decisiveFailures, quarantineLeftMs } from "../src/election/node-watch.ts";

const FIVE = { nodeCount: 5, quorum: 3 };
const votes = (...kinds: readonly (number | "failed" | "held" | "granted")[]): readonly Vote[] =>
  kinds.map((kind, index) => ({
    node: `n${index}`,
    tookMs: 1,
    ...(typeof kind === "number" ? { vote: "quarantined" as const, quarantineLeftMs: kind } : { vote: kind }),
  }));

describe("the votes of a refused attempt", () => {
  it.each([
    [votes(100, 300, 200), 100],
    [votes(100, 300, 200, "granted"), 100],
    [votes(100, 300, 200, "granted", "held"), 100],
    [votes(100, 300, 200, 500, "failed"), 300],
    [votes(100, 300, "failed", "failed"), 300],
    [votes(100, 300, "failed", "failed", "failed"), undefined],
    [votes(100, "held", "held", "held", "granted"), undefined],
    [votes("failed", "failed", "failed"), undefined],
    [votes(), undefined],
  ])("%j show when a quorum may vote again", (given, expected) => {
    expect(quarantineLeftMs(given, FIVE)).toBe(expected);
  });

  it("name the nodes that failed, if no quorum is left without them", () => {
    expect(decisiveFailures(votes("failed", "held", "failed", "failed"), FIVE).map(({ node }) => node)).toEqual([
      "n0",
      "n2",
      "n3",
    ]);
    expect(decisiveFailures(votes("failed", "held", "failed", "held", "held"), FIVE)).toEqual([]);
  });
});
