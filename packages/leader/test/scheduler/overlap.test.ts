import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { decideOverlap, type Overlap } from "../../src/scheduler/overlap.ts";

describe("overlap", () => {
  it("runs at once when nothing runs", () => {
    fc.assert(
      fc.property(
        fc.constantFrom<Overlap>("skip", "bufferOne", "cancelOther", "allowAll"),
        fc.boolean(),
        (policy, isBacklog) => {
          expect(decideOverlap(policy, { running: 0, queued: 0 }, isBacklog)).toBe("run");
        },
      ),
    );
  });

  it.each([
    ["skip", 0, "skip"],
    ["bufferOne", 0, "queue"],
    ["bufferOne", 1, "skip"],
    ["cancelOther", 0, "replace"],
    ["allowAll", 0, "run"],
  ] as const)("%s with one running and %i waiting: %s", (policy, queued, decision) => {
    expect(decideOverlap(policy, { running: 1, queued }, false)).toBe(decision);
  });

  it("skips no tick that is caught up", () => {
    expect(decideOverlap("skip", { running: 1, queued: 3 }, true)).toBe("queue");
    expect(decideOverlap("bufferOne", { running: 1, queued: 3 }, true)).toBe("queue");
  });
});
