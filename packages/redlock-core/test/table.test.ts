import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { Table } from "../src/table.ts";

describe("Table", () => {
  it("does what a Map does, for any name", () => {
    const names = fc.constantFrom("a", "b", "__proto__", "constructor", "toString", "0");
    const step = fc.record({ name: names, value: fc.option(fc.nat(), { nil: undefined }) });
    fc.assert(
      fc.property(fc.array(step), (steps) => {
        const [table, map] = [new Table<number>(), new Map<string, number>()];
        for (const { name, value } of steps) {
          if (value === undefined) {
            table.delete(name);
            map.delete(name);
          } else {
            table.set(name, value);
            map.set(name, value);
          }
          for (const each of ["a", "b", "__proto__", "constructor", "toString", "0"]) {
            expect(table.get(each)).toBe(map.get(each));
          }
        }
      }),
    );
  });
});
