/** Metrics of exclusive workers. */
import type { BatchObservableResult, Meter } from "@opentelemetry/api";
import { diag } from "@opentelemetry/api";
import type { WorkerTraces } from "@x/workers";
import { listen, listenToCalls } from "./channels.ts";
import { SECONDS } from "./locks.ts";

/** The part of an `ExclusiveWorker`, or a `PartitionedWorker`, that gauges ask. */
export interface ObservedWorker {
  readonly name: string;
  counts(): Promise<{
    readonly runnable: number;
    readonly active: number;
    readonly parked: number;
    readonly busyKeys: number;
    readonly pausedKeys: number;
    readonly waitingKeys?: number;
    readonly limitedKeys?: number;
    readonly oldestWaitingMs?: number;
  }>;
  listKeys(): Promise<readonly { readonly key: string; readonly parked: number; readonly since: number | undefined }[]>;
}

/** The name of a partition, with the name of its queue. */
const PARTITION = /^\{(.+)-\d+of\d+\}$/;

/** All partitions of a queue count as one. */
const of = ({ queue }: { readonly queue: string }) => ({ "x.workers.queue": PARTITION.exec(queue)?.[1] ?? queue });

export function workerMetrics(meter: Meter): () => void {
  const waited = meter.createHistogram("x.workers.lock.wait.duration", {
    description: "From the fetch of a job to the locks of its keys",
    ...SECONDS,
  });
  const heldFor = meter.createHistogram("x.workers.lock.hold.duration", {
    description: "How long jobs had their keys",
    ...SECONDS,
  });
  const parkedFor = meter.createHistogram("x.workers.parked.duration", {
    description: "For how long jobs that had to wait for their keys were parked",
    ...SECONDS,
  });
  const yielded = meter.createCounter("x.workers.yielded", {
    description: "Jobs that went back, by why",
    unit: "{job}",
  });
  const lost = meter.createCounter("x.workers.lost", {
    description: "Jobs that lost a lock as they ran",
    unit: "{job}",
  });
  const stale = meter.createCounter("x.workers.stale", {
    description: "Jobs that were fetched too long ago",
    unit: "{job}",
  });
  const stops = [
    listen("x.workers.locked", (message) => waited.record(message.waitMs / 1_000, of(message))),
    listen("x.workers.released", (message) => heldFor.record(message.heldMs / 1_000, of(message))),
    listen("x.workers.yielded", (message) => yielded.add(1, { ...of(message), "x.workers.reason": message.reason })),
    listen("x.workers.lost", (message) => lost.add(1, of(message))),
    listenToCalls<WorkerTraces["run"]>("x.workers:run", {
      begins: (facts) => {
        if (facts.parkedMs > 0) parkedFor.record(facts.parkedMs / 1_000, of(facts));
      },
      ends: () => undefined,
    }),
    listen("x.workers.stale", (message) => stale.add(1, of(message))),
  ];
  return () => {
    for (const stop of stops) stop();
  };
}

/** Gauges that ask Redis each time that metrics are read. A queue that cannot be asked has none that time. */
export function workerGauges(meter: Meter, workers: readonly ObservedWorker[], topKeys: number): () => void {
  if (workers.length === 0) return () => undefined;
  const jobs = meter.createObservableGauge("x.workers.jobs", {
    description: "Jobs that a free slot would take, that run, and that wait for their key",
    unit: "{job}",
  });
  const keys = meter.createObservableGauge("x.workers.keys", {
    description: "Keys that a job has, that are paused, that jobs wait for, and that are rate limited",
    unit: "{key}",
  });
  const waiting = meter.createObservableGauge("x.workers.key.waiting", {
    description: "Jobs that wait for a key, of the keys with the most",
    unit: "{job}",
  });
  const oldest = meter.createObservableGauge("x.workers.key.oldest_waiting", {
    description: "Since the job was added that waits for its key for longest",
    unit: "s",
  });
  const longest = meter.createObservableGauge("x.workers.key.longest_held", {
    description: "Since the job was started that has had its key for longest",
    unit: "s",
  });
  const observe = async (result: BatchObservableResult): Promise<void> => {
    await Promise.all(
      workers.map(async (worker) => {
        try {
          await observeWorker(worker, result);
        } catch (error) {
          diag.warn("@x/otel", `queue ${worker.name}: ${String(error)}`);
        }
      }),
    );
  };
  const observeWorker = async (worker: ObservedWorker, result: BatchObservableResult): Promise<void> => {
    const queue = of({ queue: worker.name });
    const [counts, found] = await Promise.all([worker.counts(), worker.listKeys()]);
    for (const state of ["runnable", "active", "parked"] as const)
      result.observe(jobs, counts[state], { ...queue, "x.workers.state": state });
    result.observe(keys, counts.busyKeys, { ...queue, "x.workers.state": "busy" });
    result.observe(keys, counts.pausedKeys, { ...queue, "x.workers.state": "paused" });
    result.observe(keys, counts.waitingKeys ?? 0, { ...queue, "x.workers.state": "waiting" });
    result.observe(keys, counts.limitedKeys ?? 0, { ...queue, "x.workers.state": "limited" });
    result.observe(oldest, (counts.oldestWaitingMs ?? 0) / 1_000, queue);
    const since = found.map((key) => key.since).filter((each) => each !== undefined);
    // oxlint-disable-next-line eslint/no-restricted-globals -- these are times by the servers' wall clocks
    const nowMs = Date.now();
    result.observe(longest, since.length === 0 ? 0 : Math.max(0, nowMs - Math.min(...since)) / 1_000, queue);
    const top = found.toSorted((a, b) => b.parked - a.parked).slice(0, topKeys);
    for (const { key, parked } of top) result.observe(waiting, parked, { ...queue, "x.workers.key": key });
  };
  const observed = [jobs, keys, waiting, oldest, longest];
  meter.addBatchObservableCallback(observe, observed);
  return () => meter.removeBatchObservableCallback(observe, observed);
}
