/**
 * Bundles the programs that tests start as processes, once before all tests: a bundle starts in a third of the time that tsx needs.
 * `spawnChild` finds them by the environment.
 */
import { mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build, type Plugin } from "esbuild";
import { BUNDLES } from "./src/bundles.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));

export async function setup(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "x-children-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  // Where the bundles look for what is not bundled.
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
  await build({
    entryPoints: programs(),
    outbase: root,
    outdir: folder,
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "node20",
    packages: "external",
    // The renewal thread tells errors by the names of their classes.
    keepNames: true,
    tsconfig: join(root, "tsconfig.check.json"),
    plugins: [ownAddress(folder)],
    logLevel: "error",
  });
  process.env[BUNDLES] = folder;
}

/** What tests start: programs in folders of that name, the processes of the departure boards, and the renewal thread. */
const program =
  /\/(children|processes)\/[^/]+\.ts$|\/departure-boards\/src\/(main|scheduler|worker)\.ts$|\/renewal-thread\.ts$/;

function programs(): string[] {
  const files = (folder: string): readonly string[] =>
    readdirSync(join(root, folder), { recursive: true, encoding: "utf8" }).map((file) => join(root, folder, file));
  return ["packages", "test", "examples"]
    .flatMap(files)
    .filter((file) => program.test(file) && !/\/(node_modules|dist)\//.test(file));
}

/** A source finds the files beside it, though its text is elsewhere; the one that names the thread finds the thread's bundle. */
function ownAddress(folder: string): Plugin {
  const addressOf = (path: string): string =>
    path.endsWith("/thread-url.ts") ? join(folder, relative(root, path)).replace(/\.ts$/, ".js") : path;
  return {
    name: "own-address",
    setup(builder) {
      builder.onLoad({ filter: /\.ts$/ }, async ({ path }) => {
        const address = JSON.stringify(pathToFileURL(addressOf(path)).href);
        return { contents: (await readFile(path, "utf8")).replaceAll("import.meta.url", address), loader: "ts" };
      });
    },
  };
}
