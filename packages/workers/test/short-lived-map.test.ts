import { describe, expect, it } from "vitest";
import { ShortLivedMap } from "../src/short-lived-map.ts";

function mapOf(...ids: readonly string[]): ShortLivedMap<{ readonly id: string }> {
  const map = new ShortLivedMap<{ readonly id: string }>();
  for (const id of ids) map.set(id, { id });
  return map;
}

describe("ShortLivedMap", () => {
  it("returns what it takes out once", () => {
    const map = mapOf("a", "b");
    expect(map.has("a")).toBe(true);
    expect(map.get("a")).toEqual({ id: "a" });
    expect(map.take("a")).toEqual({ id: "a" });
    expect(map.take("a")).toBeUndefined();
    expect(map.has("a")).toBe(false);
    expect(map.get("b")).toEqual({ id: "b" });
  });

  it("puts an entry that it had before behind the others", () => {
    const map = mapOf("a", "b");
    const later = { id: "a" };
    map.set("a", later);
    expect(map.get("a")).toBe(later);
    expect(map.takeAll()).toEqual([{ id: "b" }, later]);
    expect(map.takeAll()).toEqual([]);
  });

  it("drops from the oldest on, until one is not over", () => {
    const map = mapOf("a", "b", "c", "d");
    map.dropOldest(({ id }) => id !== "c");
    expect(map.takeAll()).toEqual([{ id: "c" }, { id: "d" }]);
  });
});
