import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { formatPin, keyFault, parsePath, parsePin, pinOfValue } from "../src/rules/entity-key.ts";
import { pinLibrary } from "../src/scripts/rules/pin.lua.ts";
import { Lab } from "./support/lab.ts";

const key = fc.string({ unit: "grapheme", minLength: 1, maxLength: 40 }).filter((text) => keyFault(text) === undefined);

describe("the keys of a job, encoded as a pin", () => {
  it("are decoded from Redis unchanged", () => {
    fc.assert(
      fc.property(fc.array(key, { minLength: 1, maxLength: 16 }), (keys) => {
        const pin = pinOfValue(keys);
        expect(parsePin(formatPin(pin))).toEqual(pin);
        expect(pin).toMatchObject({ kind: "keys" });
      }),
    );
    for (const text of ["", "\u001eis empty"]) expect(formatPin(parsePin(text))).toBe(text);
  });

  it("do not depend on the order or number of equal keys", () => {
    fc.assert(
      fc.property(fc.array(key, { minLength: 1, maxLength: 8 }), (keys) => {
        expect(pinOfValue([...keys, ...keys].reverse())).toEqual(pinOfValue(keys));
      }),
    );
  });

  it.each([undefined, null])("are empty for %s, and only for such values", (value) => {
    expect(pinOfValue(value)).toEqual({ kind: "none" });
  });

  it.each([
    [""],
    [[]],
    [{}],
    [true],
    [1.5],
    [Number.NaN],
    [2 ** 53],
    [["a", ""]],
    [["a", null]],
    ["\n"],
    ["x".repeat(513)],
  ])("are refused for %j", (value) => {
    expect(pinOfValue(value).kind).toBe("fault");
  });

  it("are limited in bytes, not in characters", () => {
    expect(keyFault("é".repeat(256))).toBeUndefined();
    expect(keyFault("é".repeat(257))).toBe("is longer than 512 bytes");
  });
});

describe("the path of a key", () => {
  it.each([
    ["a", ["a"]],
    ["account.id", ["account", "id"]],
    ["", undefined],
    ["a..b", undefined],
    [".a", undefined],
  ])("%j is parsed as %j", (path, fields) => {
    expect(parsePath(path)).toEqual(fields);
  });

  it("finds the same value in Lua as a function finds in JavaScript", async () => {
    await using lab = await Lab.start();
    const probe = `${pinLibrary(["a b", 'q"\\'])}
return pinOfData(ARGV[1])`;
    const text = fc.oneof(
      key,
      fc.string({ unit: "binary", maxLength: 4 }),
      fc.string({ minLength: 500, maxLength: 520 }),
    );
    const number = fc.oneof(fc.integer(), fc.double(), fc.constantFrom(2 ** 53 - 1, 2 ** 53, -(2 ** 53)));
    const element = fc.oneof(text, number, fc.boolean(), fc.constant(null), fc.constant({}), fc.constant([]));
    const anything = fc.oneof(
      element,
      fc.record({ x: element }),
      fc.array(element, { maxLength: 3 }),
      fc.array(fc.oneof(key, fc.integer()), { maxLength: 18 }),
    );
    await fc.assert(
      fc.asyncProperty(anything, async (value) => {
        const json = JSON.stringify({ "a b": { 'q"\\': value } });
        const found = JSON.parse(json)["a b"]['q"\\'] as unknown;
        expect(parsePin(String(await lab.redis.eval(probe, 0, json)))).toEqual(pinOfValue(found));
      }),
      { numRuns: 300 },
    );
    for (const [json, pin] of [
      ["{}", { kind: "none" }],
      ["[]", { kind: "none" }],
      ['"text"', { kind: "none" }],
      ['{"a b":3}', { kind: "none" }],
      ['{"a b":{"q\\"\\\\":-0}}', { kind: "keys", keys: ["0"] }],
      [
        '{"a b":{"q\\"\\\\":{"x":1}}}',
        { kind: "fault", fault: "must be a string, an integer, or a non-empty array of them" },
      ],
    ] as const) {
      expect(parsePin(String(await lab.redis.eval(probe, 0, json)))).toEqual(pin);
    }
  });

  it("leads through arrays by index, as in JavaScript", async () => {
    await using lab = await Lab.start();
    const probe = `${pinLibrary(["items", "1", "id"])}\nreturn pinOfData(ARGV[1])`;
    for (const [items, pin] of [
      [[{ id: "a" }, { id: "b" }], { kind: "keys", keys: ["b"] }],
      [{ "1": { id: "c" } }, { kind: "keys", keys: ["c"] }],
      [[{ id: "a" }], { kind: "none" }],
      [[0, { id: null }], { kind: "none" }],
    ] as const) {
      expect(parsePin(String(await lab.redis.eval(probe, 0, JSON.stringify({ items }))))).toEqual(pin);
    }
    const atEnd = `${pinLibrary(["0"])}\nreturn pinOfData(ARGV[1])`;
    const kinds = await Promise.all(
      ['["a"]', '{"0":"a"}', '{"0":false}', "[false]", "[]", "{}"].map(
        async (json) => parsePin(String(await lab.redis.eval(atEnd, 0, json))).kind,
      ),
    );
    expect(kinds).toEqual(["keys", "keys", "fault", "fault", "none", "none"]);
  });
});
