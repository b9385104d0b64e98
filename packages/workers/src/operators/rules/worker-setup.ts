/** Pure: the setup of a worker, and the meaning of differences between the workers of a queue. */
import type { OnFailure } from "../../bullmq/rules/compose.ts";
import type { WorkerFinding, WorkerFindingCode } from "../../errors.ts";
import type { ResolvedExclusiveOptions } from "../../options.ts";

/** A finding, and the other workers' value as text. The text is empty if the finding is about jobs. */
export interface Difference {
  readonly finding: WorkerFinding;
  readonly othersText: string;
}

/** Setup of a worker. Values that a function computes are null. */
export interface WorkerSetup {
  /** Host and process ID, as `host:pid`. */
  readonly at: string;
  /** Path to the key in a job's data. */
  readonly key: string | null;
  readonly onFailure: OnFailure;
  /** Limits for each key, as JSON. Undefined if the worker has none, or has an older version. */
  readonly perKey?: string | undefined;
  /**
   * Whether the worker runs jobs of busy keys while the queue is watched (see `ExclusiveQueue.setExclusion`). False
   * with `whenBusy: "merge"`. Undefined if the worker has an older version.
   */
  readonly watches?: boolean | undefined;
  /** Prefix of the locks' keys on the nodes. */
  readonly locks: string | null;
  /** The number of lock nodes. */
  readonly nodes: number;
  /** Findings about options of the worker that weaken a promise. Undefined if there are none. */
  readonly warnings?: readonly WorkerFinding[] | undefined;
}

/** Returns the setup that a worker shares with the others. `lockKeyOf` returns the Redis key of a lock. */
export function describeSetup(
  { rules, resourcePrefix, warnings }: Pick<ResolvedExclusiveOptions, "rules" | "resourcePrefix" | "warnings">,
  { lockKeyOf, nodes }: { readonly lockKeyOf: (resource: string) => string; readonly nodes: number },
): Omit<WorkerSetup, "at"> {
  return {
    key: rules.path?.join(".") ?? null,
    onFailure: rules.onFailure,
    perKey: perKeyText(rules),
    watches: rules.merge === undefined,
    // With a placeholder, because a resource must not be empty but the prefix may be.
    locks: resourcePrefix === undefined ? null : lockKeyOf(`${resourcePrefix}*`).slice(0, -1),
    nodes,
    warnings: warnings.length === 0 ? undefined : warnings,
  };
}

function perKeyText({ slots, rate, line, merge, rotate }: ResolvedExclusiveOptions["rules"]): string | undefined {
  const limits = { concurrency: slots === 1 ? undefined : slots, rate, line, merge, rotate };
  return Object.values(limits).every((limit) => limit === undefined) ? undefined : JSON.stringify(limits);
}

/** Returns a text that is the same for the same problem, even if other workers or jobs have it. */
export function identityOf({ finding, othersText }: Difference): string {
  return [finding.code, finding.severity, othersText].join(" ");
}

/** The options that are COMPARISONS, how they are formatted, and the consequence of a difference. */
const COMPARISONS: readonly {
  readonly code: WorkerFindingCode;
  readonly option: "key" | "locks" | "onFailure" | "perKey";
  readonly format: (setup: WorkerSetup) => string;
  readonly consequence: string;
}[] = [
  {
    code: "OTHER_KEY",
    option: "key",
    format: ({ key }) => (key === null ? "a function" : JSON.stringify(key)),
    consequence: "jobs of one entity may run at the same time",
  },
  {
    code: "OTHER_LOCKS",
    option: "locks",
    format: ({ locks, nodes }) => {
      const names = locks === null ? "named by a function" : `named ${JSON.stringify(`${locks}…`)}`;
      return `${names} on ${nodes} ${nodes === 1 ? "node" : "nodes"}`;
    },
    consequence: "code that holds one of these locks is not kept out by the other",
  },
  {
    code: "OTHER_ON_FAILURE",
    option: "onFailure",
    format: ({ onFailure }) => JSON.stringify(onFailure),
    consequence: "how a failed job affects its key depends on the worker",
  },
  {
    code: "OTHER_PER_KEY",
    option: "perKey",
    format: ({ perKey }) => perKey ?? "{}",
    consequence: "how many jobs of a key may run, start or wait, or whose turn it is, depends on the worker",
  },
];

