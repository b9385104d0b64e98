/** `npm run torture`: see `--help`. */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { FAULT_KINDS } from "./events.ts";
import { parseKinds } from "./faults.ts";
import { brokenPromises, commandOf, reportText, summary, type Tortured } from "./report.ts";
import { loadSystem } from "./systems/index.ts";
import { SYSTEM_NAMES, type SystemName } from "./systems/system.ts";
import { type Run, runTorture } from "./torture.ts";

const HELP = `npm run torture -- --system LIST [options]

Runs real processes of lock libraries and queues, on real servers, under faults drawn from a seed.
Counts what broke.

  --system LIST   all (default), or some, separated by commas:
                  ${SYSTEM_NAMES.join(", ")}
  --seed S[,S…]   seeds of the faults (default: drawn); the processes' own timing is not replayed
  --minutes M     minutes of faults for each system and seed, above 0, at most 600 (default: 2)
  --faults LIST   only these, separated by commas: ${FAULT_KINDS.join(", ")}
  --out FOLDER    where the tables (.md, .json) and the events go (default: a temporary folder)

Ends with 1 if one of this project's systems (x-…) broke a promise.
`;

const { values } = parseArgs({
  options: {
    system: { type: "string", default: "all" },
    seed: { type: "string" },
    minutes: { type: "string", default: "2" },
    faults: { type: "string" },
    out: { type: "string", default: join(tmpdir(), "x-torture") },
    help: { type: "boolean", default: false },
  },
});

const minutes = Number(values.minutes);
if (!(minutes > 0 && minutes <= 600))
  throw new RangeError(`--minutes must be above 0, at most 600, got ${values.minutes}`);
const names = values.system === "all" ? SYSTEM_NAMES : (values.system.split(",") as SystemName[]);
for (const name of names) {
  if (!SYSTEM_NAMES.includes(name))
    throw new RangeError(`--system must be all or some of ${SYSTEM_NAMES.join(", ")}; got ${name}`);
}
const seeds = values.seed?.split(",") ?? [Math.floor(Math.random() * 2 ** 32).toString(36)];
const kinds = values.faults === undefined ? undefined : parseKinds(values.faults);
const folder = resolve(process.env["INIT_CWD"] ?? ".", values.out);

async function tortureOf(name: SystemName): Promise<Tortured> {
  const runs: Run[] = [];
  for (const seed of seeds) {
    const run = await runTorture({ system: name, seed, kinds, faultyMs: minutes * 60_000, onProgress: showProgress });
    process.stdout.write(`${name}, seed ${seed}: ${summary(run)}\n`);
    writeFileSync(join(folder, `${name}-${seed}.jsonl`), run.events.map((entry) => JSON.stringify(entry)).join("\n"));
    runs.push(run);
  }
  const system = await loadSystem[name]();
  return { system, version: versionOf(system.package), runs };
}

function showProgress(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\u001b[2K${text}\r`);
}

async function run(): Promise<boolean> {
  mkdirSync(folder, { recursive: true });
  const all: Tortured[] = [];
  for (const name of names) all.push(await tortureOf(name));
  const command = `npm run torture -- --system ${values.system} --seed ${seeds.join(",")} --minutes ${minutes}`;
  writeFileSync(join(folder, "torture.md"), reportText(all, command));
  const figures = all.flatMap(({ runs, version }) => runs.map((each) => ({ ...each, version, events: undefined })));
  writeFileSync(join(folder, "torture.json"), `${JSON.stringify(figures, null, 2)}\n`);
  process.stdout.write(`report: ${join(folder, "torture.md")}\n`);
  const ours = all.flatMap(({ runs }) => runs).filter(({ system }) => system.startsWith("x-"));
  const broken = ours.flatMap((each) => brokenPromises(each.figures).map((text) => `${commandOf(each)}: ${text}`));
  for (const text of broken) process.stdout.write(`BROKEN ${text}\n`);
  return broken.length === 0;
}

/** Read from the file, since not every package exports its `package.json`. */
function versionOf(name: string): string {
  for (const folder of createRequire(import.meta.url).resolve.paths(name) ?? []) {
    const file = join(folder, name, "package.json");
    if (existsSync(file)) return (JSON.parse(readFileSync(file, "utf8")) as { version: string }).version;
  }
  throw new Error(`${name} is not installed`);
}

if (values.help) process.stdout.write(HELP);
else process.exitCode = (await run()) ? 0 : 1;
