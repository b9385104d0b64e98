/** The partition of a key: the rule of two lines that producers in other languages follow. */
import { crc32 } from "node:zlib";
import { partitionOf, queueName } from "@x/workers/partitions";
import { array, assert, constantFrom, integer, property, string } from "fast-check";
import { describe, expect, it } from "vitest";
import { findPartition } from "../../src/partitions/rules/partition.ts";
import { keyFault } from "../../src/rules/entity-key.ts";

const anyKey = string({ unit: "grapheme", minLength: 1 }).filter((key) => keyFault(key) === undefined);

describe("the partition of a key", () => {
  // These vectors are also in docs/workers/partitions.md, and match Python's zlib.crc32.
  it.each([
    ["42", 0, 8],
    ["account:42", 1, 41],
    ["ключ", 2, 26],
    ["tenant-7", 2, 10],
    ["{tenant-7}:invoices", 2, 10],
    ["invoices:{tenant-7}", 2, 10],
    ["{}x", 6, 22],
  ])("of %s is %d of 8 and %d of 64", (key, of8, of64) => {
    expect(partitionOf(key, 8)).toBe(of8);
    expect(partitionOf(key, 64)).toBe(of64);
  });

  it("is one of the queue's partitions, for any key", () => {
    assert(
      property(anyKey, integer({ min: 1, max: 1_024 }), (key, partitions) => {
        const partition = partitionOf(key, partitions);
        expect(Number.isInteger(partition) && partition >= 0 && partition < partitions).toBe(true);
      }),
    );
  });

  it("is the partition of the key's first non-empty part in braces", () => {
    const text = string({ unit: constantFrom("{", "}", "a", "b"), minLength: 1 });
    assert(
      property(text, (key) => {
        const part = /\{([^}]+)\}/.exec(key)?.[1] ?? key;
        expect(partitionOf(key, 1_024)).toBe(crc32(part) % 1_024);
      }),
    );
  });

  it("spreads a thousand tenants so that none of 16 partitions has twice its share", () => {
    const counts = new Map<number, number>();
    for (let i = 0; i < 1_000; i++) {
      const partition = partitionOf(`tenant-${i}`, 16);
      counts.set(partition, (counts.get(partition) ?? 0) + 1);
    }
    expect(counts.size).toBe(16);
    expect(Math.max(...counts.values())).toBeLessThan(125);
  });

  it("is in the name of its queue, with the number of partitions", () => {
    expect(queueName("payments", 3, 16)).toBe("{payments-3of16}");
  });
});

describe("a job with several keys", () => {
  it("has a partition if all its keys have the same one", () => {
    assert(
      property(array(integer({ min: 0, max: 99 }), { minLength: 1, maxLength: 16 }), (numbers) => {
        expect(
          findPartition(
            numbers.map((n) => `{t}${n}`),
            8,
          ),
        ).toEqual({ partition: partitionOf("t", 8) });
      }),
    );
  });

  it("is refused if its keys have different ones, with advice", () => {
    expect(findPartition(["42", "ключ"], 8)).toEqual({
      fault: '"42" belongs to partition 0 and "ключ" to 2: give them a common part in braces',
    });
  });

  it("has no partition if there is no key", () => {
    expect(findPartition(undefined, 8)).toEqual({ partition: undefined });
  });
});
