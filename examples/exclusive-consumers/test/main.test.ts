import { startRedis } from "@x/test-support";
import { expect, it } from "vitest";
import { run } from "../src/main.ts";

it("loses no change of an account, whether it comes from a queue or over HTTP", async () => {
  await using server = await startRedis();
  const { balances, expected } = await run(server.url);
  expect(balances).toEqual(expected);
});
