import { ManualClock } from "@x/test-support";
import { expect, it } from "vitest";
import { Deadline, Deadlines } from "../src/kit/deadlines.ts";

const deadlineOf = (onDeadline: () => void): Deadline => new Deadline({ onDeadline });

it("ends each round at its own deadline, even if the end of one round begins another", async () => {
  const clock = new ManualClock();
  const startMs = clock.monotonicMs();
  const deadlines = new Deadlines(clock, 500);
  const ended: number[] = [];
  const note = (): number => ended.push(clock.monotonicMs() - startMs);
  const release = deadlineOf(note);
  deadlines.start(
    deadlineOf(() => {
      note();
      deadlines.start(release);
    }),
  );
  await clock.advance(400);
  deadlines.start(deadlineOf(note));
  await clock.advance(1_000);
  expect(ended).toEqual([500, 900, 1_000]);
});
