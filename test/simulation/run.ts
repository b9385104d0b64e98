/** The command `npm run simulate`. See `--help`. */
import { mkdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { DIRECTED, runDirected } from "./directed.ts";
import { type Engine, loadEngine } from "./engine.ts";
import { recordKnown, TEST_SEED } from "./known.ts";
import { loadLanes } from "./lanes/load.ts";
import { MutationServers, runLaneMutation } from "./lanes/mutation-run.ts";
import { LANE_MUTATIONS } from "./lanes/mutations.ts";
import { laneText } from "./lanes/report.ts";
import { searchLanes } from "./lanes/search.ts";
import { isCaught, type MutationResult, runMutation } from "./mutation-run.ts";
import { MUTATIONS } from "./mutations.ts";
import { timelinePage } from "./report/svg.ts";
import { mutationTable } from "./report/table.ts";
import { timelineText } from "./report/text.ts";
import type { ScheduleResult } from "./schedule.ts";
import { runOf, type Subject, search } from "./search.ts";

const LOCK_RUNS = 2_000;
const LANE_RUNS = 300;
/** Share of elections among locks and elections, because a schedule of an election takes longer. */
const ELECTION_SHARE = 0.2;

const HELP = `npm run simulate -- [options]

Runs the real code of locks, leader elections and their schedulers in a seeded virtual world full of faults, and checks every invariant
after every step.

  --seed S       seeds are S/1, S/2, …; a seed with a slash replays this schedule, with its timeline (default: drawn). Pass
                 the same options as when the schedule was found
  --runs N       schedules (default 2000, a fifth of them elections; lanes: 300)
  --nodes N      nodes of every schedule (default: 1 to 5, drawn)
  --locks        locks only
  --elections    leader elections and their schedulers only
  --permits      semaphores and read-write locks only, on one node; with --nodes N, read-write locks on N nodes
  --latches      latches that are counted down only, on one node
  --lanes        the lanes of exclusive workers, on a real redis-server, instead
  --minutes M    simulated minutes of faults per schedule (default: a few leases)
  --mutations    removes each protection instead, and shows which invariant breaks; with --lanes: only those of the lanes
  --only TEXT    with --mutations: only protections whose name contains TEXT
  --record       with --mutations: records in known.json which schedules of the tests break
  --out FOLDER   where pictures of violations go (default: a temporary folder)
`;

const { values } = parseArgs({
  options: {
    seed: { type: "string" },
    runs: { type: "string" },
    nodes: { type: "string" },
    minutes: { type: "string" },
    locks: { type: "boolean", default: false },
    elections: { type: "boolean", default: false },
    permits: { type: "boolean", default: false },
    latches: { type: "boolean", default: false },
    lanes: { type: "boolean", default: false },
    mutations: { type: "boolean", default: false },
    only: { type: "string", default: "" },
    record: { type: "boolean", default: false },
    out: { type: "string", default: join(tmpdir(), "x-simulation") },
    help: { type: "boolean", default: false },
  },
});

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

function showProgress(text: string): void {
  if (process.stderr.isTTY) process.stderr.write(`\r\u001b[2K${text}`);
}

function numberOf(name: string, text: string | undefined, least: number): number | undefined {
  if (text === undefined) return undefined;
  const number = Number(text);
  if (!(number >= least)) throw new RangeError(`--${name} must be a number >= ${least}, got ${text}`);
  return number;
}

function countOf(name: string, text: string | undefined): number | undefined {
  const count = numberOf(name, text, 1);
  if (count !== undefined && !Number.isInteger(count))
    throw new RangeError(`--${name} must be an integer >= 1, got ${text}`);
  return count;
}

const seed = values.record ? TEST_SEED : (values.seed ?? Math.floor(Math.random() * 2 ** 32).toString(36));
const world = { nodeCount: countOf("nodes", values.nodes), minutes: numberOf("minutes", values.minutes, 0) };
const worldOptions = [
  ...(values.nodes === undefined ? [] : [`--nodes ${values.nodes}`]),
  ...(values.minutes === undefined ? [] : [`--minutes ${values.minutes}`]),
];

const runsAsked = countOf("runs", values.runs);

const pictures = resolve(process.env["INIT_CWD"] ?? ".", values.out);

function draw(result: ScheduleResult): string {
  mkdirSync(pictures, { recursive: true });
  const file = join(pictures, `${result.seed.replaceAll(/[^\w-]+/g, "-")}.html`);
  writeFileSync(file, timelinePage(result));
  return file;
}

function explain(result: ScheduleResult): void {
  print(timelineText({ ...result, recordedEvents: result.recordedEvents.slice(-200) }));
  print(`picture: ${draw(result)}`);
}

async function runAllDirected(engine: Engine): Promise<boolean> {
  for (const name of DIRECTED) {
    const result = await runDirected(engine, name);
    if (result.violation === undefined) continue;
    print(`directed schedule "${name}", which every run begins with:\n`);
    explain(result);
    return false;
  }
  print(`${DIRECTED.length} directed schedules: no invariant broke`);
  return true;
}

async function replay(engine: Engine, subject: Subject): Promise<boolean> {
  const result = await runOf[subject](engine, seed, { ...world, record: true });
  explain(result);
  return result.violation === undefined;
}

async function simulate(engine: Engine): Promise<boolean> {
  const apart = values.permits ? "permits" : values.latches ? "latches" : undefined;
  if (seed.includes("/")) return await replay(engine, apart ?? (values.elections ? "elections" : "locks"));
  if (apart !== undefined) return await searchFor(engine, apart, runsAsked ?? LOCK_RUNS);
  if (!(await runAllDirected(engine))) return false;
  const runs = runsAsked ?? LOCK_RUNS;
  if (values.elections) return await searchFor(engine, "elections", runs);
  if (values.locks) return await searchFor(engine, "locks", runs);
  const elections = Math.floor(runs * ELECTION_SHARE);
  const isFine = await searchFor(engine, "locks", runs - elections);
  return isFine && (elections === 0 || (await searchFor(engine, "elections", elections)));
}

async function searchFor(engine: Engine, subject: Subject, count: number): Promise<boolean> {
  const startedMs = performance.now();
  const found = await search(engine, {
    seed,
    runs: count,
    subject,
    ...world,
    onResult: (_result, done) => {
      const seconds = (performance.now() - startedMs) / 1_000;
      showProgress(`${subject}: ${done} of ${count} schedules, ${(done / seconds).toFixed(0)} a second`);
    },
  });
  showProgress("");
  const { runs, events, grants, seconds } = found;
  print(
    `seed ${seed}: ${runs} schedules of ${subject} (${grants} grants, ${events} events) in ${seconds.toFixed(1)} s: ` +
      `${(runs / seconds).toFixed(0)} schedules a second`,
  );
  const first = found.violations[0];
  if (first === undefined) {
    print("no invariant broke");
    return true;
  }
  const options = [`--seed ${first.result.seed}`, `--${subject}`, ...worldOptions];
  print(`replay with: npm run simulate -- ${options.join(" ")}\n`);
  explain(await runOf[subject](engine, first.result.seed, { ...world, record: true }));
  return false;
}

async function simulateLanes(): Promise<boolean> {
  const found = await searchLanes(await loadLanes(), {
    seed,
    runs: runsAsked ?? LANE_RUNS,
    onResult: (_result, done) => showProgress(`lanes: ${done} of ${runsAsked ?? LANE_RUNS} schedules`),
  });
  showProgress("");
  const { handedOut, parked, seconds, violation } = found;
  print(
    `seed ${seed}: ${found.runs} schedules (${handedOut} jobs handed out, ${parked} parked) in ${seconds.toFixed(1)} s: ` +
      `${(found.runs / seconds).toFixed(1)} schedules a second`,
  );
  if (violation === undefined) {
    print("no invariant broke");
    return true;
  }
  print(`replay with: npm run simulate -- --lanes --seed ${violation.seed}\n`);
  print(laneText(violation));
  return false;
}

async function mutate(): Promise<boolean> {
  const results: MutationResult[] = [];
  const isAskedFor = ({ protection }: { readonly protection: string }): boolean => protection.includes(values.only);
  for (const mutation of values.lanes ? [] : MUTATIONS.filter(isAskedFor)) {
    showProgress(`${mutation.protection} …`);
    results.push(await runMutation(mutation, { seed, budget: runsAsked ?? LOCK_RUNS, quick: values.record }));
  }
  await using servers = await MutationServers.start();
  const budget = runsAsked ?? LANE_RUNS;
  for (const mutation of LANE_MUTATIONS.filter(isAskedFor)) {
    showProgress(`${mutation.protection} …`);
    results.push(await runLaneMutation(mutation, { seed, budget, quick: values.record }, servers));
  }
  showProgress("");
  print(`seed ${seed}, at most ${runsAsked ?? `${LOCK_RUNS} (lanes: ${LANE_RUNS})`} random schedules each\n`);
  print(mutationTable(results));
  const caught = results.filter(isCaught);
  if (values.record) {
    const broken = results.flatMap(({ mutation, brokenBy }) =>
      brokenBy === undefined ? [] : [[mutation.protection, brokenBy] as const],
    );
    recordKnown(new Map(broken));
  }
  print(`\n${caught.length} of ${results.length} caught`);
  return caught.length === results.length;
}

async function main(): Promise<boolean> {
  if (values.mutations) return await mutate();
  return await (values.lanes ? simulateLanes() : simulate(await loadEngine()));
}

if (values.help) print(HELP);
else process.exitCode = (await main()) ? 0 : 1;
