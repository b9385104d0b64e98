import { readFileSync } from "node:fs";
import { expect, it } from "vitest";

/** `@x/node-redlock` is left out, because it has the names of the library that it replaces. */
const ENTRIES = [
  "redlock-core/src/index.ts",
  "redlock-core/src/kit.ts",
  "redlock-core/src/protocol.ts",
  "redlock-core/src/nodes/glide-node.ts",
  "leader/src/index.ts",
  "leader/src/node-cron.ts",
  "leader/src/scheduler/index.ts",
  "workers/src/index.ts",
  "workers/src/bull-board.ts",
  "workers/src/partitions/index.ts",
  "nestjs/src/index.ts",
  "semaphore/src/index.ts",
  "effects/src/index.ts",
  "console/src/index.ts",
  "console/src/page/index.ts",
  "otel/src/index.ts",
  "testing/src/index.ts",
];

function exportsOf(entry: string): readonly string[] {
  const text = readFileSync(new URL(`../../packages/${entry}`, import.meta.url), "utf8");
  return [...text.matchAll(/^export (?:type )?\{([^}]*)\}/gm)].flatMap(([, names = ""]) =>
    names
      .split(",")
      .map((name) => name.trim().replace(/^type /, ""))
      .filter((name) => name !== ""),
  );
}

it("no name is exported by two packages, or both for users and for sibling packages", () => {
  const names = ENTRIES.flatMap(exportsOf);
  expect(names.length).toBeGreaterThan(100);
  expect(names.filter((name, at) => names.indexOf(name) !== at)).toEqual([]);
});
