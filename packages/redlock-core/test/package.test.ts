import { readFileSync } from "node:fs";
import { expect, it } from "vitest";

const read = (file: string): string => readFileSync(new URL(`../${file}`, import.meta.url), "utf8");

it("the README has no link to a file that is not packed", () => {
  const matches = read("README.md").matchAll(/\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$/gm);
  const links = [...matches].map((match) => match[1] ?? match[2] ?? "");
  expect(links.filter((link) => !/^(https:|#)/.test(link))).toEqual([]);
});
