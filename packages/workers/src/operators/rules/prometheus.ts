/**
 * Pure: what is told of a queue's keys in the text format of Prometheus, as BullMQ's own `exportPrometheusMetrics`
 * does.
 */
import { Check } from "@x/redlock-core/kit";
import type { JobCounts } from "./key-report.ts";

export interface KeyGauges {
  readonly counts: JobCounts;
  /** The jobs in the longest line of one key. */
  readonly longestLine: number;
  /** How long ago the job was started that has had its key for longest, in ms. */
  readonly longestHeldMs: number;
}

/** Labels for every sample, as BullMQ's `globalVariables`. */
export const LABELS: Check<Readonly<Record<string, string>>> = new Check<Readonly<Record<string, string>>>({
  rule: "an object of strings whose names are labels of Prometheus",
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
  const { runnable, active, parked, busyKeys, pausedKeys, waitingKeys, limitedKeys, oldestWaitingMs } = counts;
  const common = { queue, ...labels };
  return [
    ...gauge("x_workers_jobs", "Jobs that a free slot would take, that run, and that wait for their key", [
      [{ ...common, state: "runnable" }, runnable],
      [{ ...common, state: "active" }, active],
      [{ ...common, state: "parked" }, parked],
    ]),
    ...gauge("x_workers_keys", "Keys that a job has, that are paused, that jobs wait for, and that are rate limited", [
      [{ ...common, state: "busy" }, busyKeys],
      [{ ...common, state: "paused" }, pausedKeys],
      [{ ...common, state: "waiting" }, waitingKeys],
      [{ ...common, state: "limited" }, limitedKeys],
    ]),
    ...gauge("x_workers_oldest_waiting_seconds", "Since the job was added that waits for its key for longest", [
      [common, oldestWaitingMs / 1_000],
    ]),
    ...gauge("x_workers_longest_line", "Jobs that wait for the key with the longest line", [[common, longestLine]]),
    ...gauge("x_workers_longest_held_seconds", "Since the job was started that has had its key for longest", [
      [common, longestHeldMs / 1_000],
    ]),
  ].join("\n");
}

/**
 * Adds up what was told of the queues of all partitions, as of one queue of this name. Of the oldest and the longest,
 * the greatest counts.
 */
export function sumOfTexts(queue: string, texts: readonly string[]): string {
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

/** BullMQ, too, has the queue as the first label. */
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
