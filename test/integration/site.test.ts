/**
 * The parts that build the documentation's site from the guides. The site itself is built, and its links are checked,
 * outside of these tests.
 */
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { runInThisContext } from "node:vm";
import { temporaryFolder } from "@x/test-support";
import { expect, it } from "vitest";

interface Links {
  readonly pageOf: (file: string) => string | undefined;
  readonly rewriteLinks: (text: string, at: { file: string; repository: string; pages: ReadonlySet<string> }) => string;
  readonly summaryOf: (text: string) => { readonly title: string; readonly summary: string };
  readonly withoutNumbers: (text: string) => string;
}
interface Sidebar {
  readonly sidebarOf: (
    pages: readonly string[],
    titleOf: (page: string) => string,
  ) => readonly {
    readonly text: string;
    readonly items: readonly { readonly text: string; readonly link: string }[];
  }[];
}
interface DeadLinks {
  readonly deadLinks: (
    folder: string,
    at: { repository: string; root: string },
  ) => readonly { readonly page: string; readonly link: string }[];
}

const root = fileURLToPath(new URL("../../", import.meta.url));
const load = async (name: string): Promise<unknown> => await import(/* @vite-ignore */ join(root, "site", name));
const { pageOf, rewriteLinks, summaryOf, withoutNumbers } = (await load("links.mjs")) as Links;
const { sidebarOf } = (await load("sidebar.mjs")) as Sidebar;
const { deadLinks } = (await load("dead-links.mjs")) as DeadLinks;
const { entries } = (await load("reference.mjs")) as { readonly entries: Readonly<Record<string, string>> };

const sorted = (texts: readonly string[]): readonly string[] => [...texts].sort();
const repository = "https://github.com/x-coordination/x";
const files = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", "docs", "packages"], {
  cwd: root,
  encoding: "utf8",
});
const pages = files
  .trim()
  .split("\n")
  .map(pageOf)
  .filter((page) => page !== undefined);

it("links once to every guide and every package's README, but not to reports and pages for contributors", () => {
  const links = sidebarOf(pages, String).flatMap(({ items }) => items.map(({ link }) => link.slice(1)));
  expect(sorted(links)).toEqual(sorted(pages.filter((page) => !/^(?:benchmarks|contributing)\//.test(page))));
});

it("puts a new guide into the section of its folder, under the guide's title", () => {
  const sections = sidebarOf(["workers/new", "locks/from-somewhere", "news"], (page) => `title of ${page}`);
  const placed = sections.map(({ text, items }) => [text, items.at(-1)?.text] as const);
  expect(placed.filter(([, last]) => last?.startsWith("title of"))).toEqual([
    ["Coming from", "title of locks/from-somewhere"],
    ["Exclusive workers", "title of workers/new"],
    ["Around them", "title of news"],
  ]);
});

it("has a reference of every package's entries, except for entries without a promise of stability", () => {
  expect(entries).toMatchObject({
    "redlock-core": "redlock-core/src/index.ts",
    "node-redlock-v4": "node-redlock/src/v4.ts",
    "leader-scheduler": "leader/src/scheduler/index.ts",
    testing: "testing/src/index.ts",
  });
  expect(Object.keys(entries).filter((name) => /kit|protocol/.test(name))).toEqual([]);
  for (const source of Object.values(entries)) expect(existsSync(join(root, "packages", source))).toBe(true);
});

it.each([
  ["[a](options.md#ttl)", "[a](options.md#ttl)"],
  ["[a](../fencing.md)", "[a](../fencing.md)"],
  ["[a](../../packages/leader/README.md)", "[a](../packages/leader.md)"],
  ["[a](../../test/fencing)", `[a](${repository}/blob/main/test/fencing)`],
  [`[a](${repository}/blob/main/docs/locks/api.md#x)`, "[a](api.md#x)"],
  ["[a](https://redis.io)", "[a](https://redis.io)"],
  ["[a](#here)", "[a](#here)"],
  ["[a]: ../leader/term.md", "[a]: ../leader/term.md"],
  ["```ts\n[a](../x.md)\n```", "```ts\n[a](../x.md)\n```"],
])("turns the link %j of a guide into %j", (text, expected) => {
  const at = { file: "docs/locks/waiting.md", repository, pages: new Set(pages) };
  expect(rewriteLinks(text, at)).toBe(expected);
});

const pictures = execFileSync("git", ["grep", "-lI", "--untracked", "^```mermaid", "--", "*.md"], {
  cwd: root,
  encoding: "utf8",
})
  .trim()
  .split("\n")
  .flatMap((file) => {
    const blocks = readFileSync(join(root, file), "utf8").matchAll(/^```mermaid\n([^]*?)^```/gm);
    // Flowcharts cannot be read without a browser.
    return [...blocks]
      .filter(([, text = ""]) => !text.startsWith("flowchart"))
      .map(([, text = ""]) => ({ file, text }));
  });

it.each(pictures)("can draw the diagram of $file", async ({ text }) => {
  const bundle = createRequire(join(root, "site/build.mjs")).resolve("@mermaid-js/tiny");
  runInThisContext(readFileSync(bundle, "utf8"));
  const { mermaid } = globalThis as unknown as { readonly mermaid: { parse(text: string): Promise<unknown> } };
  await expect(mermaid.parse(text)).resolves.toMatchObject({ diagramType: expect.any(String) as unknown });
});

it("describes each page in one line", () => {
  expect(summaryOf("# The `x` page\n\n![a](b.svg)\n\nIt says\n[what](c.md) it says.\n\nMore.")).toEqual({
    title: "The x page",
    summary: "It says what it says.",
  });
});

it("leaves numbers in the reference's anchors only if a heading occurs twice", () => {
  expect(withoutNumbers("# A\n\n# B\n\n# B\n\n[a](#a-1) [b](#b-1)")).toBe("# A\n\n# B\n\n# B\n\n[a](#a) [b](#b-1)");
});

it("finds links to a missing page, heading or file of the repository", () => {
  const folder = mkdtempSync(join(temporaryFolder(), "site-"));
  mkdirSync(join(folder, "locks"));
  writeFileSync(join(folder, "index.html"), '<h1 id="top"></h1><a href="/locks/a.html#one"></a><a href="#top"></a>');
  const links = ["b.html", "#two", "../index.html", "../index.html#gone", `${repository}/blob/main/nothing.ts`];
  const dead = ["b.html", "#two", "../index.html#gone", `${repository}/blob/main/nothing.ts`];
  writeFileSync(
    join(folder, "locks/a.html"),
    `<h2 id="one"></h2>${[...links, `${repository}/blob/main/package.json`].map((link) => `<a href="${link}"></a>`).join("")}`,
  );
  const found = deadLinks(folder, { repository, root });
  expect(found.map(({ link }) => link)).toEqual(dead);
});
