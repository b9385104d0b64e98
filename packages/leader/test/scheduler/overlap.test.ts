import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { decideOverlap, type Overlap } from "../../src/scheduler/rules/overlap.ts";

describe("the overlap rule", () => {
  it("runs a tick immediately if no tick is running", () => {
    fc.assert(
      fc.property(
        fc.constantFrom<Overlap>("skip", "bufferOne", "cancelOther", "allowAll"),
        fc.boolean(),
        (policy, isPart) => {
          expect(decideOverlap(policy, { running: 0, queued: 0 }, { isPart, mostQueued: 0 })).toBe("run");
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
  ] as const)("%s with one tick running and %i waiting: %s", (policy, queued, decision) => {
    expect(decideOverlap(policy, { running: 1, queued }, { isPart: false, mostQueued: 100 })).toBe(decision);
  });

  it("skips no tick of a backlog while there is room", () => {
    for (const policy of ["skip", "bufferOne", "cancelOther"] as const) {
      expect(decideOverlap(policy, { running: 1, queued: 3 }, { isPart: true, mostQueued: 4 })).toBe("queue");
      expect(decideOverlap(policy, { running: 1, queued: 4 }, { isPart: true, mostQueued: 4 })).toBe("skip");
    }
  });
});
