/** Finds the BullMQ of a project and of this console. */
import { realpathSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";

/**
 * Returns the folder of the BullMQ that a project uses, if it is not the one that this console uses. Undefined if both
 * use the same, or the project uses none.
 */
export function installedElsewhere(project: string): string | undefined {
  const [own, theirs] = [import.meta.url, join(project, "package.json")].map(folderOf);
  return theirs === undefined || theirs === own ? undefined : theirs;
}

/** Returns the version of the BullMQ that this console uses. */
export function installedVersion(): string {
  const { version } = createRequire(import.meta.url)("bullmq/package.json") as { readonly version: string };
  return version;
}

function folderOf(file: string): string | undefined {
  try {
    return dirname(realpathSync(createRequire(file).resolve("bullmq/package.json")));
  } catch {
    return undefined;
  }
}
