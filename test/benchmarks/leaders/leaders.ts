/**
 * Candidates in their own processes: measures their cost while one of them leads, and how soon the next one leads after
 * a resignation and after the leader's process was killed.
 */
import { setTimeout as delay } from "node:timers/promises";
import { type RedisServer, startRedisNodes } from "@x/test-support";
import { compileChild } from "../support/compile.ts";
import { readServers } from "../support/servers.ts";
import { quantile, rotated, type Spread, spread } from "../support/statistics.ts";
import type { Durations } from "./ballot.ts";
import { Contest, type Failover } from "./contest.ts";
import { countTwoLeaders } from "./terms.ts";
import { type WayName, wayNames, ways } from "./ways.ts";

export interface LeadersSettings {
  /** Numbers of Redis nodes. */
  readonly nodeCounts: readonly number[];
  readonly rounds: number;
  /** Candidates of one way, each in its own process. */
  readonly candidates: number;
  readonly durations: Durations;
  readonly idleMs: number;
  /** Resignations and crashes of a round. Each crash leaves one candidate less. */
  readonly resignations: number;
  readonly crashes: number;
}

export interface LeadersRow {
  readonly way: WayName;
  /** Description of a candidate of this way. */
  readonly text: string;
  readonly nodes: number;
  readonly candidates: number;
  readonly rounds: number;
  readonly durations: Durations;
  /** Commands of all candidates to all nodes, while no leader changes. */
  readonly commandsPerSecond: Spread;
  readonly serverCallsPerSecond: Spread;
  /** CPU of all candidates, as a share of one core. */
  readonly clientCpuPercent: Spread;
  /** Failovers by whether the next leader led for the first time in its process. */
  readonly resignedCold: Failovers;
  readonly resignedWarm: Failovers;
  readonly crashed: Failovers;
  /** Terms that began while another term lasted. */
  readonly twoLeaders: number;
  /** Terms that ended without a request. */
  readonly lostTerms: number;
}

export interface Failovers {
  readonly tried: number;
  /** Failovers after which the next candidate led before they were cut off. */
  readonly done: number;
  readonly tookMs: Spread;
  readonly maxMs: number;
}

const limitMs = 10_000;

/** Measures all ways with every number of nodes, in turn within each round. */
export async function measureLeaders(
  settings: LeadersSettings,
  names: readonly WayName[] = wayNames,
): Promise<readonly LeadersRow[]> {
  const child = await compileChild(new URL("./child.ts", import.meta.url), "leaders");
  const rows: LeadersRow[] = [];
  for (const nodeCount of settings.nodeCounts) {
    const samples = new Map<WayName, Sample[]>(names.map((way) => [way, []]));
    for (let round = 0; round < settings.rounds; round += 1) {
      for (const way of rotated(names, round)) {
        samples.get(way)?.push(await measureRound(child, way, { nodeCount, round }, settings));
      }
    }
    for (const way of names) rows.push(rowOf(way, nodeCount, settings, samples.get(way) ?? []));
  }
  return rows;
}

interface Sample {
  readonly commandsPerSecond: number;
  readonly serverCallsPerSecond: number;
  readonly clientCpuPercent: number;
  readonly resigned: readonly Failover[];
  readonly crashed: readonly Failover[];
  readonly twoLeaders: number;
  readonly lostTerms: number;
}

async function measureRound(
  child: URL,
  way: WayName,
  { nodeCount, round }: { readonly nodeCount: number; readonly round: number },
  settings: LeadersSettings,
): Promise<Sample> {
  const { candidates, durations, rounds } = settings;
  const servers = await startRedisNodes(nodeCount);
  try {
    await using contest = await Contest.start(child, way, servers, { candidates, durations, limitMs });
    // By then the followers have asked once and wait.
    await delay(durations.leaseMs / 2);
    const idle = await measureIdle(contest, servers, settings.idleMs);
    const startShare = round / rounds;
    const resigned = await failovers(settings.resignations, startShare, durations, () => contest.resign());
    const crashed = await failovers(settings.crashes, startShare, durations, () => contest.crash());
    return {
      ...idle,
      resigned,
      crashed,
      twoLeaders: countTwoLeaders(await contest.end()),
      lostTerms: contest.lostTerms,
    };
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
  }
}

async function measureIdle(
  contest: Contest,
  servers: readonly RedisServer[],
  idleMs: number,
): Promise<Pick<Sample, "commandsPerSecond" | "serverCallsPerSecond" | "clientCpuPercent">> {
  const startMs = performance.now();
  const before = await readServers(servers);
  const results = await contest.idle(idleMs);
  const after = await readServers(servers);
  const perMs = (value: (result: (typeof results)[number]) => number): number =>
    results.reduce((sum, result) => sum + value(result) / result.elapsedMs, 0);
  return {
    commandsPerSecond: perMs(({ commands }) => commands) * 1_000,
    serverCallsPerSecond: ((after.calls - before.calls) / (performance.now() - startMs)) * 1_000,
    clientCpuPercent: perMs(({ cpuMs }) => cpuMs) * 100,
  };
}

/**
 * Failovers one after the other. Over all rounds, their moments are spread evenly over the time between two renewals.
 */
async function failovers(
  count: number,
  startShare: number,
  { retryPeriodMs }: Durations,
  fail: () => Promise<Failover>,
): Promise<readonly Failover[]> {
  const seen: Failover[] = [];
  for (let index = 0; index < count; index += 1) {
    await delay((2 + (index + startShare) / count) * retryPeriodMs);
    seen.push(await fail());
  }
  return seen;
}

function rowOf(
  way: WayName,
  nodes: number,
  { candidates, durations }: LeadersSettings,
  samples: readonly Sample[],
): LeadersRow {
  const sum = (value: (sample: Sample) => number): number =>
    samples.reduce((total, sample) => total + value(sample), 0);
  const resigned = samples.flatMap((sample) => sample.resigned);
  return {
    way,
    text: ways[way].text,
    nodes,
    candidates,
    rounds: samples.length,
    durations,
    commandsPerSecond: spread(samples.map(({ commandsPerSecond }) => commandsPerSecond)),
    serverCallsPerSecond: spread(samples.map(({ serverCallsPerSecond }) => serverCallsPerSecond)),
    clientCpuPercent: spread(samples.map(({ clientCpuPercent }) => clientCpuPercent)),
    resignedCold: failoversOf(resigned.filter(({ isWarm }) => !isWarm)),
    resignedWarm: failoversOf(resigned.filter(({ isWarm }) => isWarm)),
    crashed: failoversOf(samples.flatMap(({ crashed }) => crashed)),
    twoLeaders: sum(({ twoLeaders }) => twoLeaders),
    lostTerms: sum(({ lostTerms }) => lostTerms),
  };
}

function failoversOf(seen: readonly Failover[]): Failovers {
  const done = seen.flatMap(({ tookMs }) => tookMs ?? []);
  return { tried: seen.length, done: done.length, tookMs: spread(done), maxMs: quantile(done, 1) };
}
