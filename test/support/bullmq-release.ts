/**
 * The BullMQ release of tests and their programs. `X_BULLMQ=5.66.2` chooses a release that `npm run bullmq` has
 * installed. Undefined for the release of the lock file.
 */
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

const releases = new URL("../../node_modules/.cache/bullmq/", import.meta.url);

/** Returns the folder of a release, whether or not the release is installed. */
export function folderOfRelease(version: string): string {
  return fileURLToPath(new URL(`${version}/`, releases));
}

function entryOf(version: string): string {
  const entry = `${folderOfRelease(version)}node_modules/bullmq/dist/cjs/index.js`;
  if (existsSync(entry)) return entry;
  throw new Error(`BullMQ ${version} is not installed: npm run bullmq -- ${version}`);
}

const version = process.env["X_BULLMQ"];

export const chosenBullMQ: string | undefined = version === undefined ? undefined : entryOf(version);
