/** A million operations leave nothing behind: no timer, no listener, no entry in a map. */
import { spawnChild } from "@x/test-support";
import { expect, it } from "vitest";
import { startNodes } from "./support/nodes.ts";

interface Growth {
  readonly operations: number;
  readonly grownBytes: number;
  readonly timers: number;
  readonly listeners: number;
}

const isGrowth = (message: unknown): message is Growth =>
  typeof message === "object" && message !== null && "grownBytes" in message;

it("does not grow over a million operations, with waits and cancellations among them", async () => {
  const servers = await startNodes(1);
  await using child = spawnChild(new URL("./children/memory-growth.ts", import.meta.url), {
    args: [servers[0]?.path ?? ""],
    execArgv: ["--expose-gc"],
  });
  const growth = await child.message(isGrowth, { timeout: 200_000 });
  expect(growth.operations).toBeGreaterThanOrEqual(1_000_000);
  expect(growth.timers).toBe(0);
  expect(growth.listeners).toBe(0);
  // A leak of one small object per operation would be 40 MB and more.
  expect(growth.grownBytes).toBeLessThan(12_000_000);
}, 240_000);
