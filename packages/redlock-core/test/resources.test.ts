import { ManualClock } from "@x/test-support";
import { describe, expect, it, onTestFinished } from "vitest";
import { resolveOptions } from "../src/api/options.ts";
import { systemRandom } from "../src/kit/random.ts";
import { Engine } from "../src/lock/engine.ts";
import { MAX_RESOURCE_BYTES, resolveResource, resolveResources } from "../src/rules/resources.ts";
import { StubNode } from "./support/stub-node.ts";

const RULE = "resource must be a non-empty string of up to 4096 bytes";

describe("the longest name of a resource", () => {
  it.each([
    ["one byte each", "a".repeat(MAX_RESOURCE_BYTES)],
    ["two bytes each", "é".repeat(MAX_RESOURCE_BYTES / 2)],
    ["three bytes each", `${"€".repeat(1_365)}a`],
    ["four bytes each", "😀".repeat(MAX_RESOURCE_BYTES / 4)],
  ])("is limited in bytes of UTF-8, with %s", (_, name) => {
    expect(resolveResource(name)).toBe(name);
    expect(resolveResources(["a", name])).toEqual(["a", name]);
    const refusal = new RangeError(`${RULE}, got a string of ${name.length + 1} characters`);
    expect(() => resolveResource(`${name}a`)).toThrow(refusal);
    expect(() => resolveResources(["a", `${name}a`])).toThrow(refusal);
  });
});

it("a lock's list of resources cannot be changed, because later locks of the resource share the list", () => {
  const { options } = resolveOptions({}, { count: 1, isCluster: false });
  const node = new StubNode();
  const engine = new Engine([node], options, new ManualClock(), systemRandom);
  onTestFinished(() => engine.batchers[0]?.close());
  const { resources } = engine.targets.of(["r"]);
  expect(() => (resources as string[]).push("s")).toThrow(TypeError);
  expect(engine.targets.of(["r"])).toMatchObject({ resources: ["r"], keys: ["r"], lines: ["{r}:waiters"] });
});

it("the cache of targets is bounded, and creates a forgotten target again", () => {
  const { options } = resolveOptions({}, { count: 1, isCluster: false });
  const engine = new Engine([new StubNode()], options, new ManualClock(), systemRandom);
  onTestFinished(() => engine.batchers[0]?.close());
  const first = engine.targets.of(["r"]);
  expect(engine.targets.of(["r"])).toBe(first);
  for (let index = 0; index < 1_000; index += 1) engine.targets.of([`r${index}`]);
  const again = engine.targets.of(["r"]);
  expect(again).not.toBe(first);
  expect(again).toEqual(first);
});
