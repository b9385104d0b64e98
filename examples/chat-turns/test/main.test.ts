import { startRedis } from "@x/test-support";
import { expect, it } from "vitest";
import { run } from "../src/main.ts";

it("answers each message once and in order, with fewer turns than messages, whatever the provider refuses", async () => {
  await using server = await startRedis();
  const report = await run(server.url);
  expect(report).toMatchObject({ messages: 57, answered: 56, interrupted: 1, overlaps: 0, failed: 0 });
  expect(report.turns).toBeLessThan(report.answered);
  expect(report.refused).toBeGreaterThan(0);
  expect(report.hotTurnsLast).toBeGreaterThan(0);
});
