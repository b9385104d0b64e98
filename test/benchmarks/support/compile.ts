/**
 * Bundles a child's TypeScript with the sources of the packages into plain JavaScript, as it would be published. The
 * closures that tsx generates cost three times as much as the original closures.
 */
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const manifest = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
  readonly dependencies: Readonly<Record<string, string>>;
};

/** Resolves with the file to run. */
export async function compileChild(source: URL, name: string): Promise<URL> {
  const output = new URL(`../../dist/benchmarks/${name}-${basename(source.pathname, ".ts")}.mjs`, import.meta.url);
  await build({
    entryPoints: [fileURLToPath(source)],
    outfile: fileURLToPath(output),
    bundle: true,
    format: "esm",
    platform: "node",
    target: "node20",
    tsconfig: fileURLToPath(new URL("../../../tsconfig.check.json", import.meta.url)),
    external: Object.keys(manifest.dependencies).filter((dependency) => !dependency.startsWith("@x/")),
    logLevel: "error",
  });
  return output;
}
