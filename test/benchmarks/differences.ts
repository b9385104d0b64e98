/**
 * Compares each package with the smallest program that keeps the same promises, and lists the cost of each part: the
 * client's time by the folder or package whose code ran, the server's time by command.
 */
import { startRedisNodes } from "@x/test-support";
import type { ContendResult, PairsJob, PairsResult } from "./locks/child.ts";
import type { DriverName } from "./locks/drivers.ts";
import { contend, startContenders, timesOf } from "./locks/hand-over.ts";
import { startDriver } from "./locks/start-driver.ts";
import { fixed, table } from "./report/table.ts";
import { compileChild } from "./support/compile.ts";
import type { Profile } from "./support/profile.ts";
import { commandsBetween, readServers, type ServerReading } from "./support/servers.ts";
import { median } from "./support/statistics.ts";
import { type LoadName, loadNames, measureRound, type WorkersSample } from "./workers/workers.ts";

/** The cost of a program for each pair, grant or job. */
interface Cost {
  readonly perSecond: number;
  readonly clientCpuUs: number;
  readonly serverCpuUs: number;
  /** When the first job began. */
  readonly firstMs?: number;
  readonly clientUs: ReadonlyMap<string, number>;
  readonly server: ReadonlyMap<string, { readonly calls: number; readonly us: number }>;
}

/** Differences below this share of the package's cost are summed. */
const TELLING_SHARE = 0.005;
/** Runs of each program with jobs, in turn. */
const JOB_ROUNDS = 3;
/** This number of jobs takes some seconds, after which V8 has compiled the code. */
const OLDER_JOBS = 60_000;

export async function* reportDifferences({
  jobs,
  durationMs,
}: {
  readonly jobs: number;
  readonly durationMs: number;
}): AsyncGenerator<string> {
  const drivers = ["our script, together", "ours"] as const;
  for (const nodes of [1, 5]) {
    const [floor, ours] = [
      await costOfPairs(drivers[0], nodes, durationMs),
      await costOfPairs(drivers[1], nodes, durationMs),
    ];
    yield section(`A pair of acquire and release, ${nodes} nodes, 100 callers`, drivers[0], floor, ours);
  }
  const [least, ours] = [await costOfHandOvers("a line alone", durationMs), await costOfHandOvers("ours", durationMs)];
  yield section("A hand-over, 1 node, 20 waiters in two processes", "a line alone", least, ours);
  const ages = [];
  for (const name of ["a line alone", "ours"] as const) ages.push(...(await handOversByAge(name)));
  yield `${table(["", "seconds", "p50 ms", "within a process", "to the other", "longest wait ms"], ages)}\n\n`;
  for (const load of loadNames) yield await jobSection(load, jobs);
  yield await jobSection("a key per job", OLDER_JOBS);
}

export async function jobSection(load: LoadName, jobs: number): Promise<string> {
  const systems = ["BullMQ, ends together, the key alone", "ExclusiveWorker"] as const;
  const file = await compileChild(new URL("./workers/child.ts", import.meta.url), "workers");
  const settings = { load, jobs, limitMs: 60_000 };
  const rounds: [WorkersSample, WorkersSample][] = [];
  for (let round = 0; round < JOB_ROUNDS; round += 1) {
    rounds.push([await measureRound(file, systems[0], settings), await measureRound(file, systems[1], settings)]);
  }
  const costs = [];
  for (const [index, system] of systems.entries()) {
    const { profiles } = await measureRound(file, system, { ...settings, isProfiled: true });
    const plain = rounds.flatMap((round) => round[index] ?? []);
    costs.push(costOfJobs(plain, profiles));
  }
  const [floor, ours] = costs as [Cost, Cost];
  return section(`A job, ${load}, ${jobs} jobs`, systems[0], floor, ours);
}

