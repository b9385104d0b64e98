/** Pure: what a link of a document in the repository is on the site. */
import { posix } from "node:path";

/** The page of the site that a file of the repository is, without `.md`; undefined if it is none. */
export function pageOf(file) {
  const [, guide] = /^docs\/(.+)\.md$/.exec(file) ?? [];
  const [, name] = /^packages\/([^/]+)\/README\.md$/.exec(file) ?? [];
  return guide ?? (name === undefined ? undefined : `packages/${name}`);
}

/** Rewrites a document's links: to pages of the site where there is one, else to the repository. Code is left alone. */
export function rewriteLinks(text, { file, repository, pages }) {
  const page = pageOf(file);
  const rewritten = (link) => {
    const [, ours] = link.startsWith(`${repository}/`) ? (/\/(?:blob|tree)\/main\/(.+)$/.exec(link) ?? []) : [];
    if (ours === undefined && (/^[a-z]+:/.test(link) || link.startsWith("#"))) return link;
    const [path = "", anchor] = (ours ?? link).split("#");
    const target = posix
      .normalize(ours === undefined ? posix.join(posix.dirname(file), path) : path)
      .replace(/\/$/, "");
    const hash = anchor === undefined ? "" : `#${anchor}`;
    const there = [target, `${target}/README.md`].map(pageOf).find((each) => each !== undefined && pages.has(each));
    if (there !== undefined) return `${posix.relative(posix.dirname(`/${page}`), `/${there}`)}.md${hash}`;
    if (/^docs\/.*\.(svg|png|webp)$/.test(target)) return link;
    return `${repository}/blob/main/${target}${hash}`;
  };
  return text
    .split(/(^```[^]*?^```)/m)
    .map((part, index) =>
      index % 2 === 1
        ? part
        : part
            .replaceAll(/\]\(([^)\s]+)\)/g, (_all, link) => `](${rewritten(link)})`)
            .replaceAll(/^(\[[^\]]+\]: )(\S+)$/gm, (_all, name, link) => name + rewritten(link)),
    )
    .join("");
}

/** The anchor of a heading, as GitHub makes it: guides are read there, too. */
export function slugOf(heading) {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");
}

/**
 * The reference's plugin numbers some headings that are there once: a link to the second of one goes to the only one.
 */
export function withoutNumbers(text) {
  const slugs = [...text.matchAll(/^#+ (.*)$/gm)].map(([, heading]) => slugOf(heading));
  return text.replaceAll(/\]\(#([\w-]+)-1\)/g, (link, slug) =>
    slugs.filter((each) => each === slug).length === 1 && !slugs.includes(`${slug}-1`) ? `](#${slug})` : link,
  );
}

/** The first heading of a page, and its first sentences as one line. */
export function summaryOf(text) {
  const plain = text
    .replace(/^---\n[^]*?\n---\n/, "")
    .replaceAll(/```[^]*?```/g, "")
    .replaceAll(/\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])/g, "$1");
  const [, title = ""] = /^# (.+)$/m.exec(plain) ?? [];
  const paragraph = plain.split(/\n{2,}/).find((each) => /^[A-Z`"@]/.test(each.trim()) && !each.startsWith("#")) ?? "";
  return { title: title.replaceAll(/[\\`]/g, ""), summary: paragraph.trim().replaceAll(/\s+/g, " ") };
}
