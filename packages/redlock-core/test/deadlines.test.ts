import { ManualClock } from "@x/test-support";
import { expect, it } from "vitest";
import { Deadlines, Timed } from "../src/kit/deadlines.ts";

class Round extends Timed {
  readonly #onEnd: () => void;

  constructor(onEnd: () => void) {
    super();
    this.#onEnd = onEnd;
  }

  override onDeadline(): void {
    this.#onEnd();
  }
}

it("ends each round at its own deadline, also when the end of one begins another", async () => {
  const clock = new ManualClock();
  const startMs = clock.monotonicMs();
  const deadlines = new Deadlines(clock, 500);
  const ended: number[] = [];
  const note = (): number => ended.push(clock.monotonicMs() - startMs);
  const release = new Round(note);
  deadlines.start(
    new Round(() => {
      note();
      deadlines.start(release);
    }),
  );
  await clock.advance(400);
  deadlines.start(new Round(note));
  await clock.advance(1_000);
  expect(ended).toEqual([500, 900, 1_000]);
});
