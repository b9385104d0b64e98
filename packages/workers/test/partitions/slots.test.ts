/** One concurrency for all partitions: the order of asking, patience, and servers that hang; on a clock by hand. */
import { ManualClock } from "@x/test-support";
import { describe, expect, it } from "vitest";
import { PATIENCE_MS, Slot, Slots } from "../../src/partitions/slots.ts";

const [a, b, c] = [{}, {}, {}];

describe("the slots of all partitions", () => {
  it("are given in the order of asking", async () => {
    const slots = new Slots(1, new ManualClock());
    expect(await slots.take(a)).toBe(true);
    const order: string[] = [];
    const waits = [slots.take(b).then(() => order.push("b")), slots.take(c).then(() => order.push("c"))];
    slots.release();
    slots.release();
    await Promise.all(waits);
    expect(order).toEqual(["b", "c"]);
  });

  it("are not given to whoever comes last while somebody waits", async () => {
    const slots = new Slots(1, new ManualClock());
    await slots.take(a);
    const first = slots.take(b);
    slots.release();
    await first;
    let isServed = false;
    void slots.take(c).then(() => (isServed = true));
    await Promise.resolve();
    expect(isServed).toBe(false);
  });

  it("stay with a partition until another one has waited for some time", async () => {
    const clock = new ManualClock();
    const slots = new Slots(1, clock);
    await slots.take(a);
    expect(slots.mayKeep(a)).toBe(true);
    void slots.take(a);
    expect(slots.mayKeep(a)).toBe(true);
    void slots.take(b);
    expect(slots.mayKeep(a)).toBe(true);
    await clock.advance(PATIENCE_MS + 1);
    expect(slots.mayKeep(a)).toBe(false);
  });

  it("do not go to those who wait no longer", async () => {
    const slots = new Slots(1, new ManualClock());
    await slots.take(a);
    const [mine, theirs] = [slots.take(b), slots.take(c)];
    slots.cancel(b);
    expect(await mine).toBe(false);
    slots.release();
    expect(await theirs).toBe(true);
  });

  it("are others' while a server hangs, and are never more than one each afterwards", async () => {
    const clock = new ManualClock();
    const slots = new Slots(1, clock);
    await slots.take(a);
    const slot = new Slot(slots, clock);
    slot.lend();
    const other = slots.take(b);
    await clock.advance(1_000);
    expect(await other).toBe(true);
    slot.takeBack();
    slots.release();
    let isServed = false;
    const next = slots.take(c).then(() => (isServed = true));
    await Promise.resolve();
    expect(isServed).toBe(false);
    slot.release();
    await next;
  });

  it("are kept by nobody while more jobs run than may", async () => {
    const clock = new ManualClock();
    const slots = new Slots(1, clock);
    await slots.take(a);
    const slot = new Slot(slots, clock);
    slot.lend();
    await clock.advance(1_000);
    expect(await slots.take(b)).toBe(true);
    slot.takeBack();
    expect([slots.mayKeep(a), slots.mayKeep(b)]).toEqual([false, false]);
  });

  it("are not lent where the server answers in time", async () => {
    const clock = new ManualClock();
    const slots = new Slots(1, clock);
    await slots.take(a);
    const slot = new Slot(slots, clock);
    slot.lend();
    await clock.advance(500);
    slot.takeBack();
    let isServed = false;
    void slots.take(b).then(() => (isServed = true));
    await clock.advance(5_000);
    await Promise.resolve();
    expect(isServed).toBe(false);
  });
});
