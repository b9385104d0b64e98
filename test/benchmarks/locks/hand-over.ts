/** Twenty waiters in two processes on one lock: measures the time, the cost and the fairness of hand-overs. */
import { machineMs, type RedisServer, startRedisNodes } from "@x/test-support";
import type { JobChild } from "../support/jobs.ts";
import { fairness, median, quantile, rotated, type Spread, spread } from "../support/statistics.ts";
import type { ContendJob, ContendResult } from "./child.ts";
import type { DriverName } from "./drivers.ts";
import { startDriver } from "./start-driver.ts";

export interface HandOverSettings {
  readonly rounds: number;
  readonly durationMs: number;
}

interface Contender {
  readonly driver: DriverName;
  readonly label: string;
  /** Milliseconds between two attempts. Undefined for the library's default. */
  readonly retryDelay: number | undefined;
}

export interface HandOverRow {
  readonly label: string;
  readonly nodes: number;
  readonly handOvers: number;
  /** Time from the call of a release to the next grant, within a round. */
  readonly p50Ms: Spread;
  readonly p99Ms: Spread;
  /** Commands of all waiters to all nodes, for each grant. */
  readonly commands: number;
  readonly fairness: number;
  readonly longestWaitMs: Spread;
  /** Grants that began before the previous lock was released. */
  readonly overlaps: number;
  readonly errors: number;
}

const waitersPerProcess = 10;
const holdMs = 1;
const thinkMs = 10;

/**
 * The peers with 10 ms between two attempts, the shortest time that does not slow the holder down, and with their
 * defaults.
 */
const contenders: readonly Contender[] = [
  { driver: "ioredis", label: "ioredis, 10 ms", retryDelay: 10 },
  { driver: "redlock 4", label: "redlock 4, 10 ms", retryDelay: 10 },
  { driver: "redlock 5", label: "redlock 5, default", retryDelay: undefined },
  { driver: "redlock 5", label: "redlock 5, 10 ms", retryDelay: 10 },
  { driver: "redlock-universal", label: "redlock-universal, 10 ms", retryDelay: 10 },
  { driver: "redis-semaphore", label: "redis-semaphore, 10 ms", retryDelay: 10 },
  { driver: "a line alone", label: "a line alone (floor)", retryDelay: undefined },
  { driver: "ours", label: "ours", retryDelay: undefined },
];

/** `drivers`: default all. */
export async function measureHandOver(
  settings: HandOverSettings,
  drivers?: readonly DriverName[],
): Promise<readonly HandOverRow[]> {
  const chosen = contenders.filter(({ driver }) => drivers === undefined || drivers.includes(driver));
  const rows: HandOverRow[] = [];
  for (const nodeCount of [1, 5]) {
    const servers = await startRedisNodes(nodeCount);
    try {
      rows.push(...(await measureOn(servers, settings, chosen)));
    } finally {
      await Promise.all(servers.map((server) => server.stop()));
    }
  }
  return rows;
}

async function measureOn(
  servers: readonly RedisServer[],
  settings: HandOverSettings,
  chosen: readonly Contender[],
): Promise<readonly HandOverRow[]> {
  // With 10 ms between two attempts redlock 5 keeps its own incomplete votes, and no waiter acquires the lock on five
  // nodes.
  const measured = chosen.filter(
    ({ driver, retryDelay }) =>
      servers.length === 1 || !(driver === "a line alone" || (driver === "redlock 5" && retryDelay !== undefined)),
  );
  const samples = new Map<Contender, Round[]>(measured.map((contender) => [contender, []]));
  for (let round = 0; round < settings.rounds; round += 1) {
    for (const contender of rotated(measured, round)) {
      samples.get(contender)?.push(await measureRound(servers, contender, { round, durationMs: settings.durationMs }));
    }
  }
  return measured.map((contender) => rowOf(contender, servers.length, samples.get(contender) ?? []));
}

type Round = readonly ContendResult[];

async function measureRound(
  servers: readonly RedisServer[],
  { driver, label, retryDelay }: Contender,
  settings: { readonly round: number; readonly durationMs: number },
): Promise<Round> {
  const children = await startContenders(servers, driver, retryDelay);
  try {
    return await contend(children, `contended ${label} ${settings.round}`, settings);
  } finally {
    await Promise.all(children.map((child) => child.stop()));
  }
}

