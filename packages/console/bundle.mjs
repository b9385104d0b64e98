// Bundles the browser's part of the page into dist/assets: one script and one style sheet, minified. Part of the
// package's build, so that a project that mounts the page needs no build step. The tests bundle the sources as well.
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const folder = fileURLToPath(new URL(".", import.meta.url));
const target = join(folder, "dist/assets");

const { outputFiles } = await build({
  absWorkingDir: folder,
  entryPoints: { page: "assets/page.tsx", "page-style": "assets/page.css" },
  outdir: target,
  bundle: true,
  minify: true,
  format: "esm",
  target: ["chrome109", "firefox115", "safari16.4"],
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  logLevel: "error",
  write: false,
});

mkdirSync(target, { recursive: true });
const html = { path: join(target, "page.html"), contents: readFileSync(join(folder, "assets/page.html")) };
for (const { path, contents } of [...outputFiles, html]) {
  const file = path.replace("page-style.css", "page.css");
  // Tests of another run may be reading the file: the new one replaces it as a whole.
  writeFileSync(`${file}.${process.pid}`, contents);
  renameSync(`${file}.${process.pid}`, file);
  const [bytes, zipped] = [contents.length, gzipSync(contents).length];
  if (process.argv.includes("--sizes")) process.stdout.write(`${file}: ${bytes} bytes, ${zipped} with gzip\n`);
}
