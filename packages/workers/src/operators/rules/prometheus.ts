/** Pure: gauges of a queue's keys in the text format of Prometheus, like BullMQ's own `exportPrometheusMetrics`. */
import { Check } from "@x/redlock-core/kit";
import type { ExclusionFigures } from "./exclusion.ts";
import type { JobCounts } from "./key-report.ts";

/** Labels for every sample, like BullMQ's `globalVariables`. */
export const LABELS: Check<Readonly<Record<string, string>>> = new Check<Readonly<Record<string, string>>>({
  rule: "an object of strings with valid Prometheus label names",
  faultOf: (given) => {
    if (Object.prototype.toString.call(given) !== "[object Object]") return "type";
    const entries = Object.entries(given as object);
    if (entries.some(([, value]) => typeof value !== "string")) return "type";
    return entries.every(([name]) => /^[a-zA-Z_]\w*$/.test(name) && !RESERVED.has(name)) ? undefined : "range";
  },
});

const RESERVED: ReadonlySet<string> = new Set(["queue", "state"]);

/** The figures of a queue that the text contains. */
export interface ExportedFigures {
  readonly counts: JobCounts;
  readonly exclusion: Pick<ExclusionFigures, "mode" | "overlaps" | "outOfOrder">;
}

export function prometheusText(
  queue: string,
  { counts, exclusion }: ExportedFigures,
  labels: Readonly<Record<string, string>>,
): string {
  const { runnable, active, parked, runnableKeys, busyKeys, pausedKeys, waitingKeys, limitedKeys } = counts;
  const { oldestWaitingMs, longestLine, longestHeldMs } = counts;
  const common = { queue, ...labels };
  return [
    ...gauge("x_workers_jobs", "Jobs that a free slot would take, that run, and that wait for their key", [
      [{ ...common, state: "runnable" }, runnable],
      [{ ...common, state: "active" }, active],
      [{ ...common, state: "parked" }, parked],
    ]),
    ...gauge(
      "x_workers_keys",
      "Keys with a job that could start, that a job has, that are paused, that jobs wait for, and that are rate limited",
      [
        [{ ...common, state: "runnable" }, runnableKeys],
        [{ ...common, state: "busy" }, busyKeys],
        [{ ...common, state: "paused" }, pausedKeys],
        [{ ...common, state: "waiting" }, waitingKeys],
        [{ ...common, state: "limited" }, limitedKeys],
      ],
    ),
    ...gauge("x_workers_oldest_waiting_seconds", "Time since the job was added that has waited longest for its key", [
      [common, oldestWaitingMs / 1_000],
    ]),
    ...gauge("x_workers_longest_line", "Jobs that wait for the key with the longest line", [[common, longestLine]]),
    ...gauge(
      "x_workers_longest_held_seconds",
      "Time since the job was started that has had its key for the longest time",
      [[common, longestHeldMs / 1_000]],
    ),
    ...gauge("x_workers_watched", "1 while the queue is only watched, so that jobs of a key may overlap", [
      [common, exclusion.mode === "watch" ? 1 : 0],
    ]),
    ...gauge("x_workers_early_starts", "Starts that exclusion would have delayed since the queue was last watched", [
      [{ ...common, state: "overlap" }, exclusion.overlaps],
      [{ ...common, state: "out_of_order" }, exclusion.outOfOrder],
    ]),
  ].join("\n");
}

/** BullMQ's own figures of a queue. */
export interface BullCounts {
  /** Number of jobs by state. */
  readonly jobs: Readonly<Record<string, number>>;
  readonly completed: number;
  readonly failed: number;
}

/** Returns BullMQ's own metrics as the method of its `Queue` does, for the figures of several partitions together. */
export function bullText(queue: string, counts: BullCounts, labels: Readonly<Record<string, string>>): string {
  const states = Object.entries(counts.jobs);
  const total = (state: "completed" | "failed"): readonly string[] =>
    metric(`bullmq_job_${state}_total`, "counter", `Total number of ${state} jobs`, [
      [{ queue, ...labels }, counts[state]],
    ]);
  return [
    ...gauge(
      "bullmq_job_count",
      "Number of jobs in the queue by state",
      states.map(([state, count]) => [{ queue, state, ...labels }, count]),
    ),
    ...total("completed"),
    ...total("failed"),
  ].join("\n");
}

/**
 * Adds up the counts of all partitions by name. Of the counts that begin with `oldest` or `longest`, the greatest is
 * used.
 */
export function sumCounts<Counts extends object>(counts: readonly Counts[]): Counts {
  const sums: Record<string, number> = {};
  for (const each of counts) {
    for (const [name, count] of Object.entries(each)) {
      const [sum, added] = [sums[name] ?? 0, Number(count)];
      sums[name] = /^(oldest|longest)/.test(name) ? Math.max(sum, added) : sum + added;
    }
  }
  return sums as Counts;
}

type Samples = readonly (readonly [labels: Readonly<Record<string, string>>, value: number])[];

function gauge(name: string, help: string, samples: Samples): readonly string[] {
  return metric(name, "gauge", help, samples);
}

function metric(name: string, type: "gauge" | "counter", help: string, samples: Samples): readonly string[] {
  const lines = samples.map(([labels, value]) => {
    const pairs = Object.entries(labels).map(([label, text]) => `${label}="${escaped(text)}"`);
    return `${name}{${pairs.join(", ")}} ${value}`;
  });
  return [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...lines];
}

function escaped(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}
