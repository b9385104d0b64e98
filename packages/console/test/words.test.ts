/** The numbers, times and names of the page. */
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  clock,
  count,
  counted,
  dayClock,
  duration,
  interval,
  latency,
  listed,
  moment,
  policyText,
  printable,
  wholeDuration,
} from "../assets/words.ts";

const NOW = Date.UTC(2026, 10, 24, 14, 32, 7);

/** Shows the space that keeps a number and its unit on one line as a plain one. */
const plain = (text: string): string => text.replaceAll("\u00a0", " ");

describe("the page's words", () => {
  it("separate thousands, and agree with their number", () => {
    expect(count(29_865)).toBe("29,865");
    expect([0, 1, 2].map((value) => plain(counted(value, "lock")))).toEqual(["0 locks", "1 lock", "2 locks"]);
    expect(plain(counted(2, "process", "processes"))).toBe("2 processes");
  });

  it.each([
    [0, "0.0 s", "0 s"],
    [900, "0.9 s", "1 s"],
    [11_800, "11.8 s", "12 s"],
    [59_949, "59.9 s", "1 min"],
    [59_960, "1 min", "1 min"],
    [242_000, "4 min 2 s", "4 min 2 s"],
    [1_265_000, "21 min", "21 min"],
    [9_660_000, "2 h 41 min", "2 h 41 min"],
    [7_200_000, "2 h", "2 h"],
    [260_000_000, "3 days", "3 days"],
    [-1_500, "−1.5 s", "−2 s"],
  ])("write %i ms as %s, or without decimals as %s", (ms, exact, whole) => {
    expect(plain(duration(ms))).toBe(exact);
    expect(plain(wholeDuration(ms))).toBe(whole);
  });

  it("never write 60 seconds or 60 minutes, and never part a number from its unit", () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 400_000_000 }), (ms) => {
        return [duration(ms), wholeDuration(ms)].every(
          (text) => !/\b60(\.0)?\u00a0/.test(text) && !/\d [a-z]/.test(text),
        );
      }),
    );
  });

  it("write an answer's duration in milliseconds below a second", () => {
    expect([0.8, 24.4, 3, 1_200].map(latency).map(plain)).toEqual(["0.8 ms", "24 ms", "3 ms", "1.2 s"]);
    expect([10_000, 300_000, 7_200_000, 86_400_000, 1_500].map(interval).map(plain)).toEqual([
      "10 s",
      "5 min",
      "2 h",
      "a day",
      "1.5 s",
    ]);
  });

  it("write moments of the past and of the future, with a date if they are far away", () => {
    expect(plain(moment(NOW - 3_100, NOW))).toBe("3.1 s ago");
    expect(plain(moment(NOW + 53_000, NOW))).toBe("in 53 s");
    expect(dayClock(NOW - 1_000, NOW)).toBe(clock(NOW - 1_000));
    expect(dayClock(NOW - 90_000_000, NOW)).toMatch(/^\d+ Nov \d\d:\d\d:\d\d$/);
  });

  it("show no control character, and the slot of a key as a slot", () => {
    expect(printable("account:7\u001f1")).toBe("account:7 slot 2");
    expect(printable("a\u0007b\nc\u202ed")).toBe("a·b·c·d");
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 0x20_70 }), { maxLength: 30 }), (codes) => {
        const name = String.fromCodePoint(...codes);
        // oxlint-disable-next-line no-control-regex -- these are the characters that must not be there
        return !/[\u0000-\u001f\u007f-\u009f\u202a-\u202e]/.test(printable(name));
      }),
    );
  });

  it("say a policy and a list of names", () => {
    expect(plain(policyText({ concurrency: 2, rate: { max: 100, duration: 60_000 } }))).toBe(
      "2 at a time, 100 in 1 min",
    );
    expect(plain(policyText({ maxWaiting: { max: 50 }, weight: 3 }))).toBe("50 may wait, weight 3");
    expect(policyText(undefined)).toBe("");
    expect(listed(["a"])).toBe("a");
    expect(listed(["a", "b", "c"])).toBe("a, b and c");
    expect(listed(["a", "b", "c", "d", "e"])).toBe("a, b, c and 2 more");
  });
});
