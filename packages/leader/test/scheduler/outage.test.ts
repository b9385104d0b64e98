import { describe, expect, it } from "vitest";
import { Outage } from "../../src/scheduler/outage.ts";

describe("an outage of the scheduler's nodes", () => {
  it("makes each try wait longer, up to a second, and starts again after a success", () => {
    const outage = new Outage(() => undefined);
    const waits = [1, 2, 3, 4, 5, 6].map(() => outage.failed(new Error("silent")));
    expect(waits).toEqual([100, 200, 400, 800, 1_000, 1_000]);
    outage.ended();
    expect(outage.failed(new Error("silent"))).toBe(100);
  });

  it("reports at most ten messages, even if each try has a different one", () => {
    const told: unknown[] = [];
    const outage = new Outage((error) => told.push(error));
    for (let at = 0; at < 50; at += 1) outage.failed(new Error(`id ${at}`));
    expect(told).toHaveLength(10);
  });
});
