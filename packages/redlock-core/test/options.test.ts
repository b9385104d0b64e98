import { describe, expect, it } from "vitest";
import type { AcquireOptions, RedlockOptions } from "../src/api/options.ts";
import { resolveAcquireOptions, resolveOptions, resolveTtl } from "../src/api/options.ts";
import { resolveResources } from "../src/rules/resources.ts";

const one = { count: 1, isCluster: false };
const three = { count: 3, isCluster: false };
const bad = (value: unknown): never => value as never;

describe("resolveOptions", () => {
  it("is complete, frozen, and has the documented defaults", () => {
    const { options } = resolveOptions({}, three);
    expect(options).toEqual({
      ttl: 30_000,
      maxTtl: 60_000,
      driftFactor: 0.01,
      nodeTimeout: 500,
      timeout: 10_000,
      keyPrefix: "",
      name: "",
      autoExtend: false,
      maxHold: Number.POSITIVE_INFINITY,
      reentrancy: "refuse",
      quarantine: true,
      retryDelay: 50,
      retryJitter: 50,
    });
    expect(Object.isFrozen(options)).toBe(true);
  });

  it("treats undefined as left out", () => {
    const given: Readonly<Record<keyof RedlockOptions, undefined>> = {
      ttl: undefined,
      maxTtl: undefined,
      driftFactor: undefined,
      nodeTimeout: undefined,
      timeout: undefined,
      keyPrefix: undefined,
      name: undefined,
      autoExtend: undefined,
      maxHold: undefined,
      reentrancy: undefined,
      quarantine: undefined,
      retryDelay: undefined,
      retryJitter: undefined,
      clock: undefined,
      random: undefined,
    };
    const options: RedlockOptions = given;
    expect(resolveOptions(options, three)).toEqual(resolveOptions({}, three));
  });

  it("enables quarantine only if a quorum can do without the restarted nodes", () => {
    expect(resolveOptions({}, one).options.quarantine).toBe(false);
    expect(resolveOptions({}, { count: 2, isCluster: false }).options.quarantine).toBe(false);
    expect(resolveOptions({}, { count: 1, isCluster: true }).options.quarantine).toBe(false);
    expect(() => resolveOptions({ quarantine: true }, { count: 1, isCluster: true })).toThrow(RangeError);
  });

  it("raises the default of maxTtl to a longer ttl", () => {
    expect(resolveOptions({ ttl: 120_000 }, one).options.maxTtl).toBe(120_000);
  });

  it.each([
    [{ ttl: 10 }, RangeError, "ttl must be an integer from 50 to 86400000 (ms), got 10"],
    [{ ttl: 100.5 }, RangeError, "ttl must be an integer from 50 to 86400000 (ms), got 100.5"],
    [{ ttl: Number.NaN }, RangeError, "ttl must be an integer from 50 to 86400000 (ms), got NaN"],
    [{ ttl: bad("5s") }, TypeError, 'ttl must be an integer from 50 to 86400000 (ms), got "5s"'],
    [{ ttl: bad(null) }, TypeError, undefined],
    [{ ttl: 5_000, maxTtl: 4_000 }, RangeError, "ttl must be <= maxTtl (4000 ms), got 5000"],
    [{ driftFactor: -1 }, RangeError, "driftFactor must be a number from 0 to 0.5, got -1"],
    [{ driftFactor: 0.6 }, RangeError, "driftFactor must be a number from 0 to 0.5, got 0.6"],
    [{ nodeTimeout: 0 }, RangeError, "nodeTimeout must be an integer from 1 to 86400000 (ms), got 0"],
    [{ timeout: -1 }, RangeError, "timeout must be an integer >= 0 (ms) or Infinity, got -1"],
    [{ timeout: bad("1") }, TypeError, undefined],
    [{ keyPrefix: bad(1) }, TypeError, "keyPrefix must be a string, got 1"],
    [{ autoExtend: bad("yes") }, TypeError, 'autoExtend must be a boolean, got "yes"'],
    [{ maxHold: 0 }, RangeError, "maxHold must be an integer >= 1 (ms) or Infinity, got 0"],
    [{ quarantine: bad(1) }, TypeError, "quarantine must be a boolean, got 1"],
    [{ retryDelay: -5 }, RangeError, undefined],
    [
      { clock: bad(5) },
      TypeError,
      "clock must be an object with the functions monotonicMs, wallMs, suspendedMs, schedule and defer, got 5",
    ],
    [
      { clock: bad({ wallMs: Date.now }) },
      TypeError,
      "clock must be an object with the functions monotonicMs, wallMs, suspendedMs, schedule and defer, got an object",
    ],
    [{ random: bad(5) }, TypeError, "random must be an object with the functions token and fraction, got 5"],
    [{ random: bad(null) }, TypeError, "random must be an object with the functions token and fraction, got null"],
    [bad([]), TypeError, "options must be an object, got an array"],
    [bad({ ttll: 1 }), TypeError, 'unknown option "ttll": did you mean "ttl"?'],
    [bad({ TTL: 1 }), TypeError, 'unknown option "TTL": did you mean "ttl"?'],
    [bad({ nodeTimeOut: 1 }), TypeError, 'unknown option "nodeTimeOut": did you mean "nodeTimeout"?'],
    [bad({ autoextnd: true }), TypeError, 'unknown option "autoextnd": did you mean "autoExtend"?'],
    [bad({ lease: 1 }), TypeError, 'unknown option "lease": known are ttl, maxTtl, '],
    [
      bad({ retryCount: 3 }),
      TypeError,
      'unknown option "retryCount": "timeout" replaces it; @x/node-redlock takes the options of node-redlock',
    ],
    [
      bad({ automaticExtensionThreshold: 500 }),
      TypeError,
      'unknown option "automaticExtensionThreshold": "autoExtend" replaces it',
    ],
    [bad({ signal: 1 }), TypeError, 'unknown option "signal": it is an option of acquire, tryAcquire and using'],
  ])("refuses %j", (options, kind, message) => {
    const attempt = (): unknown => resolveOptions(options, one);
    expect(attempt).toThrow(kind);
    if (message !== undefined) expect(attempt).toThrow(message);
  });
});

