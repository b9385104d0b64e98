import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { type ClaimAnswer, claimOutcome, highestStored } from "../../src/scheduler/settle.ts";

/** Which nodes stored a tick, which of them are asked, and what each stored before. */
const world = fc
  .constantFrom(1, 3, 5)
  .chain((nodeCount) =>
    fc.record({
      nodeCount: fc.constant(nodeCount),
      stored: fc.array(fc.boolean(), { minLength: nodeCount, maxLength: nodeCount }),
      asked: fc.array(fc.boolean(), { minLength: nodeCount, maxLength: nodeCount }),
      before: fc.array(fc.integer({ min: 0, max: 90 }), { minLength: nodeCount, maxLength: nodeCount }),
    }),
  )
  .map((given) => ({ ...given, quorum: Math.floor(given.nodeCount / 2) + 1 }))
  .filter(({ asked, quorum }) => asked.filter(Boolean).length >= quorum);

describe("settle", () => {
  it("always finds a tick that was stored on a quorum, whichever quorum is asked", () => {
    fc.assert(
      fc.property(world, ({ nodeCount, quorum, stored, asked, before }) => {
        fc.pre(stored.filter(Boolean).length >= quorum);
        const values = before
          .map((value, node) => (stored[node] === true ? 100 : value))
          .filter((_, node) => asked[node] === true);
        expect(highestStored(values, nodeCount - values.length, quorum)).toBe(100);
      }),
      { numRuns: 1_000 },
    );
  });

  it("does not take a tick as dealt with that a minority stored, when every node answers", () => {
    fc.assert(
      fc.property(world, ({ quorum, stored, before }) => {
        fc.pre(stored.filter(Boolean).length < quorum);
        const values = before.map((value, node) => (stored[node] === true ? 100 : value));
        expect(highestStored(values, 0, quorum)).toBeLessThan(100);
      }),
      { numRuns: 1_000 },
    );
  });

  it("claims only with a quorum of nodes that stored the tick", () => {
    const answer = fc.constantFrom<ClaimAnswer>("ok", "paused", { taken: 7 });
    fc.assert(
      fc.property(fc.constantFrom(1, 3, 5), fc.array(answer, { maxLength: 5 }), (nodeCount, all) => {
        const answers = all.slice(0, nodeCount);
        const quorum = Math.floor(nodeCount / 2) + 1;
        const outcome = claimOutcome(answers, { nodeCount, quorum });
        const stored = answers.filter((each) => typeof each === "string").length;
        if (outcome.kind === "claimed") expect(stored).toBeGreaterThanOrEqual(quorum);
        if (outcome.kind === "claimed") expect(answers).not.toContain("paused");
        if (outcome.kind === "taken") expect(nodeCount - (answers.length - stored)).toBeLessThan(quorum);
        if (answers.length === nodeCount && stored >= quorum) expect(outcome.kind).not.toBe("open");
      }),
    );
  });
});
