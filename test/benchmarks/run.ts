/** `npm run bench`: see `--help`. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { cpus, release, totalmem, type } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { startRedis } from "@x/test-support";
import { reportDifferences } from "./differences.ts";
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
import { compare, type Figure, figuresOf } from "./report/figures.ts";
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

Measures locks, workers and leader elections beside their peers and floors, and writes one Markdown report with charts.

  --quick        about two minutes instead of twenty: fewer and shorter rounds, for a look
  --only TEXT    only the parts whose name contains TEXT: ${PARTS.join(", ")}
  --out FOLDER   where the report goes (default: test/dist/benchmarks/report)
  --record       also keep the figures that a release must not make worse, in test/benchmarks/recorded.json
  --check        measure only what was recorded (ours and its floors), compare, and exit with 1 when a figure is
                 worse by more than its noise: for use before a release, on a machine that does nothing else
  --differences  instead: what ours does beside the smallest programs, and what each part of it costs (a minute)
`;

const { values } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    only: { type: "string", default: "" },
    out: { type: "string", default: fileURLToPath(new URL("../dist/benchmarks/report", import.meta.url)) },
    record: { type: "boolean", default: false },
    check: { type: "boolean", default: false },
    differences: { type: "boolean", default: false },
    help: { type: "boolean", default: false },
  },
});
const chosen = PARTS.filter((name) => name.includes(values.only));
if (chosen.length === 0) throw new RangeError(`--only must be a part of ${PARTS.join(", ")}, got ${values.only}`);
const settings = values.quick ? quick : full;
const recordFile = fileURLToPath(new URL("./recorded.json", import.meta.url));
/** Ours, and what it is compared with. */
const only = values.check
  ? ({
      drivers: ["ioredis", "ours", "ours, as redlock 5"],
      systems: ["BullMQ, no exclusion", "ExclusiveWorker"],
      keepers: ["ours"],
      ways: ["ours"],
    } as const)
  : {};

async function part<Rows>(name: (typeof PARTS)[number], measure: () => Promise<Rows>): Promise<Rows | undefined> {
  if (!chosen.includes(name)) return undefined;
  const startMs = performance.now();
  process.stderr.write(`${name} ...`);
  const rows = await measure();
  process.stderr.write(` ${((performance.now() - startMs) / 1_000).toFixed(0)} s\n`);
  return rows;
}

async function measureAll(): Promise<void> {
  const measured = {
    machine: await describeMachine(),
    throughput: await part("pairs", () => measureThroughput(settings.throughput, only.drivers)),
    handOver: await part("hand-over", () => measureHandOver(settings.handOver, only.drivers)),
    hungNode: values.check ? undefined : await part("hung", () => measureHungNode(settings.hungNode)),
    held: await part("held", () => measureHeld(settings.held, only.keepers)),
    memory: await part("memory", () => measureMemory(settings.memory, only.keepers)),
    workers: await part("workers", () => measureWorkers(settings.workers, only.systems)),
    leaders: await part("leaders", () => measureLeaders(settings.leaders, only.ways)),
    elections: await part("elections", () => measureMany(settings.elections, only.ways)),
    partitions: values.check ? undefined : await part("partitions", () => measurePartitions(settings.partitions)),
    keys: values.check ? undefined : await part("keys", () => measureKeys(settings.keys)),
    fairness: values.check ? undefined : await part("fairness", () => measureFairness(settings.fairness)),
  };
  const measurements = withoutMissing(measured);
  const { markdown, charts } = writeReport(measurements);
  const folder = resolve(process.env["INIT_CWD"] ?? ".", values.out);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "report.md"), markdown);
  for (const [name, chart] of charts) writeFileSync(join(folder, name), chart);
  process.stdout.write(`${markdown}\n${join(folder, "report.md")}\n`);
  const figures = figuresOf(measurements);
  if (values.check) checkFigures(figures);
  if (values.record) writeFileSync(recordFile, `${JSON.stringify(figures, undefined, 2)}\n`);
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

function withoutMissing(all: { readonly machine: string } & Readonly<Record<string, unknown>>): Measurements {
  return Object.fromEntries(Object.entries(all).filter(([, rows]) => rows !== undefined)) as unknown as Measurements;
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
} else await measureAll();
