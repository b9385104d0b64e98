import { describe, expect, it } from "vitest";
import { reasonOfDeadline } from "../src/rules/deadline.ts";

describe("deadline", () => {
  it("names a suspend or a wall clock that was set as the reason, if only that explains the loss", () => {
    const from = { monotonicMs: 0, wallMs: 0, suspendedMs: 0 };
    const reasonAt = (monotonicMs: number, wallMs: number, suspendedMs: number): string =>
      reasonOfDeadline(from, 1_000, { monotonicMs, wallMs, suspendedMs });
    expect([reasonAt(10, 60_000, 0), reasonAt(10, 60_000, 490), reasonAt(950, 60_000, 0)]).toEqual(
      Array(3).fill("clock-jumped"),
    );
    // The time of a suspend has a resolution of 10 ms.
    expect([reasonAt(10, 10, 59_990), reasonAt(10, 1_001, 981), reasonAt(10, 60_000, 59_990)]).toEqual(
      Array(3).fill("suspended"),
    );
    expect([reasonAt(995, 996, 5), reasonAt(1_000, 1_000, 0)]).toEqual(["renew-deadline", "renew-deadline"]);
  });
});
