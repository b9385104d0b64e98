import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  acquisitionOutcome,
  emptyTally,
  extensionOutcome,
  median,
  outcome,
  quorumFreeMs,
  quorumLargest,
  quorumOf,
  refusalOf,
  type VoteKind,
  type VoteTally,
} from "../src/rules/quorum.ts";

const kinds: readonly VoteKind[] = ["granted", "held", "stale", "ahead", "quarantined", "failed"];

function tallyOf(votes: readonly VoteKind[]): VoteTally {
  const tally = emptyTally();
  for (const vote of votes) tally[vote] += 1;
  return tally;
}

/** Every mask of yes and no for `nodeCount` nodes. */
function masks(nodeCount: number): readonly (readonly boolean[])[] {
  return Array.from({ length: 2 ** nodeCount }, (_, mask) =>
    Array.from({ length: nodeCount }, (__, bit) => ((mask >> bit) & 1) === 1),
  );
}

describe("quorumOf", () => {
  it.each([
    [1, 1],
    [2, 2],
    [3, 2],
    [4, 3],
    [5, 3],
    [6, 4],
    [7, 4],
  ])("is a majority of %i nodes: %i", (nodeCount, quorum) => {
    expect(quorumOf(nodeCount)).toBe(quorum);
  });

  it("makes any two quorums share a node", () => {
    fc.assert(fc.property(fc.integer({ min: 1, max: 1000 }), (nodeCount) => 2 * quorumOf(nodeCount) > nodeCount));
  });
});

describe.each([1, 2, 3, 4, 5])("extensionOutcome of %i nodes", (nodeCount) => {
  const upTo = (most: number): readonly number[] => Array.from({ length: most + 1 }, (_, count) => count);
  const tallies = upTo(nodeCount).flatMap((yes) =>
    upTo(nodeCount - yes).flatMap((no) => upTo(no).map((taken) => ({ yes, no, taken }))),
  );

  it("is won if a quorum reports success, and not by fewer", () => {
    for (const tally of tallies) {
      expect(extensionOutcome(tally, nodeCount) === "taken").toBe(tally.taken >= quorumOf(nodeCount));
    }
  });

  it("is won immediately with a quorum, and lost only when all have answered", () => {
    for (const tally of tallies.filter(({ taken }) => taken < quorumOf(nodeCount))) {
      const decided = extensionOutcome(tally, nodeCount);
      expect(decided === "won").toBe(tally.yes >= quorumOf(nodeCount));
      expect(decided === "lost").toBe(tally.yes < quorumOf(nodeCount) && tally.yes + tally.no === nodeCount);
    }
  });
});

describe.each([1, 2, 3, 4, 5, 6, 7])("outcome over all vote masks of %i nodes", (nodeCount) => {
  it("is decided by the majority of all nodes when all have answered", () => {
    for (const mask of masks(nodeCount)) {
      const yes = mask.filter(Boolean).length;
      const expected = yes >= quorumOf(nodeCount) ? "won" : "lost";
      expect(outcome({ yes, no: nodeCount - yes }, nodeCount)).toBe(expected);
    }
  });

  it("is decided by the first answers only if the remaining answers could not change the result", () => {
    for (const mask of masks(nodeCount)) {
      for (let answered = 0; answered <= nodeCount; answered += 1) {
        const yes = mask.slice(0, answered).filter(Boolean).length;
        const open = nodeCount - answered;
        const best = outcome({ yes: yes + open, no: answered - yes }, nodeCount);
        const worst = outcome({ yes, no: answered - yes + open }, nodeCount);
        expect(outcome({ yes, no: answered - yes }, nodeCount)).toBe(best === worst ? best : "open");
      }
    }
  });
});

describe("acquisitionOutcome", () => {
  it("counts only grants of nodes that may vote", () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...kinds), { minLength: 1, maxLength: 7 }), (votes) => {
        const granted = votes.filter((vote) => vote === "granted").length;
        const expected = granted >= quorumOf(votes.length) ? "won" : "lost";
        expect(acquisitionOutcome(tallyOf(votes), votes.length)).toBe(expected);
      }),
    );
  });
});

describe("refusalOf", () => {
  it("is unreachable if failed and quarantined nodes leave no quorum", () => {
    expect(refusalOf(tallyOf(["failed", "quarantined", "held"]), 3)).toBe("unreachable");
  });

  it("is held if a quorum answered and one of its nodes refuses", () => {
    expect(refusalOf(tallyOf(["failed", "granted", "held"]), 3)).toBe("held");
  });

  it("is ballot if a greater number could win a quorum", () => {
    expect(refusalOf(tallyOf(["stale", "granted", "held"]), 3)).toBe("ballot");
    expect(refusalOf(tallyOf(["ahead", "ahead", "failed"]), 3)).toBe("ballot");
  });

  it("is held if no ballot could win because the lock is held on too many nodes", () => {
    expect(refusalOf(tallyOf(["stale", "held", "held"]), 3)).toBe("held");
  });
});

describe("quorumFreeMs", () => {
  it("is the time until the quorum-th node is free", () => {
    expect(quorumFreeMs([500, 0, 300])).toBe(300);
    expect(quorumFreeMs([Number.POSITIVE_INFINITY, 10, Number.POSITIVE_INFINITY])).toBe(Number.POSITIVE_INFINITY);
    expect(quorumFreeMs([70])).toBe(70);
  });
});

describe("quorumLargest", () => {
  it("is reached by a quorum and exceeded by fewer nodes", () => {
    fc.assert(
      fc.property(fc.array(fc.nat(1000), { minLength: 1, maxLength: 9 }), (values) => {
        const value = quorumLargest(values, values.length);
        const quorum = quorumOf(values.length);
        expect(values.filter((each) => each >= value).length).toBeGreaterThanOrEqual(quorum);
        expect(values.filter((each) => each > value).length).toBeLessThan(quorum);
      }),
    );
  });

  it("is 0 if fewer than a quorum report a number", () => {
    expect(quorumLargest([900], 3)).toBe(0);
  });
});

describe("median", () => {
  it("does not move because of one wrong value of three", () => {
    expect(median([1, 2, 1_000_000])).toBe(2);
    expect(median([1, 1_000_000])).toBe(1);
    expect(() => median([])).toThrow(RangeError);
  });
});
