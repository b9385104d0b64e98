import { existsSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";

/** The environment variable with the folder in which the test run has bundled its programs. */
export const BUNDLES = "X_TEST_BUNDLES";

const root = fileURLToPath(new URL("../../../", import.meta.url));

/** Returns the bundle of a program, if the test run has made one. */
export function bundleOf(file: string): string | undefined {
  const folder = process.env[BUNDLES];
  if (folder === undefined) return undefined;
  const bundle = join(folder, relative(root, file)).replace(/\.ts$/, ".js");
  return existsSync(bundle) ? bundle : undefined;
}

/**
 * Returns the address of a program that Node.js runs without a loader for TypeScript, as threads need. Outside of a
 * test run, this is the source.
 */
export function programUrl(source: URL): URL {
  const bundle = bundleOf(fileURLToPath(source));
  return bundle === undefined ? source : pathToFileURL(bundle);
}
