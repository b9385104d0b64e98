// npm test: everything that must hold. `npm test -- <vitest arguments>` runs only the tests that they select.
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bin, ensureBuilt, ensureInstalled, ensureRedis, run } from "./bootstrap.mjs";

const packages = ["packages/redlock-core", "packages/leader", "packages/workers"];
const selection = process.argv.slice(2);

ensureInstalled();
ensureRedis();

// What the tools and the tests put into the temporary folder (packed packages, caches) goes with it.
const folder = mkdtempSync(join(tmpdir(), "x-test-"));
process.env.TMPDIR = folder;
process.on("exit", () => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }));
for (const [signal, number] of [
  ["SIGINT", 2],
  ["SIGTERM", 15],
]) {
  process.on(signal, () => process.exit(128 + number));
}

ensureBuilt();

const checks = [
  { name: "types", check: () => run(bin("tsc"), ["-b"]) },
  { name: "lint", check: () => run(bin("oxlint"), ["--type-aware", "--deny-warnings"]) },
  { name: "format", check: () => run(bin("biome"), ["ci"]) },
  ...packages.flatMap((folder) => [
    { name: `publint ${folder}`, check: () => run(bin("publint"), ["--strict", "--pack", "npm", folder]) },
    {
      name: `attw ${folder}`,
      check: () => run(bin("attw"), ["--pack", folder, "--profile", "esm-only", "--format", "ascii"]),
    },
  ]),
];

const failedChecks = [];
if (selection.length === 0) {
  for (const { name, check } of checks) {
    process.stdout.write(`\n--- ${name}\n`);
    if (!check()) failedChecks.push(name);
  }
}

process.stdout.write("\n--- tests\n");
const tests = runTests();
for (const name of failedChecks) process.stdout.write(`check failed: ${name}\n`);
if (tests.skipped > 0) process.stdout.write(`${tests.skipped} tests skipped\n`);
const failed = tests.failed + failedChecks.length;
process.stdout.write(`${tests.passed} passed, ${failed} failed\n`);
process.exitCode = failed === 0 ? 0 : 1;

/** Runs vitest and counts what it reports; a file that fails without a failed test and an unhandled error count as failed, too. */
function runTests() {
  const file = join(folder, "result.json");
  const succeeded = run(bin("vitest"), [
    "run",
    "--reporter=default",
    "--reporter=json",
    `--outputFile.json=${file}`,
    ...selection,
  ]);
  if (!existsSync(file)) return { passed: 0, failed: 1, skipped: 0 };
  const result = JSON.parse(readFileSync(file, "utf8"));
  // Does not load, or fails in a hook: the leak check is one.
  const failedFiles = result.testResults.filter(
    ({ status, assertionResults }) =>
      status === "failed" && !assertionResults.some((assertion) => assertion.status === "failed"),
  ).length;
  const failed = result.numFailedTests + failedFiles;
  return {
    passed: result.numPassedTests,
    failed: failed === 0 && !succeeded ? 1 : failed,
    skipped: result.numPendingTests + result.numTodoTests,
  };
}
