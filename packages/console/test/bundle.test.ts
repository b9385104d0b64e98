/** The size of what a browser loads. The budget is for the first view; an opened queue and the dialog load later. */
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { expect, it } from "vitest";

const sizeOf = (name: string): { readonly bytes: number; readonly zipped: number } => {
  const file = readFileSync(new URL(`../dist/assets/${name}`, import.meta.url));
  return { bytes: file.length, zipped: gzipSync(file).length };
};

it.each([
  ["page.js", 64_000, 24_000],
  ["page.css", 28_000, 7_000],
  ["details.js", 30_000, 11_000],
])("%s has at most %i bytes, and %i with gzip", (name, bytes, zipped) => {
  const size = sizeOf(name);
  expect(size.bytes).toBeLessThanOrEqual(bytes);
  expect(size.zipped).toBeLessThanOrEqual(zipped);
});

it("the page loads no other script at first, and the later file loads no third one", () => {
  const imported = (name: string): readonly string[] => {
    const text = readFileSync(new URL(`../dist/assets/${name}`, import.meta.url), "utf8");
    return [...text.matchAll(/(?:from|import)\s*\(?"(\.\/[^"]+)"/g)].map(([, file]) => file ?? "");
  };
  expect(imported("page.js")).toEqual(["./details.js"]);
  expect(imported("details.js")).toEqual(["./page.js"]);
});
