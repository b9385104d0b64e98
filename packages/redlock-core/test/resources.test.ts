import { describe, expect, it } from "vitest";
import { MAX_RESOURCE_BYTES, resolveResource, resolveResources } from "../src/rules/resources.ts";

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