async function costOfPairs(driver: DriverName, nodes: number, durationMs: number): Promise<Cost> {
  const servers = await startRedisNodes(nodes);
  const child = await startDriver(driver, servers, { ttl: 30_000 });
  try {
    const job: PairsJob = { kind: "pairs", callers: 100, durationMs, warmUpMs: durationMs };
    await child.ask<PairsResult>(job);
    const before = await readServers(servers);
    const plain = await child.ask<PairsResult>({ ...job, warmUpMs: 0 });
    const after = await readServers(servers);
    const { profile } = await child.ask<PairsResult>({ ...job, warmUpMs: 0, isProfiled: true });
    return {
      perSecond: (plain.pairs / plain.elapsedMs) * 1_000,
      clientCpuUs: (plain.cpuMs * 1_000) / plain.pairs,
      serverCpuUs: ((after.cpuMs - before.cpuMs) * 1_000) / plain.pairs,
      clientUs: clientShare(profile === undefined ? [] : [profile], (plain.cpuMs * 1_000) / plain.pairs),
      server: serverShare(commandsBetween(before, after), plain.pairs, after.cpuMs - before.cpuMs),
    };
  } finally {
    await child.stop();
    await Promise.all(servers.map((server) => server.stop()));
  }
}

async function costOfHandOvers(driver: DriverName, durationMs: number): Promise<Cost> {
  const servers = await startRedisNodes(1);
  const children = await startContenders(servers, driver);
  const sum = (results: readonly ContendResult[], of: (result: ContendResult) => number): number =>
    results.reduce((total, result) => total + of(result), 0);
  try {
    await contend(children, "warm-up", { durationMs });
    const before = await readServers(servers);
    const plain = await contend(children, "contended", { durationMs });
    const after = await readServers(servers);
    const profiles = await contend(children, "profiled", { durationMs, isProfiled: true });
    const grants = sum(plain, (result) => result.grants.length);
    const cpuUs = (sum(plain, (result) => result.cpuMs) * 1_000) / grants;
    return {
      perSecond: grants / (durationMs / 1_000),
      clientCpuUs: cpuUs,
      serverCpuUs: ((after.cpuMs - before.cpuMs) * 1_000) / grants,
      clientUs: clientShare(
        profiles.flatMap(({ profile }) => (profile === undefined ? [] : [profile])),
        cpuUs,
      ),
      server: serverShare(commandsBetween(before, after), grants, after.cpuMs - before.cpuMs),
    };
  } finally {
    await Promise.all(children.map((child) => child.stop()));
    await Promise.all(servers.map((server) => server.stop()));
  }
}

/** In a young process most code runs for the first time, and is not compiled yet. */
async function handOversByAge(driver: DriverName): Promise<readonly (readonly string[])[]> {
  const servers = await startRedisNodes(1);
  const children = await startContenders(servers, driver);
  const rows: string[][] = [];
  try {
    for (const [from, to] of [
      [0, 2],
      [2, 5],
      [5, 8],
    ] as const) {
      const times = timesOf(await contend(children, `aged ${from}`, { durationMs: (to - from) * 1_000 }));
      const { withinMs, toOtherMs, longestWaitMs } = times;
      const medians = [[...withinMs, ...toOtherMs], withinMs, toOtherMs].map((gapsMs) => fixed(median(gapsMs), 2));
      rows.push([driver, `${from}–${to}`, ...medians, fixed(longestWaitMs, 0)]);
    }
  } finally {
    await Promise.all(children.map((child) => child.stop()));
    await Promise.all(servers.map((server) => server.stop()));
  }
  return rows;
}

/** Returns the medians of the rounds. The commands are the commands of the last round. */
function costOfJobs(rounds: readonly WorkersSample[], profiles: readonly Profile[]): Cost {
  const each = (value: (sample: WorkersSample) => number): number => median(rounds.map(value));
  const mainUs = each(({ mainCpuMs, done }) => (mainCpuMs * 1_000) / done);
  const othersUs = each(({ cpuMs, mainCpuMs, done }) => ((cpuMs - mainCpuMs) * 1_000) / done);
  const serverUs = each(({ serverCpuMs, done }) => (serverCpuMs * 1_000) / done);
  const { byCommand = new Map(), done = 1 } = rounds.at(-1) ?? {};
  return {
    perSecond: each((sample) => (sample.done / sample.elapsedMs) * 1_000),
    firstMs: each(({ firstMs }) => firstMs),
    clientCpuUs: mainUs + othersUs,
    serverCpuUs: serverUs,
    clientUs: new Map([...clientShare(profiles, mainUs), ["V8's other threads", othersUs]]),
    server: serverShare(byCommand, done, (serverUs * done) / 1_000),
  };
}

/**
 * Divides the CPU time in proportion to the sampler's counts. The time of other threads, such as the compiler's, is
 * divided in the same way.
 */
