/** Hundreds of thousands of operations leave nothing behind: no timer, no listener, no entry in a map. */
import { spawnChild } from "@x/test-support";
import { expect, it } from "vitest";
import { startNodes } from "./support/nodes.ts";

interface Growth {
  readonly operations: number;
  readonly grownBytes: number;
  readonly timers: number;
  readonly listeners: number;
}

/** Each is two operations. The nightly run asks for 410,000. */
const pairs = Number(process.env["GROWTH_PAIRS"] ?? 150_000);
const isGrowth = (message: unknown): message is Growth =>
  typeof message === "object" && message !== null && "grownBytes" in message;

it(`does not grow over ${2 * pairs} operations, with waits and cancellations among them`, async () => {
  const servers = await startNodes(1);
  await using child = spawnChild(new URL("./children/memory-growth.ts", import.meta.url), {
    args: [servers[0]?.path ?? "", String(pairs)],
    execArgv: ["--expose-gc"],
  });
  const growth = await child.message(isGrowth, { timeout: 200_000 });
  expect(growth.operations).toBe(2 * pairs);
  expect(growth.timers).toBe(0);
  expect(growth.listeners).toBe(0);
  // A leak of one small object per operation would be 12 MB and more.
  expect(growth.grownBytes).toBeLessThan(6_000_000);
}, 240_000);
