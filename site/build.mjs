/**
 * Builds the site: gathers the guides, the packages' READMEs and the reference from the docstrings into `.content`, and lets
 * VitePress make pages of them. With `--serve` it serves them while they are edited. VitePress fails on a dead link.
 */
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, watch, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { Application, Comment, Converter, ReflectionKind } from "typedoc";
import { build, createServer } from "vitepress";
import { deadLinks } from "./dead-links.mjs";
import { home, homeText } from "./home.mjs";
import { pageOf, rewriteLinks, summaryOf, withoutNumbers } from "./links.mjs";
import { entries, main } from "./reference.mjs";
import { sidebarOf } from "./sidebar.mjs";

const site = fileURLToPath(new URL("./", import.meta.url));
const root = join(site, "..");
const content = join(site, ".content");
const repository = JSON.parse(readFileSync(join(root, "package.json"), "utf8")).homepage.replace(/#.*$/, "");
const isServed = process.argv.includes("--serve");

rmSync(content, { recursive: true, force: true });
mkdirSync(join(content, "public"), { recursive: true });
const pages = gather();
await writeReference();
writeTexts();
copyFileSync(createRequire(import.meta.url).resolve("@mermaid-js/tiny"), join(content, "public", "mermaid.js"));

if (isServed) {
  const server = await createServer(site, { port: 5173 });
  await server.listen();
  server.printUrls();
  watch(join(root, "docs"), { recursive: true }, gather);
} else {
  await build(site);
  const dead = deadLinks(join(site, "dist"), { repository, root });
  for (const { page, link } of dead) process.stderr.write(`dead link in ${page}: ${link}\n`);
  if (dead.length > 0) process.exitCode = 1;
}

/** Guides and READMEs, with the links that they have on the site; returns their pages. */
function gather() {
  const guides = readdirSync(join(root, "docs"), { recursive: true, encoding: "utf8" }).map((file) => `docs/${file}`);
  const readmes = readdirSync(join(root, "packages"))
    .map((name) => `packages/${name}/README.md`)
    .filter((file) => existsSync(join(root, file)));
  const files = [...guides, ...readmes].map((file) => file.replaceAll("\\", "/"));
  const pages = new Set(files.map(pageOf).filter((page) => page !== undefined));
  for (const file of files) {
    const page = pageOf(file);
    if (page !== undefined) {
      write(`${page}.md`, rewriteLinks(readFileSync(join(root, file), "utf8"), { file, repository, pages }));
    } else if (/\.(svg|png|webp)$/.test(file)) {
      const target = join(content, file.replace(/^docs\//, ""));
      mkdirSync(dirname(target), { recursive: true });
      copyFileSync(join(root, file), target);
    }
  }
  const text = homeText.replace("REPOSITORY", repository);
  write("index.md", `---\n${JSON.stringify(home)}\n---\n${text}`);
  return pages;
}

function wordsOf(text) {
  return text.trim().split(/\s+/).join(" ");
}

/** One page for each entry of a package, and one for each of its classes and functions, from the docstrings. */
async function writeReference() {
  const folder = join(content, ".entries");
  mkdirSync(folder, { recursive: true });
  const headers = new Set();
  const points = Object.entries(entries).map(([name, source]) => {
    const file = join(folder, `${name}.ts`);
    const [, header] = /^\/\*\*([^]*?)\*\//.exec(readFileSync(join(root, "packages", source), "utf8")) ?? [];
    const comment = header === undefined ? "" : `/**${header}\n * @module\n */\n`;
    if (header !== undefined) headers.add(wordsOf(header.replace(/^ \* ?/gm, "")));
    writeFileSync(file, `${comment}export * from "../../../packages/${source}";\n`);
    return file;
  });
  const application = await Application.bootstrapWithPlugins({
    plugin: ["typedoc-plugin-markdown"],
    entryPoints: points,
    tsconfig: join(site, "tsconfig.json"),
    basePath: folder,
    out: join(content, "reference"),
    name: "Reference",
    router: "member",
    membersWithOwnFile: ["Class", "Function"],
    entryFileName: "index",
    readme: "none",
    skipErrorChecking: true,
    excludePrivate: true,
    excludeInternal: true,
    // What a class of Node or BullMQ has is documented there.
    excludeExternals: true,
    hideBreadcrumbs: true,
    hidePageHeader: true,
    sanitizeComments: true,
    disableSources: true,
    parametersFormat: "table",
    interfacePropertiesFormat: "table",
    propertyMembersFormat: "table",
    logLevel: "Error",
    validation: false,
  });
  // It is done before the pages are put into groups, of which what goes would stay a part.
  application.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project }) => {
    // A namespace that merges with a class repeats the names of its types, and would get a folder of its own.
    for (const namespace of project.getReflectionsByKind(ReflectionKind.Namespace)) project.removeReflection(namespace);
    // What has no docstring of its own would have that of its entry, which stands on top of the page.
    for (const reflection of Object.values(project.reflections)) {
      if (reflection.kind === ReflectionKind.Module || reflection.comment === undefined) continue;
      if (headers.has(wordsOf(Comment.combineDisplayParts(reflection.comment.summary)))) delete reflection.comment;
    }
  });
  const project = await application.convert();
  if (project === undefined) throw new Error("the reference cannot be read from the sources");
  // Each page begins with what the package is for, and ends with its errors.
  const rank = ({ name }) => (main.has(name) ? 0 : name.endsWith("Error") ? 2 : 1);
  for (const { groups = [] } of project.children ?? [])
    for (const group of groups) group.children.sort((one, other) => rank(one) - rank(other));
  await application.generateOutputs(project);
  if (application.logger.hasErrors()) throw new Error("the reference cannot be written");
  for (const file of readdirSync(join(content, "reference"), { recursive: true, encoding: "utf8" })) {
    if (!file.endsWith(".md")) continue;
    write(`reference/${file}`, withoutNumbers(readFileSync(join(content, "reference", file), "utf8")));
  }
}

/** What a program reads: every page with what it is about, and all guides as one text. */
function writeTexts() {
  const sidebar = sidebarOf([...pages], (page) => summaryOf(read(`${page}.md`)).title);
  writeFileSync(join(content, "sidebar.json"), JSON.stringify(sidebar));
  const lines = ["# Locks, leaders and exclusive workers on Redis", ""];
  const whole = [];
  for (const { text, items } of sidebar) {
    lines.push(`## ${text}`, "");
    for (const { link } of items) {
      const page = read(`${link.slice(1)}.md`);
      const { title, summary } = summaryOf(page);
      lines.push(`- [${title}](${link}.html): ${summary}`);
      whole.push(page.trim(), "");
    }
    lines.push("");
  }
  lines.push(
    "## Reference",
    "",
    ...Object.keys(entries).map((name) => `- [${name}](/reference/${name}/index.html)`),
    "",
  );
  writeFileSync(join(content, "public", "llms.txt"), lines.join("\n"));
  writeFileSync(join(content, "public", "llms-full.txt"), whole.join("\n"));
}

function read(path) {
  return readFileSync(join(content, path), "utf8");
}

function write(path, text) {
  const file = join(content, path);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}
