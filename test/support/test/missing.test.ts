import { isMissing } from "@x/test-support";
import { afterEach, expect, it, vi } from "vitest";

afterEach(() => {
  vi.unstubAllEnvs();
  vi.restoreAllMocks();
});

it("names the tests that are skipped because of a missing program, and how to get it", () => {
  vi.stubEnv("REQUIRE_TOOLS", "");
  const write = vi.spyOn(process.stderr, "write").mockReturnValue(true);
  expect(isMissing("sextant", true, "the stars")).toBe(false);
  expect(write).not.toHaveBeenCalled();
  expect(isMissing("sextant", false, "the stars")).toBe(true);
  expect(write.mock.calls).toEqual([["SKIPPED: the stars: sextant is missing (apt-get install sextant)\n"]]);
});

it("fails because of a missing program if all programs are required", () => {
  vi.stubEnv("REQUIRE_TOOLS", "1");
  expect(isMissing("sextant", true, "the stars")).toBe(false);
  expect(() => isMissing("sextant", false, "the stars")).toThrow("the stars: sextant is missing");
});
