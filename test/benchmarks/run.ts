/** The command `npm run bench`. See `--help`. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { cpus, release, totalmem, type } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { startRedis } from "@x/test-support";
import { reportDifferences } from "./differences.ts";
import { reportEffects } from "./effects.ts";
import { measureFairness } from "./fairness/fairness.ts";
import { measureKeys } from "./keys/keys.ts";
import { measureLeaders } from "./leaders/leaders.ts";
import { measureMany } from "./leaders/many.ts";
import { measureHandOver } from "./locks/hand-over.ts";
import { measureHeld } from "./locks/held.ts";
import { measureHungNode } from "./locks/hung-node.ts";
import { measureMemory } from "./locks/memory.ts";
import { measureThroughput } from "./locks/throughput.ts";
import { measurePartitions } from "./partitions/partitions.ts";
import { compare, type Figure, figuresOf, updated } from "./report/figures.ts";
import { type Measurements, writeReport } from "./report/report.ts";
import { fixed, spreadCell, table } from "./report/table.ts";
import { full, quick } from "./settings.ts";
import { measureWorkers } from "./workers/workers.ts";

const PARTS = [
  "pairs",
  "hand-over",
  "hung",
  "held",
  "memory",
  "workers",
  "leaders",
  "elections",
  "partitions",
  "keys",
  "fairness",
] as const;

const HELP = `npm run bench -- [options]

Measures locks, workers and leader elections next to their peers and floors, and writes one Markdown report with charts.

  --quick        about two minutes instead of forty, with fewer and shorter rounds
  --only TEXT    only the parts whose name contains TEXT: ${PARTS.join(", ")}
  --out FOLDER   where the report goes (default: test/dist/benchmarks/report)
  --record       also keep the figures that a release must not make worse, in test/benchmarks/recorded.json;
                 with --only, the figures of the other parts remain
  --check        measure only the recorded figures (this project and its floors), compare, and exit with 1 if a figure
                 is worse by more than its noise: for use before a release, on an otherwise idle machine
  --differences  instead: compare this project with the smallest programs, and list the cost of each part (four minutes)
  --effects      instead: the cost of effects in Postgres, and the throughput of their relay (a minute)
`;

const { values } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    only: { type: "string", default: "" },
    out: { type: "string", default: fileURLToPath(new URL("../dist/benchmarks/report", import.meta.url)) },
    record: { type: "boolean", default: false },
    check: { type: "boolean", default: false },
    differences: { type: "boolean", default: false },
    effects: { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  },
});
const chosen = PARTS.filter((name) => name.includes(values.only));
if (chosen.length === 0) throw new RangeError(`--only must be a part of ${PARTS.join(", ")}, got ${values.only}`);
const settings = values.quick ? quick : full;
const recordFile = fileURLToPath(new URL("./recorded.json", import.meta.url));
/** With `--check`: the drivers, systems and ways of recorded figures. */
const only = values.check
  ? ({
      drivers: ["ioredis", "ours", "ours, as redlock 5"],
      systems: ["BullMQ, no exclusion", "ExclusiveWorker"],
      keepers: ["ours"],
      ways: ["ours"],
    } as const)
  : {};

/** The parts in the order of the report. The report is written again after each part. */
const measures: Readonly<Record<(typeof PARTS)[number], () => Promise<Partial<Measurements>>>> = {
  pairs: async () => ({ throughput: await measureThroughput(settings.throughput, only.drivers) }),
  "hand-over": async () => ({ handOver: await measureHandOver(settings.handOver, only.drivers) }),
  hung: async () => ({ hungNode: await measureHungNode(settings.hungNode) }),
  held: async () => ({ held: await measureHeld(settings.held, only.keepers) }),
  memory: async () => ({ memory: await measureMemory(settings.memory, only.keepers) }),
  workers: async () => ({ workers: await measureWorkers(settings.workers, only.systems) }),
  leaders: async () => ({ leaders: await measureLeaders(settings.leaders, only.ways) }),
  elections: async () => ({ elections: await measureMany(settings.elections, only.ways) }),
  partitions: async () => ({ partitions: await measurePartitions(settings.partitions) }),
  keys: async () => ({ keys: await measureKeys(settings.keys) }),
  fairness: async () => ({ fairness: await measureFairness(settings.fairness) }),
};
/** Parts without recorded figures. */
const UNRECORDED: ReadonlySet<string> = new Set(["hung", "partitions", "keys", "fairness"]);

async function measureAll(): Promise<void> {
  const folder = resolve(process.env["INIT_CWD"] ?? ".", values.out);
  mkdirSync(folder, { recursive: true });
  let measured: Measurements = { machine: await describeMachine() };
  for (const part of chosen.filter((name) => !(values.check && UNRECORDED.has(name)))) {
    const startMs = performance.now();
    process.stderr.write(`${part} ...`);
    measured = { ...measured, ...(await measures[part]()) };
    process.stderr.write(` ${((performance.now() - startMs) / 1_000).toFixed(0)} s\n`);
    write(folder, measured);
  }
  process.stdout.write(`${readFileSync(join(folder, "report.md"), "utf8")}\n${join(folder, "report.md")}\n`);
  if (values.check) checkFigures(figuresOf(measured));
}

/** Writes the report of the parts so far, so that a run that is stopped keeps its figures. */
function write(folder: string, measured: Measurements): void {
  const { markdown, charts } = writeReport(measured);
  writeFileSync(join(folder, "report.md"), markdown);
  for (const [name, chart] of charts) writeFileSync(join(folder, name), chart);
  if (!values.record) return;
  const recorded = JSON.parse(readFileSync(recordFile, "utf8")) as readonly Figure[];
  writeFileSync(recordFile, `${JSON.stringify(updated(recorded, figuresOf(measured)), undefined, 2)}\n`);
}

function checkFigures(figures: readonly Figure[]): void {
  const compared = compare(JSON.parse(readFileSync(recordFile, "utf8")) as readonly Figure[], figures);
  const percent = (share: number): string => `${fixed(share * 100, 0)} %`;
  const rows = compared.map(({ name, recorded, now, lossShare, noiseShare, isWorse }) => [
    name,
    spreadCell(recorded, 2),
    spreadCell(now, 2),
    percent(lossShare),
    percent(noiseShare),
    isWorse ? "WORSE" : "",
  ]);
  process.stdout.write(`\n${table(["figure", "recorded", "now", "loss", "noise", ""], rows)}\n`);
  const worse = compared.filter(({ isWorse }) => isWorse).length;
  process.stdout.write(`\n${compared.length - worse} figures as recorded or better, ${worse} worse\n`);
  if (worse > 0 || compared.length === 0) process.exitCode = 1;
}

async function describeMachine(): Promise<string> {
  const server = await startRedis();
  try {
    const version = /redis_version:(\S+)/.exec(String(await server.call("INFO", "server")))?.[1];
    const [cpu] = cpus();
    return `${cpus().length} x ${cpu?.model.trim() ?? "unknown CPU"}, ${Math.round(totalmem() / 2 ** 30)} GiB, ${type()} ${release()}, Node ${process.version}, Redis ${version}, loopback TCP`;
  } finally {
    await server.stop();
  }
}

if (values.help) process.stdout.write(HELP);
else if (values.differences) {
  for await (const section of reportDifferences({ jobs: 8_000, durationMs: 2_000 })) process.stdout.write(section);
} else if (values.effects) {
  for await (const section of reportEffects()) process.stdout.write(`${section}\n\n`);
} else await measureAll();
