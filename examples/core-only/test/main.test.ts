import { readFile } from "node:fs/promises";
import { startRedis } from "@x/test-support";
import { expect, it } from "vitest";
import { run } from "../src/main.ts";

it("loses no increment, hands out increasing tokens, and says that the lock is held", async () => {
  await using server = await startRedis();
  expect(await run(server.url)).toEqual({ counted: 20, expected: 20, tokensIncrease: true, secondTry: "LOCK_HELD" });
});

it("depends on nothing but redlock-core and a Redis client", async () => {
  const manifest = JSON.parse(await readFile(new URL("../package.json", import.meta.url), "utf8")) as object;
  expect(manifest).toMatchObject({ dependencies: { "@x/redlock-core": "^0.1.0", ioredis: "6.0.0" } });
  expect(Object.keys((manifest as { dependencies: object }).dependencies)).toHaveLength(2);
});
