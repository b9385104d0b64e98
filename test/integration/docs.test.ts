import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));
const listed = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard"], {
  cwd: root,
  encoding: "utf8",
})
  .trim()
  .split("\n");
const tracked = listed.filter((file) => existsSync(join(root, file)));
const documents = tracked.filter((file) => file.endsWith(".md"));

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

/** Prose: of a document all but its code blocks, of a source its comments. */
function proseOf(file: string): string {
  const text = readFileSync(join(root, file), "utf8");
  if (file.endsWith(".md")) return text.replaceAll(/```[^]*?```/g, "");
  return [...text.matchAll(/\/\*\*?[^]*?\*\/|(?<=^|\s)\/\/ .*$/gm)].join("\n");
}

/** Names of files, and anything in a folder of notes that is not part of the repository. */
const NAMED_PATH =
  /(?<![\w/:.@*<-])(?:(?:research|shared|design)(?:\/|\.md|\.? ?§)[^\s),;`]*|[\w@-][\w@./-]*\.(?:ts|mjs|cjs|md|csv|yml|svg))\b/g;

/** A path may be written from anywhere in the repository, so a tracked file that ends with it is enough. */
function isTracked(path: string): boolean {
  return tracked.some((file) => file === path || file.endsWith(`/${path}`));
}

it("names no file, in a comment or a document, that is not in the repository", () => {
  const dangling = tracked
    .filter((file) => /\.(md|ts|mjs)$/.test(file))
    .flatMap((file) => {
      const named = [...proseOf(file).matchAll(NAMED_PATH)].map(([path]) => path.replace(/^(\.\.?\/)+/, ""));
      return named.filter((path) => !isTracked(path)).map((path) => `${file}: ${path}`);
    });
  expect(dangling).toEqual([]);
});

it.each(["redlock-core", "leader", "workers"])("@x/%s has a README of its own, listed for the package", (name) => {
  const folder = join(root, "packages", name);
  const { files } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as { files: string[] };
  expect(files).toContain("README.md");
  expect(existsSync(join(folder, "README.md"))).toBe(true);
});