export async function startContenders(
  servers: readonly RedisServer[],
  driver: DriverName,
  retryDelay?: number,
): Promise<readonly JobChild[]> {
  const children: JobChild[] = [];
  for (let index = 0; index < 2; index += 1)
    children.push(await startDriver(driver, servers, { ttl: 20_000, retryDelay }));
  // When both processes have answered, both have started.
  await Promise.all(children.map((child) => child.ask({ kind: "latency", count: 1, cutOffMs: 5_000 })));
  return children;
}

export async function contend(
  children: readonly JobChild[],
  resource: string,
  settings: { readonly durationMs: number; readonly isProfiled?: boolean },
): Promise<Round> {
  const { durationMs, isProfiled = false } = settings;
  const startMs = machineMs() + 50;
  const job: ContendJob = {
    kind: "contend",
    resource,
    waiters: waitersPerProcess,
    holdMs,
    thinkMs,
    startMs,
    endMs: startMs + durationMs,
    isProfiled,
  };
  return await Promise.all(children.map((child) => child.ask<ContendResult>(job)));
}

/** The times and the order of the grants of a round. */
export interface HandOverTimes {
  /** Times from the call of a release to the next grant: within a process (`withinMs`), and to the other process. */
  readonly withinMs: readonly number[];
  readonly toOtherMs: readonly number[];
  readonly longestWaitMs: number;
  readonly overlaps: number;
  /** The number of grants of each waiter. */
  readonly shares: readonly number[];
}

export function timesOf(round: Round): HandOverTimes {
  const grants = round.flatMap((result, child) =>
    result.grants.map(([waiter, calledMs, grantedMs, releasedMs]) => ({
      child,
      waiter: `${child} ${waiter}`,
      calledMs,
      grantedMs,
      releasedMs,
    })),
  );
  grants.sort((a, b) => a.grantedMs - b.grantedMs);
  const shares = new Map<string, number>();
  const withinMs: number[] = [];
  const toOtherMs: number[] = [];
  let overlaps = 0;
  let longestWaitMs = 0;
  for (const [index, { child, waiter, calledMs, grantedMs }] of grants.entries()) {
    shares.set(waiter, (shares.get(waiter) ?? 0) + 1);
    longestWaitMs = Math.max(longestWaitMs, grantedMs - calledMs);
    const before = grants[index - 1];
    if (before === undefined) continue;
    if (grantedMs < before.releasedMs) overlaps += 1;
    // No waiter waited at that moment, so the grant is not a hand-over.
    if (calledMs >= before.releasedMs) continue;
    (before.child === child ? withinMs : toOtherMs).push(grantedMs - before.releasedMs);
  }
  return { withinMs, toOtherMs, longestWaitMs, overlaps, shares: [...shares.values()] };
}

function rowOf({ label }: Contender, nodes: number, rounds: readonly Round[]): HandOverRow {
  const times = rounds.map(timesOf);
  const gapsMs = times.map(({ withinMs, toOtherMs }) => [...withinMs, ...toOtherMs]);
  const sum = (of: (result: ContendResult) => number): readonly number[] =>
    rounds.map((results) => results.reduce((total, result) => total + of(result), 0));
  const grants = sum((result) => result.grants.length);
  const total = (values: readonly number[]): number => values.reduce((all, value) => all + value, 0);
  return {
    label,
    nodes,
    handOvers: total(grants),
    p50Ms: spread(gapsMs.map((gaps) => quantile(gaps, 0.5))),
    p99Ms: spread(gapsMs.map((gaps) => quantile(gaps, 0.99))),
    commands: median(sum((result) => result.commands).map((commands, round) => commands / (grants[round] ?? 0))),
    fairness: median(times.map(({ shares }) => fairness(shares))),
    longestWaitMs: spread(times.map(({ longestWaitMs }) => longestWaitMs)),
    overlaps: total(times.map(({ overlaps }) => overlaps)),
    errors: total(sum((result) => result.errors)),
  };
}
