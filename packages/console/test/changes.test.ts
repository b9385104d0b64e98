import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { changesOf, withChanges } from "../src/page/rules/changes.ts";

/** Returns what a browser has after it has received the changes as JSON. */
function received(before: unknown, after: unknown): unknown {
  const sent = JSON.parse(JSON.stringify({ list: changesOf(before, after) })) as { list: [] };
  return withChanges(before, sent.list);
}

describe("the changes of a state", () => {
  it("make the next state of any state", () => {
    // JSON knows no -0.
    const state = fc.jsonValue({ maxDepth: 4 }).map((value) => JSON.parse(JSON.stringify(value)) as unknown);
    fc.assert(
      fc.property(state, state, (before, after) => {
        expect(received(before, after)).toEqual(after);
      }),
    );
  });

  it("make the next state of a similar state", () => {
    const rows = fc.array(fc.record({ name: fc.nat(3), at: fc.nat(3) }), { maxLength: 6 });
    const state = fc.record({ rows, points: fc.array(fc.nat(2), { maxLength: 6 }), text: fc.option(fc.string()) });
    fc.assert(
      fc.property(state, state, (before, after) => {
        expect(received(before, after)).toEqual(after);
      }),
    );
  });

  it("are none if nothing has changed", () => {
    const state = { a: [1, { b: undefined }], c: "d" };
    expect(changesOf(state, { a: [1, {}], c: "d" })).toEqual([]);
  });

  it("contain only the fields that differ, and keep all other objects", () => {
    const before = {
      now: 1,
      rows: [
        { name: "a", ms: 1 },
        { name: "b", ms: 2 },
      ],
    };
    const after = {
      now: 2,
      rows: [
        { name: "a", ms: 1 },
        { name: "b", ms: 3 },
      ],
    };
    const changes = changesOf(before, after);
    expect(changes).toEqual([
      { path: ["now"], value: 2 },
      { path: ["rows", 1, "ms"], value: 3 },
    ]);
    expect(withChanges(before, changes).rows[0]).toBe(before.rows[0]);
  });

  it("of a list that has grown at its beginning contain the new entries alone", () => {
    const points = Array.from({ length: 61 }, (_, at) => at * at);
    const after = [-1, ...points.slice(0, 60)];
    expect(changesOf({ points }, { points: after })).toEqual([{ path: ["points"], first: [-1], length: 61 }]);
  });

  it("do not reach the prototype", () => {
    const before = JSON.parse('{"a": 1}') as object;
    const after = JSON.parse('{"__proto__": {"polluted": true}, "constructor": 2}') as object;
    expect(received(before, after)).toEqual(after);
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
  });
});
