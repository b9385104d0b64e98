/** The entries that the reference has a page for: all of the packages, but for those outside of the promises of a version number. */
import { readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const packages = fileURLToPath(new URL("../packages/", import.meta.url));

/** The page of each entry, by its source below `packages`. */
export const entries = Object.fromEntries(
  readdirSync(packages).flatMap((name) => {
    const { exports = {} } = JSON.parse(readFileSync(`${packages}${name}/package.json`, "utf8"));
    return Object.entries(exports)
      .filter(([entry, file]) => file.default !== undefined && !/kit|protocol/.test(entry))
      .map(([entry, file]) => [
        [name, ...entry.split("/").slice(1)].join("-"),
        file.default.replace("./dist/", `${name}/src/`).replace(/js$/, "ts"),
      ]);
  }),
);

/** The classes and functions that users of an entry begin with. Its page begins with them. */
export const main = new Set([
  "Redlock",
  "LeaderElection",
  "LeaderScheduler",
  "ExclusiveWorker",
  "PartitionedWorker",
  "Effects",
  "Semaphore",
  "createPage",
]);
