import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));
const tracked = execFileSync("git", ["ls-files", "*.md"], { cwd: root, encoding: "utf8" }).trim().split("\n");
const documents = tracked.filter((file) => existsSync(join(root, file)));

function linksOf(file: string): string[] {
  const text = readFileSync(join(root, file), "utf8").replaceAll(/```[^]*?```/g, "");
  return [...text.matchAll(/\]\(([^)\s]+)\)/g)].map((match) => match[1] ?? "");
}

function anchorsOf(file: string): string[] {
  const headings = readFileSync(file, "utf8").matchAll(/^#+ (.*)$/gm);
  return [...headings].map((match) =>
    (match[1] ?? "")
      .toLowerCase()
      .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
      .replaceAll(" ", "-"),
  );
}

function isBroken(link: string, from: string): boolean {
  if (/^[a-z]+:/.test(link)) return false;
  const [path = "", anchor] = link.split("#");
  const target = path === "" ? join(root, from) : join(root, dirname(from), path);
  if (!existsSync(target)) return true;
  return anchor !== undefined && target.endsWith(".md") && !anchorsOf(target).includes(anchor);
}

it.each(documents)("links in %s lead somewhere", (file) => {
  expect(linksOf(file).filter((link) => isBroken(link, file))).toEqual([]);
});

it.each(["redlock-core", "leader", "workers"])("@x/%s has a README of its own, listed for the package", (name) => {
  const folder = join(root, "packages", name);
  const { files } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as { files: string[] };
  expect(files).toContain("README.md");
  expect(existsSync(join(folder, "README.md"))).toBe(true);
});
