import { startRedis } from "@x/test-support";
import { expect, it } from "vitest";
import { run } from "../src/main.ts";

it("refuses the write of the job that lost its lock, runs it again, and sells exactly what it says", async () => {
  await using server = await startRedis();
  // 20 orders of 2, one of 5, and 10 that somebody else took while that one was paused.
  expect(await run(server.url)).toEqual({ left: 100 - 40 - 5 - 10, refusedWrites: 1, sold: 45 });
});
