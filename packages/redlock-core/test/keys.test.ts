import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  checkLockKey,
  hasStableSlot,
  keysOf,
  lockKeyOf,
  nodeKeysOf,
  SLOT_COUNT,
  sideKeyOf,
  slotOf,
} from "../src/rules/keys.ts";

describe("slotOf", () => {
  it("is the CRC16 of the key, as in the test vector of the cluster specification", () => {
    expect(slotOf("123456789")).toBe(0x31c3);
  });

  it("hashes only the tag, so that keys of one tag share a slot", () => {
    const part = fc.string().filter((text) => !/[{}]/.test(text));
    fc.assert(
      fc.property(part, part, part, (before, tag, after) => {
        expect(slotOf(`${before}{${tag}}${after}`)).toBe(tag === "" ? slotOf(`${before}{}${after}`) : slotOf(tag));
      }),
    );
  });

  it("hashes the whole key when the tag is empty, as the cluster specification says", () => {
    expect(slotOf("foo{}{bar}")).toBe(8_363);
  });
});

describe("sideKeyOf", () => {
  it("puts side keys into the slot of the lock key", () => {
    fc.assert(
      fc.property(fc.string({ minLength: 1 }), (key) => {
        fc.pre(hasStableSlot(key));
        expect(slotOf(sideKeyOf(key, "fence"))).toBe(slotOf(key));
      }),
    );
  });

  it("uses the resource's own hash tag if it has one", () => {
    expect(sideKeyOf("{user:1}:cart", "fence")).toBe("{user:1}:cart:fence");
    expect(sideKeyOf("cart", "fence")).toBe("{cart}:fence");
  });

  it("recognizes names for which no hash tag exists", () => {
    expect(hasStableSlot("a}b")).toBe(false);
    expect(hasStableSlot("a{}b}")).toBe(false);
    expect(hasStableSlot("{a}b}")).toBe(true);
  });
});

describe("nodeKeysOf", () => {
  it("puts the node's keys into the slot, with the same names in each process", () => {
    // A process may ask for the slots in any order.
    for (let slot = SLOT_COUNT - 1; slot >= 0; slot -= 1) {
      for (const key of Object.values(nodeKeysOf(slot))) expect(slotOf(key)).toBe(slot);
    }
    const slotOfTag = (tag: string): string => nodeKeysOf(slotOf(tag)).hash;
    expect(["0", "a", "zz", "2bq"].map(slotOfTag)).toEqual(["{0}:x:node", "{a}:x:node", "{zz}:x:node", "{2bq}:x:node"]);
  });
});

describe("lockKeyOf", () => {
  it("is the resource itself without a prefix, as in other Redlock libraries", () => {
    expect(lockKeyOf("", "orders:7")).toBe("orders:7");
    expect(lockKeyOf("app:", "orders:7")).toBe("app:orders:7");
  });
});

describe("checkLockKey", () => {
  it.each([
    "{a}:fence",
    "{a}:note",
    "{a}:note",
    "{x}:node",
    "{a}b:node:last",
    "{a}\n:fence",
    "{stock:42}:claim",
    "{exports}:semaphore",
    "{exports}:semaphore:holders",
    "{exports}:readwrite",
    "{exports}:latch",
    "{leader:billing}:leader",
    "{leader:billing}:nightly:register",
    "{x}:client:0123456789ab",
    "{a}",
    "{a:b}",
    "{a}b}",
    "{{}}}",
  ])("refuses a resource that would share a key with another lock: %j", (key) => {
    expect(() => checkLockKey(key)).toThrow(RangeError);
  });

  it("names the resource whose fence the key would be", () => {
    expect(() => checkLockKey("{a}b}")).toThrow(
      'key of a resource must not be another one in braces: it shares the fence of "a}b", got "{a}b}"',
    );
  });

  it("accepts names that only resemble side keys", () => {
    for (const key of ["a:semaphore", "register", "{a}register", "{a}:registers", "{a}:fence:b", "{x}:clients"])
      expect(() => checkLockKey(key)).not.toThrow();
  });

  it("accepts only names that share no key with each other", () => {
    const part = fc.constantFrom("", "a", "b:", "{", "}", "{a}", "{a}:", ":fence", ":note");
    const isAccepted = (key: string): boolean => {
      try {
        checkLockKey(key);
        return key !== "";
      } catch {
        return false;
      }
    };
    fc.assert(
      fc.property(fc.tuple(part, part, part), fc.tuple(part, part, part), (...names) => {
        const [one = "", other = ""] = names.map((parts) => parts.join(""));
        fc.pre(one !== other && isAccepted(one) && isAccepted(other));
        const keys = keysOf("", [one, other]);
        expect(new Set(keys).size).toBe(keys.length);
      }),
    );
  });
});
