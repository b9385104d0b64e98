/** Pure: judges the history of a self-test's runs. */

/** The start or the end of one run of a job, as a worker process has reported it. */
export interface RunEvent {
  readonly what: "start" | "end";
  readonly jobId: string;
  /** Empty for a job without a key. */
  readonly key: string;
  /** Position of the job in the order in which the jobs of its key were added. */
  readonly i: number;
  readonly pid: number;
  /** Number of the run in its process. */
  readonly run: number;
  readonly fencingToken: number;
  /** The machine's monotonic clock in ns, which all processes share. */
  readonly ns: bigint;
  /** The wall clock in ms. */
  readonly atMs: number;
}

/** How much a phase demands of its runs. */
export interface Demands {
  /** How many jobs of a key may run at a time. Default: 1. */
  readonly concurrency?: number;
  /** Whether the first starts of a key's jobs follow `i`. */
  readonly isOrdered?: boolean;
  /** Number of runs of a job if no worker is killed. Default: 1. */
  readonly runsOf?: (jobId: string) => number;
}

interface JobRun {
  readonly start: RunEvent;
  /** When the run ended, or when its process was dead. Undefined if neither was seen. */
  readonly endNs: bigint | undefined;
  /** Whether the process of the run was killed, during the run or later. */
  readonly isKilled: boolean;
}

/** Returns the faults of a history as sentences. `deaths` contains when each killed process was dead, by process ID. */
export function faultsOf(
  events: readonly RunEvent[],
  deaths: ReadonlyMap<number, bigint>,
  { concurrency = 1, isOrdered = false, runsOf = () => 1 }: Demands,
): readonly string[] {
  const runs = runsFrom(events, deaths);
  return [
    ...groupedBy(runs, ({ start }) => start.key).flatMap((ofKey) => [
      ...overlapsOf(ofKey, concurrency),
      ...(isOrdered ? inversionsOf(ofKey) : []),
    ]),
    ...groupedBy(runs, ({ start }) => start.jobId).flatMap((ofJob) => repetitionsOf(ofJob, runsOf)),
  ];
}

function runsFrom(events: readonly RunEvent[], deaths: ReadonlyMap<number, bigint>): readonly JobRun[] {
  const nameOf = ({ pid, run }: RunEvent): string => `${pid} ${run}`;
  const ends = new Map(events.filter(({ what }) => what === "end").map((event) => [nameOf(event), event.ns]));
  return events
    .filter(({ what }) => what === "start")
    .map((start) => {
      return { start, endNs: ends.get(nameOf(start)) ?? deaths.get(start.pid), isKilled: deaths.has(start.pid) };
    })
    .toSorted((one, other) => Number(one.start.ns - other.start.ns));
}

function overlapsOf(runs: readonly JobRun[], concurrency: number): readonly string[] {
  if (runs[0]?.start.key === "") return [];
  const faults: string[] = [];
  for (const [index, { start }] of runs.entries()) {
    const running = runs.slice(0, index).filter(({ endNs }) => endNs === undefined || endNs > start.ns);
    if (running.length >= concurrency) {
      const [first] = running;
      faults.push(`job ${start.jobId} started while job ${first?.start.jobId} of key ${start.key} was running`);
    }
    const before = runs[index - 1]?.start;
    if (concurrency === 1 && before !== undefined && before.fencingToken >= start.fencingToken) {
      faults.push(`job ${start.jobId} of key ${start.key} got a fencing token that is not greater than the last one`);
    }
  }
  return faults;
}

function inversionsOf(runs: readonly JobRun[]): readonly string[] {
  if (runs[0]?.start.key === "") return [];
  const seen = new Set<string>();
  const faults: string[] = [];
  let last = -1;
  for (const { start } of runs) {
    if (seen.has(start.jobId)) continue;
    seen.add(start.jobId);
    if (start.i < last) faults.push(`job ${start.jobId} of key ${start.key} started after a job that was added later`);
    last = Math.max(last, start.i);
  }
  return faults;
}

function repetitionsOf(runs: readonly JobRun[], runsOf: (jobId: string) => number): readonly string[] {
  const jobId = runs[0]?.start.jobId ?? "";
  const expected = runsOf(jobId);
  // Nobody knows whether the end of a run was recorded if its worker was killed later.
  const living = runs.filter(({ isKilled }) => !isKilled).length;
  if (living <= expected && expected <= runs.length) return [];
  return [
    `job ${jobId} ran ${runs.length} times, ${living} of them in workers that were not killed, expected ${expected}`,
  ];
}

function groupedBy<Value>(values: readonly Value[], nameOf: (value: Value) => string): readonly (readonly Value[])[] {
  const groups = new Map<string, Value[]>();
  for (const value of values) {
    const name = nameOf(value);
    groups.set(name, [...(groups.get(name) ?? []), value]);
  }
  return [...groups.values()];
}