function clientShare(profiles: readonly Profile[], cpuUs: number): ReadonlyMap<string, number> {
  const seen = profiles.flatMap((profile) => Object.entries(profile)).filter(([part]) => part !== "idle");
  const totalMs = seen.reduce((sum, [, ms]) => sum + ms, 0);
  const us = new Map<string, number>();
  for (const [part, ms] of seen) us.set(part, (us.get(part) ?? 0) + (ms / totalMs) * cpuUs);
  return us;
}

/**
 * Divides the CPU time in proportion to the time of each command by the server's clock. The time of a script includes
 * the commands that it calls, which are subtracted, so that the time of its own Lua remains.
 */
function serverShare(byCommand: ServerReading["byCommand"], count: number, cpuMs: number): Cost["server"] {
  const share = new Map<string, { calls: number; us: number }>();
  const ofScripts = { calls: 0, us: 0 };
  for (const [name, { calls, us }] of byCommand) {
    if (calls === 0 || name === "info") continue;
    const isScript = name.startsWith("eval");
    if (isScript) ofScripts.calls += calls / count;
    else share.set(name, { calls: calls / count, us });
    ofScripts.us += isScript ? us : -us;
  }
  share.set("scripts, their own Lua", ofScripts);
  const seenUs = [...share.values()].reduce((sum, { us }) => sum + us, 0);
  const cpuUs = (cpuMs * 1_000) / count;
  return new Map([...share].map(([name, { calls, us }]) => [name, { calls, us: (us / seenUs) * cpuUs }]));
}

function section(title: string, floorName: string, floor: Cost, ours: Cost): string {
  const total = (name: string, { perSecond, clientCpuUs, serverCpuUs, firstMs }: Cost): readonly string[] => [
    name,
    fixed(perSecond, 0),
    fixed(clientCpuUs, 1),
    fixed(serverCpuUs, 1),
    ...(firstMs === undefined ? [] : [fixed(firstMs, 0)]),
  ];
  const totals = table(
    ["", "per second", "client CPU µs", "server CPU µs", ...(ours.firstMs === undefined ? [] : ["first job ms"])],
    [total(floorName, floor), total("ours", ours)],
  );
  const client = rows(
    [...new Set([...floor.clientUs.keys(), ...ours.clientUs.keys()])].map((name) => {
      const [own, least] = [ours.clientUs.get(name) ?? 0, floor.clientUs.get(name) ?? 0];
      return { name, usDifference: own - least, cells: [fixed(least, 1), fixed(own, 1), fixed(own - least, 1)] };
    }),
    { emptyCells: 2, tellingUs: ours.clientCpuUs * TELLING_SHARE },
  );
  const server = rows(
    [...new Set([...floor.server.keys(), ...ours.server.keys()])].map((name) => {
      const none = { calls: 0, us: 0 };
      const [own, least] = [ours.server.get(name) ?? none, floor.server.get(name) ?? none];
      const calls = [fixed(least.calls, 2), fixed(own.calls, 2)];
      const usDifference = own.us - least.us;
      return { name, usDifference, cells: [...calls, fixed(least.us, 1), fixed(own.us, 1), fixed(usDifference, 1)] };
    }),
    { emptyCells: 4, tellingUs: ours.serverCpuUs * TELLING_SHARE },
  );
  return `${[
    `## ${title}`,
    totals,
    table(["client, by whose code runs", "floor µs", "ours µs", "difference µs"], client),
    table(["server, by command", "floor calls", "ours calls", "floor µs", "ours µs", "difference µs"], server),
  ].join("\n\n")}\n\n`;
}

interface Difference {
  readonly name: string;
  readonly usDifference: number;
  readonly cells: readonly string[];
}

/** Returns the rows, the largest first. The last row sums the small differences. */
function rows(
  differences: readonly Difference[],
  { emptyCells, tellingUs }: { readonly emptyCells: number; readonly tellingUs: number },
): readonly (readonly string[])[] {
  const isTelling = ({ usDifference }: Difference): boolean => Math.abs(usDifference) >= tellingUs;
  const telling = differences.filter(isTelling).toSorted((a, b) => b.usDifference - a.usDifference);
  const rest = differences.filter((each) => !isTelling(each)).reduce((sum, { usDifference }) => sum + usDifference, 0);
  const empty = Array.from({ length: emptyCells }, () => "");
  return [...telling.map(({ name, cells }) => [name, ...cells]), ["others", ...empty, fixed(rest, 1)]];
}
