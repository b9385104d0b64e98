import { setImmediate } from "node:timers/promises";
import { it } from "vitest";

it("leaves a rejection that nobody handles", async () => {
  void Promise.reject(new Error("nobody's"));
  await setImmediate();
});
