import * as fc from "fast-check";
import { describe, expect, it, vi } from "vitest";
import { LocalLines, type LocalWaiter } from "../src/waiting/local-line.ts";

describe("LocalLine", () => {
  it("returns the longest-waiting member as the first, wherever others leave", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.option(fc.nat(20))), async (steps) => {
        const line = new LocalLines().of("r");
        const called: LocalWaiter[] = [];
        const model: LocalWaiter[] = [];
        const everFirst: LocalWaiter[] = [];
        for (const step of steps) {
          if (step === null || model.length === 0) {
            const place = line.enter();
            void place.untilFirst().then(() => called.push(place));
            model.push(place);
          } else {
            const [place] = model.splice(step % model.length, 1);
            place?.leave();
            place?.leave();
          }
          const [first] = model;
          if (first !== undefined && !everFirst.includes(first)) everFirst.push(first);
          expect(model.map((place) => place.isFirst)).toEqual(model.map((place) => place === first));
        }
        await Promise.resolve();
        expect(called).toEqual(everFirst);
      }),
    );
  });

  it("is not freed by a previous holder that another holder has replaced", () => {
    const line = new LocalLines().of("r");
    const [replaced, holder] = [0, 1].map((remainingMs) => ({ remaining: () => remainingMs, lose: () => {} }));
    if (replaced === undefined || holder === undefined) throw new Error("expected two holders");
    line.hold(replaced);
    line.hold(holder);
    const freed = vi.fn<() => void>();
    line.onFree(freed);
    line.free(replaced);
    expect([line.holder, freed.mock.calls.length]).toEqual([holder, 0]);
    line.free(holder);
    expect([line.holder, freed.mock.calls.length]).toEqual([undefined, 1]);
  });

  it("is forgotten when it is empty", () => {
    const lines = new LocalLines();
    const line = lines.of("r");
    const places = [line.enter(), line.enter()];
    for (const place of places.toReversed()) place.leave();
    expect(lines.of("r")).not.toBe(line);
  });

  it("lets each of tens of thousands leave without a scan of the others", () => {
    const searches = (["indexOf", "splice", "shift", "filter", "includes", "findIndex"] as const).map((name) =>
      vi.spyOn(Array.prototype, name),
    );
    const line = new LocalLines().of("r");
    const called = { count: 0 };
    const places = Array.from({ length: 20_000 }, () => line.enter());
    for (const place of places) place.call = (): number => (called.count += 1);
    for (const place of [...places.slice(10_000), ...places]) place.leave();
    const calls = searches.map((search) => search.mock.calls.length);
    for (const search of searches) search.mockRestore();
    expect(calls).toEqual(searches.map(() => 0));
    expect(called.count).toBe(9_999);
  });
});
