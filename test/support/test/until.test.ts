import { until } from "@x/test-support";
import { expect, it } from "vitest";

it("repeats the check until it succeeds", async () => {
  let looks = 0;
  await until(async () => {
    looks += 1;
    return looks === 3;
  });
  expect(looks).toBe(3);
});

it.each([
  ["is not so", () => 1 + 1 === 3],
  ["never answers", async () => await new Promise<boolean>(() => 1 + 1 === 3)],
])("names the condition if it %s in time", async (_case, isSo) => {
  await expect(until(isSo, 30)).rejects.toThrow(/^not so within 30 ms: .*=> 1 \+ 1 === 3/);
});

it("rejects with the error of the check", async () => {
  const error = new Error("cannot look");
  await expect(until(() => Promise.reject(error))).rejects.toBe(error);
});
