import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, it } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));
const packages = readdirSync(join(root, "packages"));
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
  return [...text.matchAll(/\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)$/gm)].map((match) => match[1] ?? match[2] ?? "");
}

/** Returns the names in brackets (`[text][name]`) without a line `[name]: address`. */
function unknownReferences(file: string): string[] {
  const text = readFileSync(join(root, file), "utf8").replaceAll(/```[^]*?```|`[^`\n]*`/g, "");
  const used = [...text.matchAll(/\]\[([^\]]+)\]/g)].map((match) => match[1] ?? "");
  return used.filter((name) => !text.includes(`\n[${name}]: `));
}

const { repository } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { repository: { url: string } };
const repositoryUrl = repository.url.replace(/^git\+|\.git$/g, "");

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
  const [, owner, ours] = /^(https:\/\/github\.com\/[^/]+\/[^/]+)\/(?:blob|tree)\/main\/(.+)$/.exec(link) ?? [];
  // Links of a package's README to the main branch of the repository are links to this checkout.
  if (owner !== undefined && owner !== repositoryUrl) return from.startsWith("packages/");
  if (ours === undefined && /^[a-z]+:/.test(link)) return false;
  // npm also shows a package's README, without the files next to it.
  if (ours === undefined && !link.startsWith("#") && /^packages\/[^/]+\/README\.md$/.test(from)) return true;
  const [path = "", anchor] = (ours ?? link).split("#");
  const folder = ours === undefined ? dirname(from) : "";
  const target = path === "" ? join(root, from) : join(root, folder, path);
  if (!existsSync(target)) return true;
  return anchor !== undefined && target.endsWith(".md") && !anchorsOf(target).includes(anchor);
}

it.each(documents)("links in %s lead to existing targets", (file) => {
  expect(linksOf(file).filter((link) => isBroken(link, file))).toEqual([]);
  expect(unknownReferences(file)).toEqual([]);
});

const readmes = ["README.md", ...packages.map((name) => `packages/${name}/README.md`)];

it.each(readmes)("%s can be read in one sitting, with at most 150 lines", (file) => {
  expect(readFileSync(join(root, file), "utf8").trimEnd().split("\n").length).toBeLessThanOrEqual(150);
});

/** Lines that no formatter can break: tables, headings, and lines with an address. */
const UNBREAKABLE = /^\s*\||https:\/\/|^#|^description: /;

// A program writes the report of the benchmarks.
const written = documents.filter((file) => !file.startsWith("docs/benchmarks/"));

it.each(written)("the prose of %s fits 120 columns", (file) => {
  const lines = readFileSync(join(root, file), "utf8")
    .replaceAll(/```[^]*?```/g, "")
    .split("\n");
  expect(lines.filter((line) => line.length > 120 && !UNBREAKABLE.test(line))).toEqual([]);
});

const guides = documents.filter((file) => file.startsWith("docs/") && file !== "docs/README.md");

/** Returns the documents that a document links to. */
function linkedFrom(file: string): readonly string[] {
  return linksOf(file).map((link) => {
    const [path = ""] = link.split("#");
    return path.startsWith(repositoryUrl) ? path.replace(/^.*\/blob\/main\//, "") : join(dirname(file), path);
  });
}

it("every guide can be reached from docs/README.md", () => {
  const reached = new Set(["docs/README.md"]);
  for (const file of reached) for (const each of linkedFrom(file)) if (documents.includes(each)) reached.add(each);
  expect(guides.filter((file) => !reached.has(file))).toEqual([]);
});

/** Returns the prose: of a document everything except code blocks, of a source its comments. */
function proseOf(file: string): string {
  const text = readFileSync(join(root, file), "utf8");
  if (file.endsWith(".md")) return text.replaceAll(/```[^]*?```/g, "");
  return [...text.matchAll(/\/\*\*?[^]*?\*\/|(?<=^|\s)\/\/ .*$/gm)].join("\n");
}

/** Matches names of files, and paths in folders of notes that do not belong to the repository. */
const NAMED_PATH =
  /(?<![\w/:.@*<-])(?:(?:research|shared|design)(?:\/|\.md|\.? ?§)[^\s),;`]*|[\w@-][\w@./-]*\.(?:ts|mjs|cjs|md|csv|yml|svg))\b/g;

