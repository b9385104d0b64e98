import { expect, it } from "vitest";
import { deferred } from "../src/kit/signals.ts";

it("gives each promise its own functions to settle it, whenever they are called", async () => {
  const promises = [deferred<number>(), deferred<number>(), deferred<number>()];
  promises[2]?.resolve(2);
  promises[0]?.resolve(0);
  promises[1]?.reject("refused");
  const settled = await Promise.allSettled(promises.map(({ promise }) => promise));
  expect(settled).toEqual([
    { status: "fulfilled", value: 0 },
    { status: "rejected", reason: "refused" },
    { status: "fulfilled", value: 2 },
  ]);
});
