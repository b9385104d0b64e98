/** The texts of schedules as data: their content, refused texts, and expressions that need no parser. */
import { Cron } from "croner";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { isPlainCron } from "../../src/scheduler/rules/calendar.ts";
import {
  dataOf,
  definitionOf,
  definitionText,
  isSameTimes,
  jsonOf,
  orderLine,
  orderOf,
  setLine,
  setOf,
} from "../../src/scheduler/rules/definition.ts";
import { canonicalJson } from "../../src/scheduler/rules/json.ts";
import { isLater, linesIn } from "../../src/scheduler/rules/lines.ts";

const PARTS = { name: "n", kind: "k", times: "0 3 * * *", timezone: "UTC", data: undefined, options: "{}" };

describe("a schedule as data", () => {
  it("keeps its values in one line, for any data", () => {
    fc.assert(
      fc.property(fc.jsonValue({ depthSize: "small" }), fc.string({ minLength: 1, maxLength: 20 }), (data, kind) => {
        const json = jsonOf({ ...PARTS, kind, data: canonicalJson(data, "data") });
        const text = definitionText({ sinceMs: 5, json });
        const order = orderLine({ version: 7, text }, "x");
        const set = setLine({ revision: 3, version: 8, texts: [text, text] }, "x");
        const fields = [...linesIn(`d:n::${order}::w:set::${set}::other::1 0 0`)];
        expect(fields.map(([field]) => field)).toEqual(["d:n", "w:set", "other"]);
        expect(orderOf(fields[0]?.[1] ?? "")).toEqual({ version: 7, text });
        const found = setOf(fields[1]?.[1] ?? "");
        expect({ ...found, texts: [...(found?.texts ?? [])] }).toEqual({
          revision: 3,
          version: 8,
          texts: [text, text],
        });
        const definition = definitionOf(text);
        expect(definition).toEqual({ name: "n", kind, sinceMs: 5, json });
        expect(definition && dataOf(definition)).toEqual(JSON.parse(JSON.stringify(data)));
      }),
      { numRuns: 300 },
    );
  });

  it("keeps a removal and an empty set", () => {
    expect(orderOf(orderLine({ version: 7, text: undefined }, "x"))).toEqual({ version: 7, text: undefined });
    const empty = setOf(setLine({ revision: 0, version: 1, texts: [] }, "x"));
    expect([...(empty?.texts ?? ["none"])]).toEqual([]);
  });

  it("gives each tick data of its own", () => {
    const definition = definitionOf(definitionText({ sinceMs: 0, json: jsonOf({ ...PARTS, data: '{"a":1}' }) }));
    if (definition === undefined) throw new Error("no definition");
    expect(dataOf(definition)).not.toBe(dataOf(definition));
  });

  it.each([
    "",
    "x",
    "5",
    '5 ["n"]',
    '5 ["n","k",0,"",[],{}]',
    '-5 ["n","k",1,"",[],{}]',
    '5 ["a:b","k",1,"",[],{}]',
    "5 {",
  ])("is not accepted if its text is damaged: %s", (text) => {
    expect(definitionOf(text)).toBeUndefined();
  });

  it.each([
    "",
    "x",
    "1 2 x",
    "99999999999999999999 0000000000000001 x",
    "1 0000000000000001",
    "1 0000000000000001 x y",
  ])("is not accepted in a damaged set: %s", (line) => {
    expect(setOf(line)).toBeUndefined();
  });

  it("has the same ticks only if cron, zone, offset, start and end are the same", () => {
    const json = jsonOf(PARTS);
    expect(isSameTimes(json, jsonOf({ ...PARTS, kind: "other", data: "5", options: '{"catchup":"all"}' }))).toBe(true);
    for (const other of [
      { times: "0 4 * * *" },
      { timezone: "Europe/Berlin" },
      { options: '{"startAt":5}' },
      { options: '{"endAt":5}' },
      { options: '{"offset":5}' },
    ])
      expect(isSameTimes(json, jsonOf({ ...PARTS, ...other }))).toBe(false);
  });
});

describe("sets", () => {
  const of = (revision: number, version: number): string => setLine({ revision, version, texts: [] }, "x");
  it("replace each other by revision, then by version, however long the numbers are", () => {
    expect(isLater(of(2, 1), of(1, 9_000_000_000_000))).toBe(true);
    expect(isLater(of(10, 1), of(9, 1))).toBe(true);
    expect(isLater(of(1, 10_000_000_000_000), of(1, 9_999_999_999_999))).toBe(true);
    expect(isLater(of(1, 1), of(1, 1))).toBe(false);
  });
});

describe("canonical JSON", () => {
  it("has sorted names, and leaves out undefined values", () => {
    expect(canonicalJson({ b: 1, a: [{ d: null, c: undefined }] }, "data")).toBe('{"a":[{"d":null}],"b":1}');
  });

  const cycle: Record<string, unknown> = {};
  cycle["again"] = cycle;
  it.each([
    ["a date", { at: new Date(0) }, "data.at must be a JSON value, got an instance of Date"],
    ["a function", [() => undefined], "data[0] must be a JSON value, got a function"],
    ["a bigint", 5n, "data must be a JSON value, got a bigint"],
    ["undefined in an array", [undefined], "data[0] must be a JSON value, got undefined"],
    ["infinity", { n: Number.POSITIVE_INFINITY }, "data.n must be a finite number, got Infinity"],
    ["a cycle", cycle, "must be at most 32 levels deep"],
    ["a map", new Map(), "data must be a JSON value, got an instance of Map"],
  ])("refuses %s", (_, value, message) => {
    expect(() => canonicalJson(value, "data")).toThrow(message);
  });
});

describe("a plain expression", () => {
  const field = (least: number, most: number): fc.Arbitrary<string> => {
    const number = fc.oneof(
      fc.integer({ min: least - 1, max: most + 1 }).map(String),
      fc.constantFrom("00", "7", "31"),
    );
    const item = fc.oneof(
      number,
      fc.constant("*"),
      number.map((step) => `*/${step}`),
      fc.tuple(number, number).map(([a, b]) => `${a}-${b}`),
      fc.tuple(number, number, number).map(([a, b, c]) => `${a}-${b}/${c}`),
      fc.tuple(fc.constantFrom("?", "L", "MON", "5"), number).map(([a, b]) => `${a}/${b}`),
    );
    return fc.array(item, { minLength: 1, maxLength: 2 }).map((items) => items.join(","));
  };
  it("is one that croner accepts and that fires", () => {
    let plain = 0;
    fc.assert(
      fc.property(field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 7), (...fields) => {
        const expression = fields.join(" ");
        if (!isPlainCron(expression)) return;
        plain += 1;
        const cron = new Cron(expression, { paused: true, timezone: "UTC", fixedTimeRule: "no-wildcard" });
        expect(cron.nextRun(new Date(0)), expression).not.toBeNull();
      }),
      { numRuns: 10_000 },
    );
    expect(plain).toBeGreaterThan(50);
  });

  it.each(["0 3 * * *", "*/5 * * * *", "0,30 9-17 * * 1-5", "15 4 1 */3 *", "0 0 28 2 *"])("is %s", (expression) => {
    expect(isPlainCron(expression)).toBe(true);
  });

  it.each([
    "0 0 30 2 *",
    "0 0 31 * *",
    "@daily",
    "0 0 3 * * *",
    "60 * * * *",
    "*/0 * * * *",
    "5-3 * * * *",
    "0 3 * * MON",
  ])("is not %s", (expression) => {
    expect(isPlainCron(expression)).toBe(false);
  });
});
