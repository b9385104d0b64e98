import { expect, it } from "vitest";
import { ShortLivedMap } from "../src/lane/short-lived-map.ts";

it("has what was put there last, until that is deleted", () => {
  const map = new ShortLivedMap<string>();
  map.set("a", "first");
  map.set("b", "other");
  map.set("a", "second");
  expect([map.get("a"), map.get("b"), map.get("c")]).toEqual(["second", "other", undefined]);
  map.delete("a");
  map.delete("a");
  expect([map.get("a"), map.get("b")]).toEqual([undefined, "other"]);
});
