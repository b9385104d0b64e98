// Bundles the browser's part of the page into dist/assets: a script for the first view, a script with the parts that load
// later, and a style sheet. test/bundle.test.ts limits their sizes. Bundling is part of the package's build, so that a
// project that mounts the page needs no build step. The tests bundle the sources as well.
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const folder = fileURLToPath(new URL(".", import.meta.url));
const target = join(folder, "dist/assets");

/**
 * Lets the later file depend on the whole first one, so that both parts of the page together are two files: esbuild
 * would put what both need into a third one.
 */
const inTwoFiles = {
  name: "in-two-files",
  setup(builder) {
    builder.onLoad({ filter: /\/assets\/parts\/details\.tsx$/ }, ({ path }) => ({
      contents: `import "../page.tsx";\n${readFileSync(path, "utf8")}`,
      loader: "tsx",
    }));
  },
};

const { outputFiles } = await build({
  absWorkingDir: folder,
  entryPoints: { page: "assets/page.tsx", "page-style": "assets/page.css" },
  outdir: target,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["chrome109", "firefox115", "safari16.4"],
  // Smaller than what assets/tsconfig.json says, which is for the compiler.
  tsconfigRaw: { compilerOptions: { jsx: "react", jsxFactory: "jsxElement", jsxFragmentFactory: "JsxFragment" } },
  inject: ["assets/jsx.ts"],
  splitting: true,
  chunkNames: "[name]",
  plugins: [inTwoFiles],
  legalComments: "none",
  logLevel: "error",
  write: false,
});

/**
 * Shortens the variables of a minified style sheet. A variable that has one value, in both themes, is written out, and
 * the others get short names.
 */
function withShortVariables(css) {
  const values = new Map();
  for (const [, name, given] of css.matchAll(/(--[\w-]+):([^;}]+)/g)) {
    const value = given.trim();
    values.set(name, values.has(name) && values.get(name) !== value ? undefined : value);
  }
  const uses = (name) => css.split(`var(${name})`).length - 1;
  const isWritten = ([name, value]) =>
    value !== undefined && uses(name) * value.length < uses(name) * "var(--a)".length + value.length;
  const written = new Map([...values].filter(isWritten));
  const kept = [...values.keys()].filter((name) => !written.has(name));
  const short = new Map(kept.map((name, at) => [name, `--${at.toString(36)}`]));
  return css
    .replaceAll(/(--[\w-]+):[^;}]+;?/g, (definition, name) => (written.has(name) ? "" : definition))
    .replaceAll(/var\((--[\w-]+)\)/g, (use, name) => written.get(name) ?? use)
    .replaceAll(/(--[\w-]+)(: ?)?/g, (_, name, colon) => `${short.get(name) ?? name}${colon === undefined ? "" : ":"}`);
}

/** The files by name. */
const files = new Map(
  outputFiles.map(({ path, text }) => [
    basename(path).replace("page-style.css", "page.css"),
    // What both parts need is the first one.
    text.replaceAll(/(["'])\.\/chunk\.js\1/g, '"./page.js"'),
  ]),
);
const first = files.get("chunk.js");
if (first === undefined || files.get("page.js")?.trim() !== 'import"./page.js";')
  throw new Error("the first part must be one file");
files.set("page.js", first);
files.delete("chunk.js");
files.set("page.css", withShortVariables(files.get("page.css") ?? ""));
files.set("page.html", readFileSync(join(folder, "assets/page.html"), "utf8"));

mkdirSync(target, { recursive: true });
for (const [name, contents] of files) {
  const file = join(target, name);
  // Tests of another run may be reading the file: the new one replaces it as a whole.
  writeFileSync(`${file}.${process.pid}`, contents);
  renameSync(`${file}.${process.pid}`, file);
}
