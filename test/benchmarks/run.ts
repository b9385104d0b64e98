/** `npm run bench`: see `--help`. */
import { mkdirSync, writeFileSync } from "node:fs";
import { cpus, release, totalmem, type } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { startRedis } from "@x/test-support";
import { measureLeaders } from "./leaders/leaders.ts";
import { measureHandOver } from "./locks/hand-over.ts";
import { measureHeld } from "./locks/held.ts";
import { measureHungNode } from "./locks/hung-node.ts";
import { measureThroughput } from "./locks/throughput.ts";
import { type Measurements, writeReport } from "./report/report.ts";
import { full, quick } from "./settings.ts";
import { measureWorkers } from "./workers/workers.ts";

const PARTS = ["pairs", "hand-over", "hung", "held", "workers", "leaders"] as const;

const HELP = `npm run bench -- [options]

Measures locks, workers and leader elections beside their peers and floors, and writes one Markdown report with charts.

  --quick        about two minutes instead of twenty: fewer and shorter rounds, for a look
  --only TEXT    only the parts whose name contains TEXT: ${PARTS.join(", ")}
  --out FOLDER   where the report goes (default: test/dist/benchmarks/report)
`;

const { values } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    only: { type: "string", default: "" },
    out: { type: "string", default: fileURLToPath(new URL("../dist/benchmarks/report", import.meta.url)) },
    help: { type: "boolean", default: false },
  },
});
const chosen = PARTS.filter((name) => name.includes(values.only));
if (chosen.length === 0) throw new RangeError(`--only must be a part of ${PARTS.join(", ")}, got ${values.only}`);
const settings = values.quick ? quick : full;

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
    throughput: await part("pairs", () => measureThroughput(settings.throughput)),
    handOver: await part("hand-over", () => measureHandOver(settings.handOver)),
    hungNode: await part("hung", () => measureHungNode(settings.hungNode)),
    held: await part("held", () => measureHeld(settings.held)),
    workers: await part("workers", () => measureWorkers(settings.workers)),
    leaders: await part("leaders", () => measureLeaders(settings.leaders)),
  };
  const { markdown, charts } = writeReport(withoutMissing(measured));
  const folder = resolve(process.env["INIT_CWD"] ?? ".", values.out);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "report.md"), markdown);
  for (const [name, chart] of charts) writeFileSync(join(folder, name), chart);
  process.stdout.write(`${markdown}\n${join(folder, "report.md")}\n`);
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
else await measureAll();