describe("resolveAcquireOptions", () => {
  const { options: defaults } = resolveOptions({ ttl: 2_000, maxTtl: 4_000, autoExtend: true }, one);

  it("falls back to the options of the Redlock", () => {
    expect(resolveAcquireOptions(undefined, defaults)).toMatchObject({
      ttl: 2_000,
      timeout: 10_000,
      autoExtend: true,
    });
    const own: AcquireOptions = { ttl: 3_000, autoExtend: false };
    expect(resolveAcquireOptions(own, defaults)).toMatchObject(own);
  });

  it.each([
    [{ ttl: 4_001 }, RangeError, undefined],
    [{ timeout: 0.5 }, RangeError, undefined],
    [{ signal: bad({ aborted: false }) }, TypeError, undefined],
    [bad({ place: 1 }), TypeError, 'unknown option "place"'],
    [bad({ tll: 1_000 }), TypeError, 'unknown option "tll": did you mean "ttl"?'],
    [bad({ driftFactor: 0 }), TypeError, 'unknown option "driftFactor": it is an option of new Redlock'],
    [bad("1000"), TypeError, undefined],
  ])("refuses %j", (options, kind, message) => {
    const attempt = (): unknown => resolveAcquireOptions(options, defaults);
    expect(attempt).toThrow(kind);
    if (message !== undefined) expect(attempt).toThrow(message);
  });

  it("treats undefined as left out", () => {
    const given: Readonly<Record<keyof AcquireOptions, undefined>> = {
      ttl: undefined,
      timeout: undefined,
      signal: undefined,
      autoExtend: undefined,
      maxHold: undefined,
    };
    const options: AcquireOptions = given;
    expect(resolveAcquireOptions(options, defaults)).toEqual(resolveAcquireOptions(undefined, defaults));
  });
});

describe("resolveTtl", () => {
  it("refuses a ttl of which nothing remains after the drift", () => {
    const { options: defaults } = resolveOptions({ driftFactor: 0.5 }, one);
    expect(resolveTtl(50, defaults)).toBe(50);
    expect(() => resolveTtl(49, defaults)).toThrow(RangeError);
  });
});

describe("resolveResources", () => {
  it("accepts one name or several distinct names", () => {
    expect(resolveResources("a")).toEqual(["a"]);
    expect(resolveResources(["a", "b"])).toEqual(["a", "b"]);
  });

  it.each([
    ["", RangeError],
    [[], RangeError],
    [["a", "a"], RangeError],
    [["a", ""], RangeError],
    [bad(7), TypeError],
    [bad(["a", 7]), TypeError],
    [bad(undefined), TypeError],
  ])("refuses %j", (resources, kind) => {
    expect(() => resolveResources(resources)).toThrow(kind);
  });
});