/**
 * Returns the differences between a worker's own setup and the setups of all workers, which include its own. Also
 * returns a finding for jobs that run without their key. `ownName` names the own setup in messages.
 */
export function differencesOf(
  own: WorkerSetup,
  all: readonly WorkerSetup[],
  jobs: readonly string[],
  ownName = "here",
): Difference[] {
  const found: Difference[] = strayJobs(jobs);
  for (const { code, option, format, consequence } of COMPARISONS) {
    const ours = format(own);
    for (const there of new Set(all.map(format))) {
      if (there === ours) continue;
      const alike = all.filter((setup) => format(setup) === there);
      const subjects = placesOf(alike);
      const isKnown = [own, ...alike].every((setup) => setup[option] !== null);
      const severity = isKnown && code !== "OTHER_ON_FAILURE" ? "error" : "warning";
      const message = `${option} of ${subjects.join(", ")}: ${there}, ${ownName}: ${ours}; ${isKnown ? "" : "unless both have the same effect, "}${consequence}`;
      found.push({ finding: { code, severity, subjects, message }, othersText: there });
    }
  }
  return found;
}

/**
 * Returns everything that weakens a promise, for a caller that is not a worker: differences from the setup that most
 * workers have, jobs that run without their key, and the workers' own warnings. `watched` is the name of the queue if
 * it is watched: then it may have plain workers.
 */
export function findingsOf(all: readonly WorkerSetup[], jobs: readonly string[], watched?: string): WorkerFinding[] {
  if (watched !== undefined) {
    const found = findingsOf(all, jobs).map((each) =>
      each.code === "PLAIN_WORKER" ? { ...each, severity: "warning" as const } : each,
    );
    return [{ code: "WATCHED", severity: "warning", subjects: [watched], message: WATCHED }, ...found];
  }
  const most = largest(groupBy(all, (setup) => JSON.stringify({ ...setup, at: "", warnings: undefined })));
  const [own] = most;
  const differences =
    own === undefined ? strayJobs(jobs) : differencesOf(own, all, jobs, `of ${placesOf(most).join(", ")}`);
  return [...differences.map(({ finding }) => finding), ...warningsOf(all)];
}

const WATCHED =
  'the queue is only watched, so jobs of one key may run at the same time: setExclusion("on") makes it exclusive';

/** Returns each warning once, with the workers that have it. */
function warningsOf(all: readonly WorkerSetup[]): WorkerFinding[] {
  const warned = all.flatMap((setup) => (setup.warnings ?? []).map((warning) => ({ at: setup.at, warning })));
  return groupBy(warned, ({ warning }) => warning.message).flatMap((group) => {
    const subjects = placesOf(group);
    return group.slice(0, 1).map(({ warning }) => ({
      ...warning,
      subjects,
      message: `${subjects.join(", ")}: ${warning.message}`,
    }));
  });
}

function groupBy<Item>(items: readonly Item[], nameOf: (item: Item) => string): readonly (readonly Item[])[] {
  const groups = new Map<string, Item[]>();
  for (const item of items) groups.set(nameOf(item), [...(groups.get(nameOf(item)) ?? []), item]);
  return [...groups.values()];
}

function largest<Item>(groups: readonly (readonly Item[])[]): readonly Item[] {
  return groups.reduce<readonly Item[]>((best, group) => (group.length > best.length ? group : best), []);
}

/** Returns where the workers run, in order and without repetition. */
export function placesOf(setups: readonly Pick<WorkerSetup, "at">[]): string[] {
  return [...new Set(setups.map(({ at }) => at))].sort();
}

/** Returns a finding if jobs run without their key. */
function strayJobs(jobs: readonly string[]): Difference[] {
  if (jobs.length === 0) return [];
  const named = jobs.length > 5 ? `${jobs.slice(0, 5).join(", ")} and ${jobs.length - 5} more` : jobs.join(", ");
  const [run, them] =
    jobs.length === 1
      ? [`job ${named} runs without having its key`, "it"]
      : [`jobs ${named} run without having their key`, "them"];
  const message = `${run}: a worker without keys (BullMQ's own Worker) took ${them}, or the lane's keys were deleted`;
  return [{ finding: { code: "PLAIN_WORKER", severity: "error", subjects: jobs, message }, othersText: "" }];
}
