import { existsSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";

/** The environment variable that names the folder in which the test run has bundled its programs. */
export const BUNDLES = "X_TEST_BUNDLES";

const root = fileURLToPath(new URL("../../../", import.meta.url));

/** The bundle of a program, if the test run has made one. */
export function bundleOf(file: string): string | undefined {
  const folder = process.env[BUNDLES];
  if (folder === undefined) return undefined;
  const bundle = join(folder, relative(root, file)).replace(/\.ts$/, ".mjs");
  return existsSync(bundle) ? bundle : undefined;
}
