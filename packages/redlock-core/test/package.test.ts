import { readFileSync } from "node:fs";
import { expect, it } from "vitest";

interface Manifest {
  readonly main?: string;
  readonly types?: string;
  readonly typesVersions?: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>>;
  readonly exports: Readonly<Record<string, string | { readonly types: string; readonly default: string }>>;
}

const read = (file: string): string => readFileSync(new URL(`../${file}`, import.meta.url), "utf8");
const { main, types, typesVersions, exports } = JSON.parse(read("package.json")) as Manifest;

it("is found by TypeScript's node10 resolution, which does not read `exports`", () => {
  const entries = Object.entries(exports).filter(([name]) => name !== "./package.json");
  const [root, ...others] = entries.map(([, entry]) => entry);
  expect(root).toEqual({ types, default: main });
  const names = entries.slice(1).map(([name]) => name.replace("./", ""));
  const found = names.map((name) => typesVersions?.["*"]?.[name]);
  expect(found).toEqual(others.map((entry) => (typeof entry === "string" ? [] : [entry.types])));
});

it("has no link in its README to a file that is not packed", () => {
  const links = [...read("README.md").matchAll(/\]\(([^)\s]+)\)/g)].map((match) => match[1] ?? "");
  expect(links.filter((link) => !/^(https:|#)/.test(link))).toEqual([]);
});
