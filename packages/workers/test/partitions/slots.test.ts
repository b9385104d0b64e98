/** One concurrency for all partitions: the order of requests, patience, and servers that hang, on a manual clock. */
import { ManualClock } from "@x/test-support";
import { describe, expect, it } from "vitest";
import { PATIENCE_MS, Slot, Slots } from "../../src/partitions/slots.ts";

const [a, b, c] = [{}, {}, {}];

describe("the slots shared by all partitions", () => {
  it("are assigned in the order of the requests", async () => {
    const slots = new Slots(1, new ManualClock());
    expect(await slots.take(a)).toBe(true);
    const order: string[] = [];
    const waits = [slots.take(b).then(() => order.push("b")), slots.take(c).then(() => order.push("c"))];
    slots.release();
    slots.release();
    await Promise.all(waits);
    expect(order).toEqual(["b", "c"]);
  });

  it("are not assigned to a newcomer while another partition waits", async () => {
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

  it("stay with a partition until another partition has waited for the patience time", async () => {
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

  it("are not assigned to a partition that has stopped waiting", async () => {
    const slots = new Slots(1, new ManualClock());
    await slots.take(a);
    const [mine, theirs] = [slots.take(b), slots.take(c)];
    slots.cancel(b);
    expect(await mine).toBe(false);
    slots.release();
    expect(await theirs).toBe(true);
  });

  it("are lent to others while a server hangs, and each partition has at most one afterwards", async () => {
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

  it("are kept by no partition while more jobs run than the concurrency allows", async () => {
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

  it("are not lent if the server answers in time", async () => {
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
