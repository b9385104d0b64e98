import { expect, it } from "vitest";

it("passes", () => undefined);

it("never passes", () => {
  expect(1).toBe(2);
});
