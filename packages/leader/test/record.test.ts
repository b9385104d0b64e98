import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  claimOf,
  endedCleanly,
  heldNow,
  isHeldBy,
  type NodeRecord,
  parseView,
  termsAfter,
} from "../src/rules/record.ts";

function view(given: Partial<NodeRecord>): NodeRecord {
  return {
    lockValue: "",
    pttlMs: -2,
    term: 0,
    revision: 0,
    token: "",
    record: undefined,
    ended: false,
    claim: undefined,
    terms: [],
    ...given,
  };
}

function leads(term: number, pttlMs = 900): NodeRecord {
  const record = { term, id: `id${term}`, instance: `id${term}#1`, sinceMs: 1 };
  return view({ lockValue: `token${term}`, pttlMs, term, revision: 0, token: `token${term}`, record, terms: [record] });
}

describe("record", () => {
  it("names a leader exactly if a quorum has its token", () => {
    fc.assert(
      fc.property(fc.array(fc.boolean(), { minLength: 3, maxLength: 5 }), (masks) => {
        const quorum = Math.floor(masks.length / 2) + 1;
        const views = masks.map((has) => (has ? leads(5) : view({})));
        expect(heldNow(views, quorum)?.record.term).toBe(masks.filter(Boolean).length >= quorum ? 5 : undefined);
      }),
    );
  });

  it("of an older term does not name the leader of a newer lock", () => {
    const taken = { ...leads(5), lockValue: "token6" };
    expect(heldNow([taken, taken, taken], 2)).toBeUndefined();
    expect(isHeldBy([taken, taken, taken], "token6", 2)).toBe(true);
  });

  it("names a leader by the grants of a quorum before the leader has written it", () => {
    const record = { term: 6, id: "a", instance: "a#1", sinceMs: 1 };
    fc.assert(
      fc.property(fc.array(fc.constantFrom("granted", "leads", "none"), { minLength: 1, maxLength: 5 }), (nodes) => {
        const quorum = Math.floor(nodes.length / 2) + 1;
        const views = nodes.map((node) => {
          if (node === "granted") return { ...leads(5, -2), lockValue: "token6", pttlMs: 900, claim: record };
          return node === "leads" ? leads(5) : view({});
        });
        const count = (which: string): number => nodes.filter((node) => node === which).length;
        const leader = count("granted") >= quorum ? 6 : 5;
        const isLed = Math.max(count("granted"), count("leads")) >= quorum;
        expect(heldNow(views, quorum)?.record.term).toBe(isLed ? leader : undefined);
      }),
    );
  });

  it("uses the holder's note of a grant only while that holder has the lock", () => {
    const claim = claimOf({ id: "a b", instance: "a#1", value: "one\ntwo" });
    const reply = (lockValue: string): unknown => [
      lockValue,
      100,
      ["", "", "", "", ""],
      [],
      `tok 6 1700000000000999 ${claim}`,
    ];
    const record = { term: 6, id: "a b", instance: "a#1", value: "one\ntwo", sinceMs: 1_700_000_000_000 };
    expect(parseView(reply("tok")).claim).toEqual(record);
    expect(parseView(reply("other")).claim).toBeUndefined();
    expect(parseView(reply("")).claim).toBeUndefined();
  });

  it("contains the remaining lease of a quorum", () => {
    expect(heldNow([leads(5, 900), leads(5, 500), leads(5, 100)], 2)?.expiresInMs).toBe(500);
  });

  it("merges the terms that the nodes remember, each once and in order", () => {
    const record = (term: number): NodeRecord["terms"][number] => ({ term, id: "a", instance: "a#1", sinceMs: term });
    fc.assert(
      fc.property(
        fc.array(fc.array(fc.integer({ min: 1, max: 20 })), { minLength: 1, maxLength: 5 }),
        fc.nat({ max: 10 }),
        (known, after) => {
          const terms = termsAfter(
            known.map((each) => view({ terms: each.map(record) })),
            after,
          ).map((each) => each.term);
          expect(terms).toEqual([...new Set(known.flat())].filter((term) => term > after).toSorted((a, b) => a - b));
        },
      ),
    );
  });

  it("distinguishes a clean end from a crash", () => {
    const clean = { ...leads(5), ended: true };
    expect(endedCleanly([view({}), view({})], 6)).toBe(true);
    expect(endedCleanly([clean, view({})], 6)).toBe(true);
    expect(endedCleanly([leads(5), leads(5)], 6)).toBe(false);
    expect(endedCleanly([clean, leads(7)], 8)).toBe(false);
  });

  it("is treated as missing if it is invalid", () => {
    const reply = ["tok", 100, ["3", "0", "tok", "{not json", "0"], ["null", '{"term":"x"}'], "tok 3 nonsense"];
    expect(parseView(reply)).toMatchObject({ record: undefined, claim: undefined, terms: [] });
    expect(() => parseView("PONG")).toThrow(TypeError);
  });
});
