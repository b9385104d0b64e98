import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, it } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));
// Inside the repository, so that packages resolve. Every tool ignores `dist`.
const folder = join(root, "test", "dist", "snippets");
const documents = [
  "README.md",
  ...readdirSync(join(root, "packages")).flatMap((name) => [`packages/${name}/README.md`, `packages/${name}/SKILL.md`]),
  ...readdirSync(join(root, "docs"), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".md"))
    .map((file) => join("docs", file)),
];

afterAll(() => rmSync(folder, { recursive: true, force: true }));

// A snippet may use names that its surrounding text has introduced: unknown names and unused values are allowed, but
// not wrong members, options and types.
const forgiven = new Set(["TS2304", "TS2552", "TS7006", "TS7031", "TS18004", "TS2451", "TS6133", "TS2582"]);

/** Names that the guides use without declaring them. Their declarations let the compiler check members and options. */
const globals = `
  declare const redlock: import("@x/redlock-core").Redlock;
  declare const lock: import("@x/redlock-core").Lock;
  declare const election: import("@x/leader").LeaderElection;
  declare const term: import("@x/leader").LeaderTerm;
  declare const scheduler: import("@x/leader/scheduler").LeaderScheduler;
  declare const worker: import("@x/workers").ExclusiveWorker;
  declare const queue: import("@x/workers").ExclusiveQueue;
  declare const job: import("bullmq").Job;
  declare const redis: import("ioredis").Redis;
  declare const connection: import("bullmq").ConnectionOptions;
  declare const signal: AbortSignal;
  declare const semaphore: import("@x/semaphore").Semaphore;
  declare const effects: import("@x/effects").Effects;
  declare const pool: import("pg").Pool;
  declare const clock: import("@x/testing").VirtualClock;
  declare const nodes: readonly import("@x/testing").MemoryNode[];
  declare const memoryNodes: typeof import("@x/testing").memoryNodes;
  declare const Redlock: typeof import("@x/redlock-core").Redlock;
  declare const LeaderElection: typeof import("@x/leader").LeaderElection;
  declare const LeaderScheduler: typeof import("@x/leader/scheduler").LeaderScheduler;
  declare const ExclusiveWorker: typeof import("@x/workers").ExclusiveWorker;
  declare const OutboxRelay: typeof import("@x/effects").OutboxRelay;
  declare const Queue: typeof import("bullmq").Queue;
  declare const PartitionedQueue: typeof import("@x/workers/partitions").PartitionedQueue;
`;

function snippetsOf(document: string): string[] {
  const text = readFileSync(join(root, document), "utf8");
  return [...text.matchAll(/^```(?:ts|typescript)\n([^]*?)^```/gm)].map((match) => match[1] ?? "");
}

it("the code in the READMEs and guides compiles", { timeout: 120_000 }, () => {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  let count = 0;
  for (const document of documents) {
    for (const [index, snippet] of snippetsOf(document).entries()) {
      const name = `${document.replace(/\.md$/, "").replaceAll("/", "-")}-${index + 1}.ts`;
      writeFileSync(join(folder, name), `${snippet}\nexport {};\n`);
      count++;
    }
  }
  writeFileSync(join(folder, "globals.d.ts"), globals);
  writeFileSync(
    join(folder, "tsconfig.json"),
    JSON.stringify({
      extends: "../../../tsconfig.check.json",
      compilerOptions: {
        noImplicitAny: false,
        noUnusedLocals: false,
        noUnusedParameters: false,
        // The style of NestJS declares properties in the parameters of constructors.
        erasableSyntaxOnly: false,
      },
      include: ["*.ts"],
      exclude: [],
    }),
  );
  const { stdout } = spawnSync(join(root, "node_modules/.bin/tsc"), ["-p", folder, "--pretty", "false"], {
    encoding: "utf8",
    cwd: folder,
  });
  const errors = stdout.split("\n").filter((line) => {
    const code = /error (TS\d+):/.exec(line)?.[1];
    return code !== undefined && !forgiven.has(code);
  });
  expect(count).toBeGreaterThan(20);
  expect(errors).toEqual([]);
});