/** A path may be written relative to any folder, so a tracked file that ends with the path is enough. */
function isTracked(path: string): boolean {
  return tracked.some((file) => file === path || file.endsWith(`/${path}`));
}

it("comments and documents name only files of the repository", () => {
  const dangling = tracked
    .filter((file) => /\.(md|ts|mjs)$/.test(file))
    .flatMap((file) => {
      const named = [...proseOf(file).matchAll(NAMED_PATH)].map(([path]) => path.replace(/^(\.\.?\/)+/, ""));
      return named.filter((path) => !isTracked(path)).map((path) => `${file}: ${path}`);
    });
  expect(dangling).toEqual([]);
});

it.each(packages)("@x/%s has its own README, which the package lists", (name) => {
  const folder = join(root, "packages", name);
  const { files } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as { files: string[] };
  expect(files).toContain("README.md");
  expect(existsSync(join(folder, "README.md"))).toBe(true);
});

/** A skill describes a package for agents, and begins with the situations in which to read it. */
it.each(packages)("@x/%s has a packed skill that says when to use it", (name) => {
  const folder = join(root, "packages", name);
  const [, front = ""] = /^---\n([^]*?)\n---\n/.exec(readFileSync(join(folder, "SKILL.md"), "utf8")) ?? [];
  const fields = new Map(front.split("\n").map((line) => [line.split(":")[0], line.slice(line.indexOf(":") + 2)]));
  expect(fields.get("name")).toBe(name);
  expect(fields.get("description")).toMatch(/ Use when /);
  expect(String(fields.get("description")).length).toBeLessThanOrEqual(1_024);
  const { files } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8")) as { files: string[] };
  expect(files).toContain("SKILL.md");
});

/** Returns the names between backticks in a text, including names of calls. */
function namesIn(text: string): ReadonlySet<string> {
  const codes = [...text.replaceAll(/```[^]*?```/g, "").matchAll(/`([^`]+)`/g)].map(([, code = ""]) => code);
  return new Set(codes.map((code) => code.replace(/\(.*$/, "")));
}

it("the skill of @x/otel names only existing metrics", () => {
  const skill = readFileSync(join(root, "packages/otel/SKILL.md"), "utf8");
  const metrics = [...namesIn(skill)].filter((name) => name.startsWith("x."));
  const sources = tracked
    .filter((file) => file.startsWith("packages/otel/src/"))
    .map((file) => readFileSync(join(root, file), "utf8"))
    .join("\n");
  expect(metrics.length).toBeGreaterThan(3);
  expect(metrics.filter((name) => !sources.includes(`"${name}"`))).toEqual([]);
});

it("docs/protocol.md names only members of a Redlock and of a lock", () => {
  const read = (file: string): string => readFileSync(join(root, "packages/redlock-core/src", file), "utf8");
  const [, lease = ""] = /^export interface Lease \{\n([^]*?)^\}/m.exec(read("lock/lock.ts")) ?? [];
  const [, protocol = ""] =
    /^export class RedlockProtocol \{\n([^]*?)^\}/m.exec(read("redlock/redlock-protocol.ts")) ?? [];
  const membersOf = (body: string): ReadonlySet<string> =>
    new Set([...body.matchAll(/^ {2}(?:readonly |get |async )?([a-z]\w*)(?=[(:?<])/gm)].map(([, name = ""]) => name));
  const [ofRedlock = "", ofLock = ""] = readFileSync(join(root, "docs/protocol.md"), "utf8").split(/^## /m).slice(1);
  const rowsOf = (section: string): readonly string[] =>
    [...section.matchAll(/^\| ((?:`[^|]*)+) \|/gm)].flatMap(([, cell = ""]) =>
      [...cell.matchAll(/`(\w+)/g)].map(([, name = ""]) => name),
    );
  for (const [section, members] of [
    [ofRedlock, membersOf(protocol)],
    [ofLock, membersOf(lease)],
  ] as const) {
    expect(rowsOf(section).length).toBeGreaterThan(5);
    expect(rowsOf(section).filter((name) => !members.has(name))).toEqual([]);
  }
});
