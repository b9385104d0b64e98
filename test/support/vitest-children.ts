/**
 * Bundles the programs that tests start as processes, once before all tests. A bundle starts in a third of the time
 * that tsx needs. `spawnChild` finds the bundles by an environment variable.
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
  // The bundles look here for packages that are not bundled.
  symlinkSync(join(root, "node_modules"), join(folder, "node_modules"));
  writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
  // The script and style of the live page, which the page serves even when its own code runs from the sources.
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
    // The renewal thread identifies errors by the names of their classes.
    keepNames: true,
    tsconfig: join(root, "tsconfig.check.json"),
    ...(chosenBullMQ === undefined ? {} : { alias: { bullmq: chosenBullMQ } }),
    plugins: [ownAddress(folder), externalPackages],
    logLevel: "error",
  });
  await page;
  process.env[BUNDLES] = folder;
}

/**
 * The programs that tests start: files in folders named `children`, the processes of the departure boards, and the
 * renewal thread.
 */
const program =
  /\/(children|processes)\/[^/]+\.ts$|\/departure-boards\/src\/(main|scheduler|worker)\.ts$|\/renewal-thread\.ts$/;

function programs(): string[] {
  const files = (folder: string): readonly string[] =>
    readdirSync(join(root, folder), { recursive: true, encoding: "utf8" }).map((file) => join(root, folder, file));
  return ["packages", "test", "examples"]
    .flatMap(files)
    .filter((file) => program.test(file) && !/\/(node_modules|dist)\//.test(file));
}

/**
 * Packages that processes load completely. In a bundle they load in a fraction of the time that their hundred files
 * take.
 */
const bundled = /^(bullmq|ioredis|croner)$/;

/** These packages consist of more than text. BullMQ only loads them when it uses them. */
const native = /^(msgpackr-extract|@valkey\/valkey-glide)$/;

/**
 * All other packages are not bundled. The imports of a bundled package are bundled with it, unless an import is
 * optional or reads files next to itself.
 */
const externalPackages: Plugin = {
  name: "external-packages",
  setup(builder) {
    // In a bundle, a CommonJS module that is loaded late has one export, unless a module names its exports.
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

/**
 * A source finds the files next to it, although its text is in the bundle. The source that names the thread finds the
 * thread's bundle.
 */
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
