/** How long each part is measured. */
import type { FairnessSettings } from "./fairness/fairness.ts";
import type { KeysSettings } from "./keys/keys.ts";
import type { LeadersSettings } from "./leaders/leaders.ts";
import type { ManySettings } from "./leaders/many.ts";
import type { HandOverSettings } from "./locks/hand-over.ts";
import type { MemorySettings } from "./locks/memory.ts";
import type { ThroughputSettings } from "./locks/throughput.ts";
import type { PartitionsSettings } from "./partitions/partitions.ts";
import type { WorkersSettings } from "./workers/workers.ts";

export interface BenchmarkSettings {
  readonly throughput: ThroughputSettings;
  readonly handOver: HandOverSettings;
  readonly hungNode: { readonly pairs: number };
  readonly held: { readonly locks: number; readonly durationMs: number };
  readonly memory: MemorySettings;
  readonly workers: WorkersSettings;
  readonly leaders: LeadersSettings;
  readonly elections: ManySettings;
  readonly partitions: PartitionsSettings;
  readonly keys: KeysSettings;
  readonly fairness: FairnessSettings;
}

const layouts = [
  { servers: 1, partitions: 1 },
  { servers: 1, partitions: 4 },
  { servers: 1, partitions: 16 },
  { servers: 1, partitions: 64 },
  { servers: 2, partitions: 16 },
  { servers: 3, partitions: 16 },
];

export const full: BenchmarkSettings = {
  throughput: { rounds: 11, durationMs: 1_000, warmUpMs: 500, callers: [1, 100, 1_000] },
  handOver: { rounds: 5, durationMs: 4_000 },
  hungNode: { pairs: 200 },
  held: { locks: 1_000, durationMs: 10_000 },
  memory: { rounds: 3, locks: 20_000 },
  workers: { rounds: 3, jobs: 20_000, limitMs: 60_000 },
  leaders: {
    nodeCounts: [1, 5],
    rounds: 2,
    candidates: 10,
    durations: { leaseMs: 1_500, retryPeriodMs: 200 },
    idleMs: 6_000,
    // In a round nine candidates lead for the first time. As many resignations make a candidate lead again.
    resignations: 18,
    crashes: 2,
  },
  elections: {
    nodeCounts: [1, 5],
    rounds: 2,
    elections: 1_000,
    durations: { leaseMs: 15_000, retryPeriodMs: 2_000 },
    idleMs: 15_000,
  },
  partitions: { rounds: 3, jobs: 20_000, idleMs: 10_000, layouts },
  keys: { rounds: 1, keyCounts: [1_000, 10_000, 100_000], backlog: 2, starts: 10_000 },
  fairness: {
    rounds: 1,
    loads: [
      { slots: 10, hot: 100_000, quiet: 1_000 },
      { slots: 1, hot: 10_000, quiet: 1_000 },
      { slots: 10, hot: 0, quiet: 10_000 },
    ],
  },
};

export const quick: BenchmarkSettings = {
  throughput: { rounds: 2, durationMs: 150, warmUpMs: 150, callers: [1, 100, 1_000] },
  handOver: { rounds: 1, durationMs: 500 },
  hungNode: { pairs: 20 },
  held: { locks: 1_000, durationMs: 3_000 },
  memory: { rounds: 1, locks: 5_000 },
  workers: { rounds: 1, jobs: 1_000, limitMs: 5_000 },
  leaders: {
    nodeCounts: [1],
    rounds: 1,
    candidates: 6,
    durations: { leaseMs: 1_000, retryPeriodMs: 140 },
    idleMs: 560,
    resignations: 1,
    crashes: 1,
  },
  elections: {
    nodeCounts: [1],
    rounds: 1,
    elections: 200,
    durations: { leaseMs: 2_000, retryPeriodMs: 280 },
    idleMs: 2_000,
  },
  partitions: { rounds: 1, jobs: 10_000, idleMs: 10_000, layouts: layouts.slice(0, 4) },
  keys: { rounds: 1, keyCounts: [300, 3_000], backlog: 2, starts: 600 },
  fairness: {
    rounds: 1,
    loads: [
      { slots: 10, hot: 5_000, quiet: 100 },
      { slots: 1, hot: 1_000, quiet: 100 },
      { slots: 10, hot: 0, quiet: 1_000 },
    ],
  },
};
