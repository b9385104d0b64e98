import { spawnChild, startRedis } from "@x/test-support";
import { expect, it } from "vitest";

// As built: its decorators with parameters are not for tsx, which reads another file's settings.
it("loses no change and makes none twice, though the replica that leads is killed", async () => {
  await using server = await startRedis();
  await using run = spawnChild(new URL("../dist/main.js", import.meta.url), { env: { REDIS_URL: server.url } });
  expect(await run.exited).toMatchObject({ code: 0 });
  const report = JSON.parse(run.output.trim().split("\n").at(-1) ?? "{}") as Record<string, unknown>;
  expect(report["balances"]).toEqual(report["expected"]);
  expect(report).toMatchObject({ failed: 0, closedTwice: 0, closedBy: 2, survivorEnd: "SIGTERM" });
  expect(report["sentAgain"]).toBeGreaterThan(0);
});
