import * as fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import { LocalQueues, type LocalWaiter } from "../src/waiting/local-queue.ts";

describe("LocalQueue", () => {
  it("has whoever has stood there longest as the first, wherever others leave", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.option(fc.nat(20))), async (steps) => {
        const queue = new LocalQueues().of("r");
        const called: LocalWaiter[] = [];
        const line: LocalWaiter[] = [];
        const everFirst: LocalWaiter[] = [];
        for (const step of steps) {
          if (step === null || line.length === 0) {
            const place = queue.enter();
            void place.untilFirst().then(() => called.push(place));
            line.push(place);
          } else {
            const [place] = line.splice(step % line.length, 1);
            place?.leave();
            place?.leave();
          }
          const [first] = line;
          if (first !== undefined && !everFirst.includes(first)) everFirst.push(first);
          expect(line.map((place) => place.isFirst)).toEqual(line.map((place) => place === first));
        }
        await Promise.resolve();
        expect(called).toEqual(everFirst);
      }),
    );
  });

  it("is forgotten when nobody stands there", () => {
    const queues = new LocalQueues();
    const queue = queues.of("r");
    const places = [queue.enter(), queue.enter()];
    for (const place of places.toReversed()) place.leave();
    expect(queues.of("r")).not.toBe(queue);
  });

  it("lets each of tens of thousands leave without looking at the others", () => {
    const searches = (["indexOf", "splice", "shift", "filter", "includes", "findIndex"] as const).map((name) =>
      vi.spyOn(Array.prototype, name),
    );
    const queue = new LocalQueues().of("r");
    const called = { count: 0 };
    const places = Array.from({ length: 20_000 }, () => queue.enter());
    for (const place of places) place.call = (): number => (called.count += 1);
    for (const place of [...places.slice(10_000), ...places]) place.leave();
    const calls = searches.map((search) => search.mock.calls.length);
    for (const search of searches) search.mockRestore();
    expect(calls).toEqual(searches.map(() => 0));
    expect(called.count).toBe(9_999);
  });
});
