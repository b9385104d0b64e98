/** One run from the first server to the last process: starts everything, does the faults, waits, ends everything, judges. */
import { randomBytes } from "node:crypto";
import { writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { RedisServer } from "@x/test-support";
import { Redis } from "ioredis";
import { BoardStore } from "./board-store.ts";
import { type Findings, judge, leaderTakeoverMs, openRuns, workerTakeoverMs } from "./checker.ts";
import type { CommandLine } from "./command-line.ts";
import { Cursor } from "./cursor.ts";
import { type DoneFault, type FaultKind, runFaults } from "./faults.ts";
import { Fleet } from "./fleet.ts";
import type { Flight } from "./flight.ts";
import type { HistoryEvent, Leadership } from "./history.ts";
import { loopback, openPage, placeFrom } from "./page.ts";
import { pictureOf } from "./picture.ts";
import type { Result, Takeover } from "./report.ts";
import { Progress } from "./rules/progress.ts";
import { openServers } from "./servers.ts";
import { leaseMs, readFlights, type Settings, settingsFrom } from "./settings.ts";
import type { View } from "./view.ts";

const replicas = [1, 2, 3];
const updateMs = 200;
const rateWindowMs = 3_000;
// Longer than any takeover; a run that stands still for so long does not go on.
const silenceMs = 45_000;
const shownAirports = 8;

/** @throws the signal's reason when it is aborted; everything that was started is stopped then, too. */
export async function runDepartureBoards(
  commandLine: CommandLine,
  environment: NodeJS.ProcessEnv,
  view: View,
  signal: AbortSignal,
): Promise<Result> {
  const { naive, pauseMs, faults, attach } = commandLine;
  if (attach) {
    const plan = { settings: settingsFrom(environment), lockNodes: [], view, faults: false, attach };
    return await runFleet({ ...plan, page: placeFrom(environment) }, signal);
  }
  const prefix = `departure-boards:${randomBytes(4).toString("hex")}:`;
  const servers = await openServers(environment, prefix);
  try {
    signal.throwIfAborted();
    const { redisUrl, lockRedisUrls, lockNodes } = servers;
    const settings: Settings = { prefix, redisUrl, lockRedisUrls, flights: commandLine.flights, naive, pauseMs };
    const page = commandLine.page ? loopback : undefined;
    return await runFleet({ settings, lockNodes, view, faults, attach, page }, signal);
  } finally {
    await servers.stop();
  }
}

interface Plan {
  readonly settings: Settings;
  /** Those that faults may be done to. */
  readonly lockNodes: readonly RedisServer[];
  readonly view: View;
  readonly faults: boolean;
  /** The processes run elsewhere already. */
  readonly attach: boolean;
  /** Where the live page listens; undefined: there is none. */
  readonly page: typeof loopback | undefined;
}

async function runFleet(plan: Plan, signal: AbortSignal): Promise<Result> {
  const { settings, lockNodes, faults, attach } = plan;
  const flights = readFlights(settings.flights);
  const page = plan.page === undefined ? undefined : await openPage(settings, plan.page);
  const view: View = {
    ...plan.view,
    tell(seconds, text) {
      plan.view.tell(seconds, text);
      page?.note(text, "note");
    },
  };
  const redis = new Redis(settings.redisUrl, { maxRetriesPerRequest: null });
  const record = new RunRecord(redis, settings.prefix, flights);
  const fleet = new Fleet(settings);
  try {
    for (const number of attach ? [] : replicas) {
      fleet.start("scheduler", number);
      fleet.start("worker", number);
    }
    if (page !== undefined) plan.view.tell(0, `live page: ${page.url}`);
    if (lockNodes.length > 0)
      view.tell(0, `new lock nodes cast no vote for ${leaseMs / 1000} s, as they might have forgotten locks`);
    const watch = new AbortController();
    const either = AbortSignal.any([signal, watch.signal]);
    const watching = follow(record, fleet, view, either);
    const stage = {
      fleet,
      lockNodes,
      share: () => record.progress.done / flights.length,
      leader: async () => (await record.cursor.state()).leader,
      nowMs: () => record.nowMs(),
      history: () => record.read(),
      tell: (text: string) => {
        plan.view.tell(record.seconds(), text);
        page?.note(text, "fault");
      },
    };
    try {
      const [, doneFaults] = await Promise.all([
        watching.then((isFinished) => {
          if (!isFinished) watch.abort();
        }),
        faults ? runFaults(stage, either).catch((error: unknown) => noFaultsIf(watch.signal.aborted, error)) : [],
      ]);
      const seconds = record.seconds();
      await fleet.end();
      return await conclude(record, { settings, fleet, seconds, doneFaults });
    } finally {
      watch.abort();
    }
  } finally {
    await fleet.killAll();
    await page?.close();
    redis.disconnect();
  }
}

// A run that failed has no use for the faults that were still to come.
function noFaultsIf(hasFailed: boolean, error: unknown): DoneFault[] {
  if (!hasFailed) throw error;
  return [];
}

/** What the store knows of a run, read as it grows. */
class RunRecord {
  readonly progress: Progress;
  readonly cursor: Cursor;
  readonly store: BoardStore;
  readonly flights: readonly Flight[];
  readonly #redis: Redis;
  readonly #history: HistoryEvent[] = [];
  readonly #startedMs = performance.now();
  #reading: Promise<void> = Promise.resolve();

  constructor(redis: Redis, prefix: string, flights: readonly Flight[]) {
    this.#redis = redis;
    this.flights = flights;
    this.store = new BoardStore(redis, prefix);
    this.cursor = new Cursor(redis, prefix);
    this.progress = new Progress(flights);
  }

  seconds(): number {
    return (performance.now() - this.#startedMs) / 1000;
  }

  async nowMs(): Promise<number> {
    const [seconds, microseconds] = await this.#redis.time();
    return Number(seconds) * 1000 + Math.floor(Number(microseconds) / 1000);
  }

  /** Everything up to now. Two readers take turns, so that no event is taken twice. */
  async read(): Promise<readonly HistoryEvent[]> {
    const reading = this.#reading.then(async () => {
      const cursor = await this.cursor.state();
      const events = await this.store.history(this.#history.length);
      this.#history.push(...events);
      this.progress.update(events, cursor);
    });
    this.#reading = reading.catch(() => {});
    await reading;
    return this.#history;
  }
}

/** Shows the run until every flight is on a board: true; or until it has failed, with the problem noted: false. */
async function follow(record: RunRecord, fleet: Fleet, view: View, signal: AbortSignal): Promise<boolean> {
  const samples: { readonly atMs: number; readonly done: number }[] = [];
  let leader: string | undefined;
  let lastDone = 0;
  let lastChangeMs = performance.now();
  for (;;) {
    await record.read();
    const { progress } = record;
    const nowMs = performance.now();
    const cursor = await record.cursor.state();
    if (cursor.leader !== undefined && cursor.leader !== leader)
      view.tell(record.seconds(), `${cursor.leader} leads, term ${cursor.term}`);
    leader = cursor.leader;
    samples.push({ atMs: nowMs, done: progress.done });
    while (samples.length > 2 && nowMs - (samples[0]?.atMs ?? 0) > rateWindowMs) samples.shift();
    const [first] = samples;
    const passedMs = first === undefined ? 0 : nowMs - first.atMs;
    const rate = first === undefined || passedMs === 0 ? 0 : (1000 * (progress.done - first.done)) / passedMs;
    view.update({
      seconds: record.seconds(),
      done: progress.done,
      total: progress.total,
      rate,
      cursor,
      busiest: progress.busiest(shownAirports),
      staleRefused: progress.staleRefused,
    });
    if (progress.done === progress.total) return true;
    if (fleet.problems.length > 0) return false;
    if (progress.done > lastDone) [lastDone, lastChangeMs] = [progress.done, nowMs];
    if (nowMs - lastChangeMs > silenceMs) {
      fleet.problems.push(`no flight was put on a board for ${silenceMs / 1000} s`);
      return false;
    }
    await delay(updateMs, undefined, { signal });
  }
}

interface Ending {
  readonly settings: Settings;
  readonly fleet: Fleet;
  readonly seconds: number;
  readonly doneFaults: readonly DoneFault[];
}

async function conclude(record: RunRecord, { settings, fleet, seconds, doneFaults }: Ending): Promise<Result> {
  const history = await record.read();
  const airports = new Set(record.flights.map((flight) => flight.origin));
  const findings = judge(record.flights, history, await record.store.boards(airports));
  const leaderships = await record.cursor.leaderships();
  const struck = doneFaults.map(({ kind, target, atMs }) => ({
    text: `${target} ${pastOf[kind]}`,
    atMs,
    killed: kind === "kill leader" ? target : undefined,
  }));
  return {
    settings,
    findings,
    seconds,
    leaders: leaderships.length,
    cursorRefused: (await record.cursor.state()).refused,
    faults: struck.map(({ text }) => text),
    takeovers: doneFaults.flatMap((fault) => takeover(fault, history, leaderships)),
    errors: fleet.errors,
    problems: [...fleet.problems, ...untestedFence(settings, doneFaults, findings)],
    picture: await savePicture(
      pictureOf({
        history,
        leaderships,
        faults: struck,
        startedMs: (await record.nowMs()) - 1_000 * record.seconds(),
        verdict: pictureVerdict(findings),
      }),
    ),
  };
}

function pictureVerdict({ airports, wrongBoards }: Findings): string {
  if (wrongBoards.length === 0) return `Correct: all ${airports} boards are what a sequential pass over the log gives.`;
  const missing = wrongBoards.reduce((sum, { expected, actual }) => sum + expected.flights - (actual?.flights ?? 0), 0);
  const lost = missing > 0 ? `, and ${missing.toLocaleString("en-US")} flights are missing on them` : "";
  return `WRONG: ${wrongBoards.length} of ${airports} boards differ from a sequential pass over the log${lost}.`;
}

/** Writes the picture into the temporary folder, and returns its path. */
async function savePicture(svg: string): Promise<string> {
  const path = join(tmpdir(), `departure-boards-${randomBytes(4).toString("hex")}.svg`);
  await writeFile(path, svg);
  return path;
}

// A frozen worker had boards in its hands: its late writes must have come, and must have been refused.
function untestedFence({ naive }: Settings, doneFaults: readonly DoneFault[], { staleRefused }: Findings): string[] {
  const wasFrozen = doneFaults.some(({ kind }) => kind === "freeze worker");
  return wasFrozen && !naive && staleRefused === 0
    ? ["a worker was frozen, and none of its late writes was refused"]
    : [];
}

const pastOf: Readonly<{ [kind in FaultKind]: string }> = {
  "kill lock node": "killed",
  "restart lock node": "started again",
  "kill leader": "killed",
  "kill worker": "killed",
  "freeze worker": "frozen",
};

function takeover(
  { kind, target, atMs }: DoneFault,
  history: readonly HistoryEvent[],
  leaderships: readonly Leadership[],
): Takeover[] {
  switch (kind) {
    case "kill leader":
      return [{ what: `next leader after ${target} was killed`, ms: leaderTakeoverMs(leaderships, atMs) }];
    case "kill worker":
    case "freeze worker": {
      const count = openRuns(history, target, atMs).length;
      if (count === 0) return [];
      const verb = kind === "kill worker" ? "killed" : "frozen";
      return [
        { what: `${count} airports of ${target}, ${verb}, moved on`, ms: workerTakeoverMs(history, target, atMs) },
      ];
    }
    default:
      return [];
  }
}
