/**
 * The setting of a run, drawn from the seed: its size, its clocks, its network, and the classes of faults (a swarm: few
 * at a time).
 */

import {
  Drift,
  Machine,
  type NetworkOptions,
  type SeededRandom,
  type World,
} from "../../packages/testing/src/world.ts";

export const FAULTS = [
  "slow",
  "stall",
  "partition",
  "reset",
  "server freeze",
  "crash",
  "failover",
  "flush",
  "script flush",
  "client freeze",
  "client stall",
  "suspend",
  "client kill",
  "wall clock step",
] as const;

export type FaultClass = (typeof FAULTS)[number];

export interface Setting {
  readonly nodeCount: number;
  readonly machineCount: number;
  readonly tasksPerMachine: number;
  readonly resources: readonly string[];
  /** Duration of the faults in ms. */
  readonly faultyMs: number;
  readonly maxTtl: number;
  readonly nodeTimeout: number;
  readonly driftFactor: number;
  readonly retryJitter: number;
  /** Chance that a task first releases a lock by force, as an operator does. */
  readonly forceChance: number;
  /** Greatest error of a client's wall clock in ms. */
  readonly skewMs: number;
  readonly network: NetworkOptions;
  readonly faults: ReadonlySet<FaultClass>;
  /** Mean pause between two faults in ms. */
  readonly faultPauseMs: number;
  /** Chance that an event such as a grant or a release provokes a fault. */
  readonly provoked: number;
}

export interface SettingOptions {
  readonly nodeCount?: number | undefined;
  readonly minutes?: number | undefined;
}

const LOSES_DATA: readonly FaultClass[] = ["crash", "failover", "flush"];

export function drawSetting(random: SeededRandom, options: SettingOptions): Setting {
  const faults = new Set(FAULTS.filter(() => random.chance(0.35)));
  const losesData = LOSES_DATA.some((fault) => faults.has(fault));
  const maxTtl = random.pick([600, 1_500, 4_000]);
  return {
    nodeCount: options.nodeCount ?? random.pick(losesData ? [3, 3, 5] : [1, 2, 3, 3, 4, 5]),
    machineCount: random.integer(2, 4),
    tasksPerMachine: random.integer(1, 2),
    resources: random.chance(0.7) ? ["orders"] : ["orders", "stock"],
    faultyMs: options.minutes === undefined ? random.between(1.5, 4) * maxTtl : options.minutes * 60_000,
    maxTtl,
    nodeTimeout: random.integer(20, 150),
    driftFactor: random.pick([0.01, 0.05]),
    retryJitter: random.pick([0, 0, 10, 50]),
    forceChance: random.chance(0.15) ? 0.1 : 0,
    // Over a loss of data, tokens keep their order only while clocks agree better than maxTtl - nodeTimeout (promise 2
    // of redlock-core's README).
    skewMs: losesData ? 40 : random.pick([0, 50, 2_000, 100_000]),
    network: {
      delayMs: random.between(0.1, 3),
      jitterMs: random.between(0.1, 5),
      slowChance: faults.has("slow") ? random.between(0.02, 0.3) : 0,
      slowMs: random.between(10, 400),
    },
    faults,
    faultPauseMs: random.between(30, 500),
    provoked: random.pick([0, 0.1, 0.3]),
  };
}

export function losesData({ faults }: Setting): boolean {
  return LOSES_DATA.some((fault) => faults.has(fault));
}

export function describeSetting(setting: Setting): readonly string[] {
  return [
    `${setting.nodeCount} nodes, ${setting.machineCount} clients, ${setting.tasksPerMachine} tasks each, on ${setting.resources.join(" and ")}`,
    `maxTtl ${setting.maxTtl} ms, nodeTimeout ${setting.nodeTimeout} ms, driftFactor ${setting.driftFactor}, clocks off by up to ${setting.skewMs} ms`,
    `faults: ${[...setting.faults].join(", ") || "none"}`,
  ];
}

/**
 * Draws the drift of a clock: as far from true time as `driftFactor` allows two clocks to differ, over two of the
 * longest leases.
 */
export function drawDrift(random: SeededRandom, setting: Setting): Drift {
  const halfPeriodMs = 2 * setting.maxTtl;
  return new Drift(random.pick([0, 1, 1]) * 0.49 * setting.driftFactor, halfPeriodMs, random.pick([0, halfPeriodMs]));
}

/** Draws the machine of a client process: the rate and the error of its clock, and its stalls. */
export function drawMachine(world: World, name: string, setting: Setting): Machine {
  const { random } = world;
  return new Machine(world, {
    name,
    drift: drawDrift(random, setting),
    wallOffsetMs: random.between(-1, 1) * setting.skewMs,
    stallChance: setting.faults.has("client stall") ? 0.002 : 0,
    longestStallMs: 0.7 * setting.maxTtl,
  });
}
