/** Metrics of exclusive workers. */
import type { BatchObservableResult, Counter, Meter, ObservableGauge } from "@opentelemetry/api";
import { diag } from "@opentelemetry/api";
import type { WorkerTraces } from "@x/workers";
import { allOf, listen, listenToCalls } from "./channels.ts";
import { durations } from "./meters.ts";

/** The part of an `ExclusiveQueue` or `PartitionedQueue` that the gauges use. */
export interface ObservedQueue {
  readonly name: string;
  counts(): Promise<{
    readonly runnable: number;
    readonly active: number;
    readonly parked: number;
    readonly runnableKeys?: number;
    readonly busyKeys: number;
    readonly pausedKeys: number;
    readonly waitingKeys?: number;
    readonly limitedKeys?: number;
    readonly oldestWaitingMs?: number;
  }>;
  listKeys(): Promise<
    readonly { readonly key: string; readonly parked: number; readonly sinceMs: number | undefined }[]
  >;
}

/** The name of a partition, which contains the name of its queue. */
const PARTITION = /^\{(.+)-\d+of\d+\}$/;

/** Returns the queue as an attribute. All partitions of a queue count as one queue. */
const queueOf = ({ queue }: { readonly queue: string }) => ({ "x.workers.queue": PARTITION.exec(queue)?.[1] ?? queue });

export function workerMetrics(meter: Meter): () => void {
  const waited = durations(meter, "x.workers.lock.wait.duration", "From the fetch of a job to the locks of its keys");
  const heldFor = durations(meter, "x.workers.lock.hold.duration", "How long jobs had their keys");
  const parkedFor = durations(
    meter,
    "x.workers.parked.duration",
    "For how long jobs that had to wait for their keys were parked",
  );
  const counter = (name: string, description: string): Counter =>
    meter.createCounter(name, { description, unit: "{job}" });
  const yielded = counter("x.workers.yielded", "Jobs that went back, by why");
  const lost = counter("x.workers.lost", "Jobs that lost a lock as they ran");
  const abandoned = counter("x.workers.abandoned", "Jobs that were fetched too long ago");
  return allOf([
    listen("x.workers.locked", (message) => waited.record(message.waitMs / 1_000, queueOf(message))),
    listen("x.workers.released", (message) => heldFor.record(message.heldMs / 1_000, queueOf(message))),
    listen("x.workers.yielded", (message) =>
      yielded.add(1, { ...queueOf(message), "x.workers.reason": message.reason }),
    ),
    listen("x.workers.lost", (message) => lost.add(1, queueOf(message))),
    listenToCalls<WorkerTraces["run"]>("x.workers:run", {
      begins: (facts) => {
        if (facts.parkedMs > 0) parkedFor.record(facts.parkedMs / 1_000, queueOf(facts));
      },
      ends: () => undefined,
    }),
    listen("x.workers.abandoned", (message) => abandoned.add(1, queueOf(message))),
  ]);
}

/** Prometheus gives a scrape 10 s. A queue that does not answer within this limit is left out of the export. */
const LONGEST_WAIT_MS = 3_000;

/**
 * Adds gauges that query Redis at each export. A queue that fails or does not answer in time is missing from the
 * export. While a query is pending, no second query is sent.
 */
export function queueGauges(meter: Meter, queues: readonly ObservedQueue[], topKeys: number): () => void {
  if (queues.length === 0) return () => undefined;
  const gauge = (name: string, unit: string, description: string): ObservableGauge =>
    meter.createObservableGauge(name, { description, unit });
  const ofJobs = "Jobs that a free slot would take, that run, and that wait for their key";
  const jobs = gauge("x.workers.jobs", "{job}", ofJobs);
  const ofKeys =
    "Keys with a job that could start, that a job has, that are paused, that jobs wait for, and that are rate limited";
  const keys = gauge("x.workers.keys", "{key}", ofKeys);
  const waiting = gauge("x.workers.key.waiting", "{job}", "Jobs that wait for a key, of the keys with the most");
  const ofOldest = "Since the job was added that waits for its key for longest";
  const oldest = gauge("x.workers.key.oldest_waiting", "s", ofOldest);
  const ofLongest = "Since the job was started that has had its key for longest";
  const longest = gauge("x.workers.key.longest_held", "s", ofLongest);
  const observe = async (result: BatchObservableResult): Promise<void> => {
    await Promise.all(
      queues.map(async (queue) => {
        try {
          await observeQueue(queue, result);
        } catch (error) {
          diag.warn("@x/otel", `queue ${queue.name}: ${String(error)}`);
        }
      }),
    );
  };
  const asked = new Map<ObservedQueue, ReturnType<typeof ask>>();
  const askOnce = (queue: ObservedQueue): ReturnType<typeof ask> => {
    const answer = asked.get(queue) ?? ask(queue).finally(() => asked.delete(queue));
    asked.set(queue, answer);
    return answer;
  };
  const observeQueue = async (observed: ObservedQueue, result: BatchObservableResult): Promise<void> => {
    const queue = queueOf({ queue: observed.name });
    const [counts, found] = await inTime(askOnce(observed));
    for (const state of ["runnable", "active", "parked"] as const)
      result.observe(jobs, counts[state], { ...queue, "x.workers.state": state });
    for (const state of ["runnable", "busy", "paused", "waiting", "limited"] as const)
      result.observe(keys, counts[`${state}Keys`] ?? 0, { ...queue, "x.workers.state": state });
    result.observe(oldest, (counts.oldestWaitingMs ?? 0) / 1_000, queue);
    const sinceMs = found.map((key) => key.sinceMs).filter((each) => each !== undefined);
    // oxlint-disable-next-line eslint/no-restricted-globals -- these are times by the servers' wall clocks
    const nowMs = Date.now();
    result.observe(longest, sinceMs.length === 0 ? 0 : Math.max(0, nowMs - Math.min(...sinceMs)) / 1_000, queue);
    const top = found.toSorted((a, b) => b.parked - a.parked).slice(0, topKeys);
    for (const { key, parked } of top) result.observe(waiting, parked, { ...queue, "x.workers.key": key });
  };
  const gauges = [jobs, keys, waiting, oldest, longest];
  meter.addBatchObservableCallback(observe, gauges);
  return () => meter.removeBatchObservableCallback(observe, gauges);
}

async function ask(
  queue: ObservedQueue,
): Promise<readonly [Awaited<ReturnType<ObservedQueue["counts"]>>, Awaited<ReturnType<ObservedQueue["listKeys"]>>]> {
  return await Promise.all([queue.counts(), queue.listKeys()]);
}

async function inTime<Answer>(answer: Promise<Answer>): Promise<Answer> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    const error = new Error(`no answer within ${LONGEST_WAIT_MS} ms`);
    // oxlint-disable-next-line eslint/no-restricted-globals -- no Clock: only what is exported depends on it
    timer = setTimeout(() => reject(error), LONGEST_WAIT_MS);
  });
  try {
    return await Promise.race([answer, late]);
  } finally {
    clearTimeout(timer);
  }
}
