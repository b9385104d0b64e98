import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { linesIn, NOTE, PAUSE, TRIGGER } from "../../src/scheduler/rules/lines.ts";

const name = fc.string({ minLength: 1, maxLength: 6, unit: "grapheme" }).filter((text) => !text.includes(":"));
const field = fc
  .tuple(fc.constantFrom("", NOTE, PAUSE, TRIGGER, ":"), name)
  .map(([prefix, rest]) => `${prefix}${rest}`);
const line = fc.string({ maxLength: 6 }).filter((text) => !text.includes(":"));

describe("the fields of a register", () => {
  it("are encoded into one text and decoded unchanged, for any names of schedules", () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(field, line)), (fields) => {
        expect([...linesIn(fields.flat().join("::"))]).toEqual(fields);
      }),
    );
  });

  it("are read as far as possible from a text that this package did not write", () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom("a", ":", " ") }), (text) => {
        expect([...linesIn(text)].length).toBeLessThanOrEqual(text.length);
      }),
    );
  });
});
