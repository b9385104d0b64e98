// npm test: everything that must hold. `npm test -- <vitest arguments>` runs only the tests that they select. Tests wait for real
// servers and processes: what failed beside the others is looked at once more, alone, and told apart. `--strict` forgives nothing.
import { chmodSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir } from "node:os";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { bin, ensureBuilt, ensureInstalled, ensureRedis, root, run, runBeside } from "./bootstrap.mjs";
import { filesToRepeat, judge } from "./second-look.mjs";

const packages = readdirSync(join(root, "packages")).map((name) => `packages/${name}`);
const isStrict = process.argv.includes("--strict");
const selection = process.argv.slice(2).filter((argument) => argument !== "--strict");

ensureInstalled();
ensureRedis();

// What the tools and the tests put into the temporary folder (packed packages, caches) goes with it.
const folder = mkdtempSync(join(tmpdir(), "x-test-"));
process.env.TMPDIR = folder;
// PostgreSQL refuses to run as root, so root starts it as another user, who must be able to enter the folder.
chmodSync(folder, 0o711);
process.on("exit", () => rmSync(folder, { recursive: true, force: true, maxRetries: 5 }));
for (const [signal, number] of [
  ["SIGINT", 2],
  ["SIGTERM", 15],
]) {
  process.on(signal, () => process.exit(128 + number));
}

ensureBuilt();

// What npm would publish.
const archives = packages.map((each) => {
  const { name, version } = JSON.parse(readFileSync(join(root, each, "package.json"), "utf8"));
  return join(folder, `${name.replace("@", "").replace("/", "-")}-${version}.tgz`);
});
// tsc and the type-aware lint are Go programs. With fewer collections they take 47 seconds of processor time instead of 50.
process.env.GOGC ??= "400";
const checks = [
  { name: "types", command: bin("tsc"), args: ["-b"] },
  { name: "lint", command: bin("oxlint"), args: ["--type-aware", "--deny-warnings"] },
  { name: "format", command: bin("biome"), args: ["ci"] },
  { name: "documentation", command: process.execPath, args: ["site/build.mjs"] },
  { name: "documentation in a browser", command: process.execPath, args: ["site/look.mjs"] },
  {
    name: "npm pack",
    command: "npm",
    args: ["pack", ...packages.map((each) => `./${each}`), "--pack-destination", folder],
  },
  { name: "publint and attw", command: process.execPath, args: ["scripts/archives.mjs", ...archives] },
];

// The tests wait more than they compute: the checks take what is left of the cores.
const checking = selection.length === 0 ? runChecks() : Promise.resolve([]);
process.stdout.write("\n--- tests\n");
const first = await runTests(selection);
const results = await checking;
for (const { name, output } of results) process.stdout.write(`\n--- ${name}\n${output}`);
const failedChecks = results.filter(({ isDone }) => !isDone);

const repeated = filesToRepeat(first);
if (repeated.length > 0)
  process.stdout.write(`\n--- second look at the files in which something failed: ${repeated.length}\n`);
const second = repeated.length > 0 ? await repeat(repeated) : undefined;
const { passed, failed, skipped, failures, flaky } = judge(first, second, isStrict);

for (const { name } of failedChecks) process.stdout.write(`check failed: ${name}\n`);
for (const failure of failures) process.stdout.write(`failed: ${linesOf(failure)}\n`);
if (skipped > 0) process.stdout.write(`${skipped} tests skipped\n`);
for (const failure of flaky) process.stdout.write(`flaky: ${linesOf(failure)}\n`);
if (flaky.length > 0) {
  process.stdout.write(
    `${flaky.length} flaky: failed in one of two looks, counted as ${isStrict ? "failed" : "passed"}\n`,
  );
}
process.stdout.write(`${passed} passed, ${failed + failedChecks.length} failed\n`);
process.exitCode = failed + failedChecks.length === 0 ? 0 : 1;

function linesOf({ file, title, error }) {
  return `${file === undefined ? "" : `${relative(root, file)} > `}${title}\n    ${error}`;
}

/** One after the other: each uses more than one core. */
async function runChecks() {
  const results = [];
  for (const { name, command, args } of checks) results.push({ name, ...(await runBeside(command, args)) });
  return results;
}

/** What is selected mostly waits for leases; everything together keeps the cores busy with fewer (vitest.config.ts). */
function workersFor(args) {
  const isChosen = args.some((argument) => /^--(maxWorkers|no-file-parallelism|fileParallelism|pool)/.test(argument));
  return args.length === 0 || isChosen ? [] : [`--maxWorkers=${4 * availableParallelism()}`];
}

/** Runs vitest and reads what its reporter wrote; a run that failed for a reason that no test tells is an error. */
async function runTests(args) {
  const file = join(folder, "report.json");
  rmSync(file, { force: true });
  process.env.X_TEST_REPORT = file;
  const reporter = fileURLToPath(new URL("reporter.mjs", import.meta.url));
  const succeeded = await run(bin("vitest"), [
    "run",
    "--reporter=default",
    `--reporter=${reporter}`,
    ...workersFor(args),
    ...args,
  ]);
  const report = existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : { files: {}, errors: [] };
  const isTold = report.errors.length > 0 || Object.values(report.files).some(({ failed }) => failed.length > 0);
  if (!succeeded && !isTold) report.errors.push("vitest failed: see above");
  return report;
}

/** Runs the files once more, one at a time, each in a process of its own, with the same options. What stays open says then where it comes from. */
async function repeat(files) {
  process.env.X_TEST_TIMER_ORIGINS = "1";
  const { parseCLI } = await import("vitest/node");
  const { filter } = parseCLI(["vitest", "run", ...selection]);
  const options = selection.filter((argument) => !filter.includes(argument));
  return await runTests([...options, "--isolate", "--no-file-parallelism", ...files]);
}
