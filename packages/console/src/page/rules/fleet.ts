/** Pure: the processes that run workers, from the reports of all queues. */
import type { WorkerReport } from "@x/workers";
import type { ProcessView, WorkerView } from "../state.ts";

/** The reports of one queue. */
export interface QueueReports {
  readonly queue: string;
  readonly reports: readonly WorkerReport[];
}

/** Returns the processes: those that report first, by name. `leaders`: the IDs of the leaders by election. */
export function processesOf(
  queues: readonly QueueReports[],
  leaders: ReadonlyMap<string, string>,
): readonly ProcessView[] {
  const byProcess = new Map<string, WorkerView[]>();
  for (const { queue, reports } of queues) {
    for (const report of reports) {
      const workers = byProcess.get(report.setup.at) ?? [];
      byProcess.set(report.setup.at, workers);
      workers.push(workerView(queue, report));
    }
  }
  return [...byProcess]
    .map(([at, workers]) => ({
      at,
      workers: workers.toSorted((one, other) => (one.queue < other.queue ? -1 : Number(one.queue > other.queue))),
      leads: [...leaders].filter(([, id]) => isProcess(id, at)).map(([election]) => election),
      reportedAt: Math.max(...workers.map(({ reportedAt }) => reportedAt)),
      isGone: workers.every(({ isGone }) => isGone),
    }))
    .toSorted((one, other) => Number(one.isGone) - Number(other.isGone) || (one.at < other.at ? -1 : 1));
}

/** Returns what differs between the options of the workers that report, as sentences. */
export function differencesOf(reports: readonly WorkerReport[]): readonly string[] {
  const setups = reports.flatMap(({ setup, isGone }) => (isGone ? [] : setup));
  return (["key", "onFailure", "perKey", "locks", "nodes"] as const).flatMap((option) => {
    const processes = new Map<string, Set<string>>();
    for (const setup of setups) {
      const value = setup[option] === null ? "a function" : String(setup[option] ?? "none");
      processes.set(value, (processes.get(value) ?? new Set()).add(setup.at));
    }
    if (processes.size < 2) return [];
    const values = [...processes].toSorted(([, one], [, other]) => other.size - one.size);
    return `${option} is ${values.map(([value, at]) => `${value} in ${placesText([...at])}`).join(", and ")}`;
  });
}

function placesText(places: readonly string[]): string {
  return places.length <= 3 ? places.join(", ") : `${places.slice(0, 3).join(", ")} and ${places.length - 3} more`;
}

/** An election's default ID is `host/pid`, and a worker reports `host:pid`. */
function isProcess(id: string, at: string): boolean {
  const end = at.lastIndexOf(":");
  const [host, pid] = [at.slice(0, end), at.slice(end + 1)];
  return id === at || id === `${host}/${pid}` || id.startsWith(`${host}/${pid}/`);
}

function workerView(queue: string, { status, reportedMs, isGone }: WorkerReport): WorkerView {
  return {
    queue,
    version: status?.version,
    slots: status?.slots,
    busy: status?.busy,
    completed: status?.completed,
    failed: status?.failed,
    stalled: status?.stalled,
    locksLost: status?.locksLost,
    lockLostAt: status?.lockLostMs,
    reportedAt: reportedMs,
    isGone,
  };
}
