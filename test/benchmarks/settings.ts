/** How long everything is measured. */
import type { HandOverSettings } from "./locks/hand-over.ts";
import type { ThroughputSettings } from "./locks/throughput.ts";
import type { WorkersSettings } from "./workers/workers.ts";

export interface BenchmarkSettings {
  readonly throughput: ThroughputSettings;
  readonly handOver: HandOverSettings;
  readonly hungNode: { readonly pairs: number };
  readonly held: { readonly locks: number; readonly durationMs: number };
  readonly workers: WorkersSettings;
}

export const full: BenchmarkSettings = {
  throughput: { rounds: 11, durationMs: 1_000, warmUpMs: 500 },
  handOver: { rounds: 5, durationMs: 4_000 },
  hungNode: { pairs: 200 },
  held: { locks: 1_000, durationMs: 10_000 },
  workers: { rounds: 3, jobs: 20_000, limitMs: 60_000 },
};

export const quick: BenchmarkSettings = {
  throughput: { rounds: 2, durationMs: 150, warmUpMs: 150 },
  handOver: { rounds: 1, durationMs: 500 },
  hungNode: { pairs: 20 },
  held: { locks: 1_000, durationMs: 3_000 },
  workers: { rounds: 1, jobs: 1_000, limitMs: 5_000 },
};
