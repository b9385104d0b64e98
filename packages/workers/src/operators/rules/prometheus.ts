/** Pure: gauges of a queue's keys in the text format of Prometheus, like BullMQ's own `exportPrometheusMetrics`. */
import { Check } from "@x/redlock-core/kit";
import type { JobCounts } from "./key-report.ts";

export interface KeyGauges {
  readonly counts: JobCounts;
  /** Number of jobs in the longest line of a key. */
  readonly longestLine: number;
  /** Time in ms since the job that has had its key for the longest time was started. */
  readonly longestHeldMs: number;
}

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

export function prometheusText(queue: string, gauges: KeyGauges, labels: Readonly<Record<string, string>>): string {
  const { counts, longestLine, longestHeldMs } = gauges;
  const { runnable, active, parked, runnableKeys, busyKeys, pausedKeys, waitingKeys, limitedKeys, oldestWaitingMs } =
    counts;
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
  ].join("\n");
}

/**
 * Combines the texts of all partitions into the text of one queue. Samples are added up, except for the oldest and the
 * longest times and lines, of which the greatest value counts.
 */
export function sumPrometheusTexts(queue: string, texts: readonly string[]): string {
  const sums = new Map<string, number | undefined>();
  for (const line of texts.flatMap((text) => text.split("\n"))) {
    const [, name, labels, value] = SAMPLE.exec(line) ?? [];
    if (name === undefined) {
      sums.set(line, undefined);
      continue;
    }
    const sample = `${name}{queue="${escaped(queue)}"${labels}`;
    const [sum, added] = [sums.get(sample) ?? 0, Number(value)];
    sums.set(sample, /_(oldest|longest)_/.test(name) ? Math.max(sum, added) : sum + added);
  }
  return [...sums].map(([line, sum]) => (sum === undefined ? line : `${line} ${sum}`)).join("\n");
}

/** BullMQ also writes the queue as the first label. */
const SAMPLE = /^(\w+)\{queue="(?:[^"\\]|\\.)*"(.*) (\S+)$/;

function gauge(
  name: string,
  help: string,
  samples: readonly (readonly [labels: Readonly<Record<string, string>>, value: number])[],
): readonly string[] {
  const lines = samples.map(([labels, value]) => {
    const pairs = Object.entries(labels).map(([label, text]) => `${label}="${escaped(text)}"`);
    return `${name}{${pairs.join(", ")}} ${value}`;
  });
  return [`# HELP ${name} ${help}`, `# TYPE ${name} gauge`, ...lines];
}

function escaped(text: string): string {
  return text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}
