/**
 * The command `npm run bullmq -- 6.8.0`: installs a release of BullMQ, compares the texts of its scripts with the known
 * texts, and runs the contract, the crash tests and the lanes with it. If all pass, the release is added to the table
 * of known texts and to the documents. `latest` is the newest release, `--all` runs the newest release of each known
 * set, and `--compare` only compares.
 */
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import type { RedisConnection } from "bullmq";
import { installedScripts } from "../../packages/workers/src/bullmq/bullmq.ts";
import type { BullScripts } from "../../packages/workers/src/bullmq/rules/compose.ts";
import {
  fingerprintOf,
  missingScripts,
  nearestSet,
  SCRIPT_SETS,
  type ScriptTexts,
  supportedReleases,
  textsOf,
} from "../../packages/workers/src/bullmq/rules/script-sets.ts";
import { folderOfRelease } from "../support/bullmq-release.ts";
import { documents, tableWith, withSets } from "./table.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const TABLE = "packages/workers/src/bullmq/rules/script-sets.ts";
const TESTS = [
  "packages/workers/test/contract/bullmq.test.ts",
  "packages/workers/test/crash.test.ts",
  "packages/workers/test/crash-policies.test.ts",
  "test/simulation/lanes/lanes.test.ts",
  "test/simulation/lanes/focus.test.ts",
];

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { all: { type: "boolean", default: false }, compare: { type: "boolean", default: false } },
});
const releases = values.all ? SCRIPT_SETS.map(({ to }) => to) : positionals;
if (releases.length === 0) {
  process.stderr.write(
    "Name a release: npm run bullmq -- 6.8.0, npm run bullmq -- latest, or npm run bullmq -- --all\n",
  );
  process.exit(2);
}
for (const release of releases) if (!tryRelease(install(release))) process.exitCode = 1;

/** Compares and tests one release. Returns whether it is supported afterwards. */
function tryRelease(version: string): boolean {
  const texts = textsOf(scriptsOf(version));
  const { set, differing } = nearestSet(texts);
  if (differing.length === 0) say(`${version}: the texts of ${set.from} to ${set.to}`);
  else {
    say(`${version}: ${differing.join(", ")} differ from ${set.to}; fingerprint ${fingerprintOf(texts)}`);
    install(set.to);
    for (const name of differing) showDifference(name, set.to, version);
  }
  if (values.compare) return differing.length === 0;
  const undo = record(version, texts);
  const isGood = run("npx", ["vitest", "run", ...TESTS], { X_BULLMQ: version });
  if (!isGood) undo();
  say(`${version}: ${isGood ? "all tests pass" : "tests fail, so nothing was recorded"}`);
  return isGood;
}

/** Writes a release into the table and the documents. Returns a function that undoes this. */
function record(version: string, texts: ScriptTexts): () => void {
  const sets = tableWith(SCRIPT_SETS, version, texts);
  const before = [TABLE, ...documents].map(
    (file) => [join(root, file), readFileSync(join(root, file), "utf8")] as const,
  );
  for (const [file, text] of before) {
    const isTable = file.endsWith(TABLE);
    const changed = isTable ? withSets(text, sets) : text.replaceAll(supportedReleases(), supportedReleases(sets));
    if (changed !== text) writeFileSync(file, changed);
  }
  return () => {
    for (const [file, text] of before) writeFileSync(file, text);
  };
}

/** Installs a release, unless it is installed. Returns its version. */
function install(release: string): string {
  if (!/^(latest|\d+\.\d+\.\d+)$/.test(release))
    throw new RangeError(`a release must be x.y.z or latest, got ${release}`);
  const version = release === "latest" ? newest() : release;
  const folder = folderOfRelease(version);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "package.json"), "{}\n");
  // BullMQ 6 finds the tests' own ioredis above this folder.
  const flags = ["--no-audit", "--no-fund", "--ignore-scripts", "--legacy-peer-deps", "--silent"];
  if (!run("npm", ["install", "--prefix", folder, ...flags, `bullmq@${version}`]))
    throw new Error(`no BullMQ ${version}`);
  return version;
}

function newest(): string {
  return spawnSync("npm", ["view", "bullmq", "version"], { encoding: "utf8" }).stdout.trim();
}

function scriptsOf(version: string): BullScripts {
  const bullmq = createRequire(folderOfRelease(version))("bullmq") as {
    readonly RedisConnection: typeof RedisConnection;
  };
  return checkedScripts(installedScripts(bullmq.RedisConnection));
}

function checkedScripts(scripts: ReturnType<typeof installedScripts>): BullScripts {
  const missing = missingScripts(scripts);
  if (missing.length > 0) throw new Error(`scripts are missing: ${missing.join(", ")}`);
  return scripts;
}

function showDifference(name: keyof BullScripts, known: string, version: string): void {
  const folder = mkdtempSync(join(tmpdir(), "x-bullmq-"));
  const files = [known, version].map((release) => {
    writeFileSync(join(folder, `${name}-${release}.lua`), scriptsOf(release)[name].lua);
    return `${name}-${release}.lua`;
  });
  spawnSync("git", ["diff", "--no-index", "--unified=2", ...files], { cwd: folder, stdio: "inherit" });
  rmSync(folder, { recursive: true });
}

function run(command: string, args: readonly string[], env: Readonly<Record<string, string>> = {}): boolean {
  return spawnSync(command, args, { cwd: root, stdio: "inherit", env: { ...process.env, ...env } }).status === 0;
}

function say(line: string): void {
  process.stdout.write(`\n${line}\n\n`);
}
