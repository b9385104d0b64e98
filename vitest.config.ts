import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";
import { chosenBullMQ } from "./test/support/bullmq-release.ts";
import { LongestFirst } from "./test/support/longest-first.ts";

const source = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/**
 * Files that replace a module by another, which no other file may see. And those in which every turn of the loop counts,
 * or what V8 has learned of a function from other files.
 */
const OWN_PROCESS = [
  "packages/redlock-core/test/without-ioredis.test.ts",
  "packages/redlock-core/test/tracing.test.ts",
  "packages/workers/test/contract/*.test.ts",
  "packages/workers/test/lane-faults.test.ts",
  "test/simulation/**/*.test.ts",
  "test/pictures/*.test.ts",
  "test/proof/**/*.test.ts",
];

const shared = {
  resolve: {
    alias: [
      ...(chosenBullMQ === undefined ? [] : [{ find: /^bullmq$/, replacement: chosenBullMQ }]),
      { find: /^@x\/redlock-core$/, replacement: source("packages/redlock-core/src/index.ts") },
      { find: /^@x\/redlock-core\/glide$/, replacement: source("packages/redlock-core/src/nodes/glide-node.ts") },
      { find: /^@x\/redlock-core\/kit$/, replacement: source("packages/redlock-core/src/kit.ts") },
      { find: /^@x\/redlock-core\/protocol$/, replacement: source("packages/redlock-core/src/protocol.ts") },
      { find: /^@x\/node-redlock$/, replacement: source("packages/node-redlock/src/index.ts") },
      { find: /^@x\/node-redlock\/v4$/, replacement: source("packages/node-redlock/src/v4.ts") },
      { find: /^@x\/leader$/, replacement: source("packages/leader/src/index.ts") },
      { find: /^@x\/leader\/node-cron$/, replacement: source("packages/leader/src/node-cron.ts") },
      { find: /^@x\/leader\/scheduler$/, replacement: source("packages/leader/src/scheduler/index.ts") },
      { find: /^@x\/workers\/partitions$/, replacement: source("packages/workers/src/partitions/index.ts") },
      { find: /^@x\/console$/, replacement: source("packages/console/src/index.ts") },
      { find: /^@x\/console\/page$/, replacement: source("packages/console/src/page/index.ts") },
      { find: /^@x\/otel$/, replacement: source("packages/otel/src/index.ts") },
      { find: /^@x\/nestjs$/, replacement: source("packages/nestjs/src/index.ts") },
      { find: /^@x\/testing$/, replacement: source("packages/testing/src/index.ts") },
      { find: /^@x\/semaphore\/redis-semaphore$/, replacement: source("packages/semaphore/src/redis-semaphore.ts") },
      { find: /^@x\/semaphore$/, replacement: source("packages/semaphore/src/index.ts") },
      { find: /^@x\/effects$/, replacement: source("packages/effects/src/index.ts") },
      { find: /^@x\/workers\/bull-board$/, replacement: source("packages/workers/src/bull-board.ts") },
      { find: /^@x\/workers$/, replacement: source("packages/workers/src/index.ts") },
      { find: /^@x\/test-support$/, replacement: source("test/support/src/index.ts") },
    ],
  },
  // NestJS has the decorators of before the standard.
  oxc: { decorator: { legacy: true } },
};

const test = {
  include: ["packages/*/test/**/*.test.ts", "examples/*/test/**/*.test.ts", "test/**/*.test.ts"],
  exclude: ["**/node_modules/**", "**/dist/**"],
  setupFiles: [source("test/support/vitest-setup.ts")],
  // A loaded machine is slow, not wrong: these end what hangs, and judge nothing.
  testTimeout: 120_000,
  hookTimeout: 120_000,
  // Shorter than the leases of tests that wait for a release, which nothing but the release may end.
  expect: { poll: { timeout: 10_000 } },
};

export default defineConfig({
  test: {
    globalSetup: [source("test/support/vitest-children.ts")],
    pool: "forks",
    // Most tests wait for servers and leases: more of them than cores keep the cores busy.
    maxWorkers: 2 * availableParallelism() + 1,
    sequence: { sequencer: LongestFirst },
    dangerouslyIgnoreUnhandledErrors: false,
    projects: [
      // One process runs many files: it has loaded and compiled everything that they share.
      { ...shared, test: { ...test, name: "shared", exclude: [...test.exclude, ...OWN_PROCESS], isolate: false } },
      { ...shared, test: { ...test, name: "alone", include: OWN_PROCESS, isolate: true } },
    ],
  },
});
