import { describe, expect, it } from "vitest";
import {
  abortSignal,
  boolean,
  callback,
  choice,
  integer,
  kindOf,
  number,
  objectWith,
  quote,
  Schema,
  show,
  text,
} from "../src/kit.ts";

const thrower = (): never => {
  throw new Error("hostile");
};
const revoked = Proxy.revocable({}, {});
revoked.revoke();
/** Behind functions, because vitest prints the arguments of each test. */
const hostile: readonly (readonly [string, () => unknown])[] = [
  ["a symbol", () => Symbol("s")],
  ["toString that throws", () => ({ toString: thrower, [Symbol.toPrimitive]: thrower })],
  ["getters that throw", () => Object.defineProperty({}, "constructor", { get: thrower })],
  [
    "a proxy that throws",
    () => new Proxy({}, { get: thrower, getPrototypeOf: thrower, ownKeys: thrower, has: thrower }),
  ],
  ["a revoked proxy", () => revoked.proxy],
  ["no prototype", () => Object.create(null)],
  ["a huge string", () => "x".repeat(10_000_000)],
  ["a lone surrogate", () => "\ud800"],
  ["a bigint", () => 10n ** 1_000n],
];

describe("the description of a value in an error message", () => {
  it.each(hostile)("is short and never throws: %s", (_, make) => {
    const value = make();
    for (const said of [show(value), kindOf(value)]) {
      expect(said.length).toBeLessThan(60);
      expect(said).toMatch(/^[ -~]*$/);
    }
  });

  it.each([
    "redis://:hunter2@prod",
    "redis://:hunter2",
    "prod:6379:hunter2",
    "user:hunter2",
    "hunter2@prod",
    "password=hunter2",
    "//hunter2@prod",
    "redis%3A%2F%2Fhunter2",
  ])("contains no secret of %j", (value) => {
    expect(show(value)).toBe(`a string of ${value.length} characters`);
    expect(show([value])).toBe("an array");
    expect(show({ password: value })).toBe("an object");
  });

  it("shows what is wrong with a mistaken value", () => {
    const values = [undefined, null, 5, -0, Number.NaN, "5s", "a..b", "@daly", "", true, [], {}, new Map(), () => 0];
    expect(values.map(show)).toEqual([
      ...["undefined", "null", "5", "-0", "NaN", '"5s"', '"a..b"', '"@daly"', '""', "true"],
      ...["an array", "an object", "an instance of Map", "a function"],
    ]);
  });

  it("shortens a long name", () => {
    expect(quote("orders:7")).toBe('"orders:7"');
    expect(quote("x".repeat(1_000_000)).length).toBeLessThan(110);
  });
});

describe("the check of an option", () => {
  it.each([
    ["integer", integer({ min: 1, max: 9 }), [1, 9], ["1", null, Symbol("s")], [0, 10, 1.5, Number.NaN, 2 ** 53]],
    ["or Infinity", integer({ min: 0, orInfinity: true }), [0, Number.POSITIVE_INFINITY], [null], [-1, -Infinity]],
    ["number", number({ min: 0, max: 1 }), [0, 0.5], ["0", {}], [1.1, Number.NaN]],
    ["text", text({ min: 1, max: 3 }), ["a"], [1, null], ["", "abcd"]],
    ["choice", choice(["a", "b"]), ["a"], [1, null, ["a"]], ["c"]],
    ["boolean", boolean, [true], [1, "true", null], []],
    ["function", callback(), [() => 0], [{}, null], []],
    ["object", objectWith<{ a(): void }>(["a"]), [{ a: () => 0 }], [null, 5, {}, { a: 1 }], []],
    ["signal", abortSignal, [AbortSignal.abort()], [null, {}, Object.create(AbortSignal.prototype)], []],
  ] as const)("distinguishes a wrong type from a wrong value of %s", (_, check, right, wrong, outside) => {
    for (const value of right) expect(check.of("x", value)).toBe(value);
    for (const value of [...wrong, ...hostile.map(([, make]) => make()).filter((each) => typeof each !== "string")]) {
      const refused = (): unknown => check.of("x", value);
      expect(refused).toThrow(TypeError);
      expect(refused).toThrow(`x must be ${check.rule}, got ${kindOf(value) === "null" ? "null" : ""}`);
    }
    for (const value of outside) expect(() => check.of("x", value)).toThrow(RangeError);
  });
});

describe("a schema", () => {
  const schema = new Schema({
    ttl: integer({ min: 1 }).default(30),
    name: text({ min: 1 }),
    inner: new Schema({ max: integer({ min: 0 }).optional() }).inside(),
  });

  it("resolves to a complete, frozen object with its defaults", () => {
    const options = schema.resolve({ name: "a", ttl: undefined });
    expect(options).toEqual({ ttl: 30, name: "a", inner: { max: undefined } });
    expect(Object.isFrozen(options)).toBe(true);
    expect(Object.isFrozen(options.inner)).toBe(true);
  });

  const refused: readonly (readonly [unknown, string])[] = [
    [{}, "name must be a non-empty string, got undefined"],
    [{ name: "a", ttl: null }, "ttl must be an integer >= 1 (ms), got null"],
    [{ name: "a", inner: null }, "inner must be an object, got null"],
    [{ name: "a", inner: { max: "1" } }, 'inner.max must be an integer >= 0 (ms), got "1"'],
    [{ name: "a", inner: { mx: 1 } }, 'unknown option "inner.mx": did you mean "inner.max"?'],
    [
      { name: "a", inner: { "redis://:hunter2@prod": 1 } },
      "unknown option a string of 27 characters: known are inner.max",
    ],
    [{ name: "a", tll: 1 }, 'unknown option "tll": did you mean "ttl"?'],
    [
      { name: "a", ["x".repeat(1_000_000)]: 1 },
      "unknown option a string of 1000000 characters: known are ttl, name, inner",
    ],
    [{ name: "a", constructor: 1 }, 'unknown option "constructor": known are ttl, name, inner'],
    [null, "options must be an object, got null"],
    ["redis://:hunter2@prod", "options must be an object, got a string of 21 characters"],
    [new URL("redis://:hunter2@prod"), "options must be an object, got an instance of URL"],
    [[{ name: "a" }], "options must be an object, got an array"],
    [Object.defineProperty({}, "name", { get: thrower }), "name must be readable"],
    [new Proxy({}, { ownKeys: thrower }), "options must be readable"],
    [revoked.proxy, "options must be readable"],
  ];

  it("refuses a value that is not an object with these options, or is unreadable", () => {
    for (const [given, message] of refused) {
      expect(() => schema.resolve(given), message).toThrow(TypeError);
      expect(() => schema.resolve(given)).toThrow(message);
    }
  });

  it("reads each option once, so that the checked value is the used value", () => {
    let reads = 0;
    const given = {
      name: "a",
      get ttl(): number {
        reads += 1;
        return reads === 1 ? 5 : -5;
      },
    };
    expect(schema.resolve(given).ttl).toBe(5);
    expect(reads).toBe(1);
  });
});
