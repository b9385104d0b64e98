import { isWithoutPostgres, startPostgres, startRedis } from "@x/test-support";
import { expect, it } from "vitest";
import { run } from "../src/main.ts";

// 20 orders of 2, and three of 3, 4 and 5 in which something goes wrong; 10 were sold at the counter in between.
const sold = 40 + 3 + 4 + 5;
const outcome = { left: 100 - sold - 10, sold, confirmations: 23, runs: 26, fencedOff: 1 };

it("sells and confirms each order once, on a database inside the process", async () => {
  await using server = await startRedis();
  expect(await run(server.url)).toEqual(outcome);
});

it.skipIf(isWithoutPostgres())("does the same on a PostgreSQL server", async () => {
  await using server = await startRedis();
  await using postgres = await startPostgres();
  expect(await run(server.url, postgres.url)).toEqual(outcome);
});
