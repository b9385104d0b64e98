import { expect, it } from "vitest";
import { systemRandom } from "../src/kit/random.ts";

it("draws 40 hex digits for each token, never the same token twice, and any digit at any place", () => {
  const tokens = Array.from({ length: 2_000 }, () => systemRandom.token());
  expect(new Set(tokens).size).toBe(tokens.length);
  expect(tokens.filter((token) => !/^[0-9a-f]{40}$/.test(token))).toEqual([]);
  const digitsAt = Array.from({ length: 40 }, (_, at) => new Set(tokens.map((token) => token[at])).size);
  expect(digitsAt).toEqual(Array.from({ length: 40 }, () => 16));
});
