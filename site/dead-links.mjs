/**
 * The links of a built site that lead nowhere: to a page, a file or a heading that there is not, or to a file of the repository that
 * there is not. VitePress itself knows of pages only.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join, posix } from "node:path";

export function deadLinks(folder, { repository, root }) {
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).map((file) => file.replaceAll("\\", "/"));
  const known = new Set(files);
  const html = new Map(
    files.filter((file) => file.endsWith(".html")).map((file) => [file, readFileSync(join(folder, file), "utf8")]),
  );
  const headings = new Map([...html].map(([file, text]) => [file, new Set(valuesOf(text, "id"))]));
  const isDead = (page, link) => {
    if (link.startsWith(`${repository}/blob/main/`)) {
      return !existsSync(join(root, decodeURI(link.slice(`${repository}/blob/main/`.length).split("#")[0])));
    }
    if (/^[a-z]+:|^\/\//.test(link)) return false;
    const [path, heading] = decodeURI(link).split("#");
    const target = path === "" ? page : posix.join("/", posix.dirname(page), path.startsWith("/") ? "/" : "", path);
    const there = path.startsWith("/") ? path.slice(1) : target.replace(/^\//, "");
    const file = [there, `${there}.html`, posix.join(there, "index.html")].find((each) => known.has(each));
    if (file === undefined) return true;
    return heading !== undefined && heading !== "" && headings.get(file)?.has(heading) !== true;
  };
  return [...html].flatMap(([page, text]) =>
    [...new Set([...valuesOf(text, "href"), ...valuesOf(text, "src")])]
      .filter((link) => isDead(page, link))
      .map((link) => ({ page, link })),
  );
}

function valuesOf(html, attribute) {
  const values = html.matchAll(new RegExp(`\\s${attribute}="([^"]*)"`, "g"));
  return [...values].map(([, value]) =>
    value.replaceAll("&amp;", "&").replaceAll("&#x27;", "'").replaceAll("&quot;", '"'),
  );
}
