/**
 * Bundles the programs that tests start as processes, once before all tests: a bundle starts in a third of the time that tsx needs.
 * `spawnChild` finds them by the environment.
 */
import { execFile } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { build, type Plugin } from "esbuild";
import { chosenBullMQ } from "./bullmq-release.ts";
import { BUNDLES } from "./src/bundles.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));

export async function setup(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "x-children-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  // Where the bundles look for what is not bundled.
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
  // The live page's script and style, which the page serves also when its own code runs from the sources.
  const page = promisify(execFile)(process.execPath, [join(root, "packages/console/bundle.mjs")]);
  await build({
    entryPoints: programs(),
    outbase: root,
    outdir: folder,
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    target: "node20",
    banner: {
      js: 'import { createRequire as requireOf } from "node:module"; const require = requireOf(import.meta.url);',
    },
    // The renewal thread tells errors by the names of their classes.
    keepNames: true,
    tsconfig: join(root, "tsconfig.check.json"),
    ...(chosenBullMQ === undefined ? {} : { alias: { bullmq: chosenBullMQ } }),
    plugins: [ownAddress(folder), externalPackages],
    logLevel: "error",
  });
  await page;
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

/** Packages of which a process needs all: in the bundle they load in a fraction of the time that their hundred files take. */
const bundled = /^(bullmq|ioredis|croner)$/;

/** What these need to run is no text; BullMQ loads them only where they are used. */
const native = /^(msgpackr-extract|@valkey\/valkey-glide)$/;

/** Every other package stays where it is; what a bundled one imports goes with it, unless it is optional or looks for files beside it. */
const externalPackages: Plugin = {
  name: "external-packages",
  setup(builder) {
    // What is loaded late has one export in a bundle, if it is CommonJS, unless a module names them.
    builder.onResolve({ filter: /^ioredis$/ }, ({ path, kind }) =>
      kind === "dynamic-import" ? { path, namespace: "named" } : undefined,
    );
    builder.onResolve({ filter: /^[^./]/ }, ({ path, importer, kind }) => {
      if (kind === "entry-point" || path.startsWith("@x/") || bundled.test(path)) return undefined;
      const isInPackage = importer.includes("/node_modules/");
      return isInPackage && !native.test(path) ? undefined : { path, external: true };
    });
    builder.onLoad({ filter: /^ioredis$/, namespace: "named" }, () => ({
      contents: 'export { Cluster, Redis } from "ioredis";',
      resolveDir: root,
    }));
  },
};

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
