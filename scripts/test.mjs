// npm test: everything that must hold. `npm test -- <vitest arguments>` runs only the tests that they select.
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { bin, ensureBuilt, ensureInstalled, ensureRedis, run, runBeside } from "./bootstrap.mjs";

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
  { name: "types", command: "tsc", args: ["-b"] },
  { name: "lint", command: "oxlint", args: ["--type-aware", "--deny-warnings"] },
  { name: "format", command: "biome", args: ["ci"] },
  ...packages.flatMap((folder) => [
    { name: `publint ${folder}`, command: "publint", args: ["--strict", "--pack", "npm", folder] },
    {
      name: `attw ${folder}`,
      command: "attw",
      args: ["--pack", folder, "--profile", "esm-only", "--format", "ascii"],
    },
  ]),
];

// The tests wait more than they compute: the checks take what is left of the cores.
const checking = selection.length === 0 ? runChecks() : Promise.resolve([]);
process.stdout.write("\n--- tests\n");
const tests = await runTests();
const results = await checking;
for (const { name, output } of results) process.stdout.write(`\n--- ${name}\n${output}`);
const failedChecks = results.filter(({ isDone }) => !isDone);
for (const { name } of failedChecks) process.stdout.write(`check failed: ${name}\n`);
if (tests.skipped > 0) process.stdout.write(`${tests.skipped} tests skipped\n`);
const failed = tests.failed + failedChecks.length;
process.stdout.write(`${tests.passed} passed, ${failed} failed\n`);
process.exitCode = failed === 0 ? 0 : 1;

/** One after the other: each uses more than one core. */
async function runChecks() {
  const results = [];
  for (const { name, command, args } of checks) results.push({ name, ...(await runBeside(bin(command), args)) });
  return results;
}

/** Runs vitest and counts what it reports; a file that fails without a failed test and an unhandled error count as failed, too. */
async function runTests() {
  const file = join(folder, "result.json");
  const succeeded = await run(bin("vitest"), [
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
