/** Pure: how a worker is set up, and what it means where workers of a queue differ in that. */
import type { OnFailure } from "../../bullmq/rules/compose.ts";
import type { WorkerFinding, WorkerFindingCode } from "../../errors.ts";
import type { ResolvedExclusiveOptions } from "../../options.ts";

/** A finding, and what the other workers have, in words. The words are empty if the finding is about jobs. */
export interface Difference {
  readonly finding: WorkerFinding;
  readonly there: string;
}

/** How a worker is set up. What a function makes is null. */
export interface WorkerSetup {
  /** Host and process. */
  readonly at: string;
  /** The path of the key in a job's data. */
  readonly key: string | null;
  readonly onFailure: OnFailure;
  /** What holds for each key, as text. A worker of an earlier version has none. */
  readonly perKey?: string | undefined;
  /** The text with which the names of its locks on the nodes begin. */
  readonly locks: string | null;
  /** The number of lock nodes. */
  readonly nodes: number;
}

/** Returns what a worker tells the others of itself. `lockKeyOf` makes the key of a lock on a node. */
export function setupOf(
  { rules, resourcePrefix }: Pick<ResolvedExclusiveOptions, "rules" | "resourcePrefix">,
  { lockKeyOf, nodes }: { readonly lockKeyOf: (resource: string) => string; readonly nodes: number },
): Omit<WorkerSetup, "at"> {
  return {
    key: rules.path?.join(".") ?? null,
    onFailure: rules.onFailure,
    perKey: perKeyText(rules),
    // No resource is empty, as the prefix may be.
    locks: resourcePrefix === undefined ? null : lockKeyOf(`${resourcePrefix}*`).slice(0, -1),
    nodes,
  };
}

function perKeyText({ slots, rate, line, merge, rotate }: ResolvedExclusiveOptions["rules"]): string | undefined {
  const limits = { concurrency: slots === 1 ? undefined : slots, rate, line, merge, rotate };
  return Object.values(limits).every((limit) => limit === undefined) ? undefined : JSON.stringify(limits);
}

/** Returns what is the same for the same trouble, though other workers or jobs are in it. */
export function nameOf({ finding, there }: Difference): string {
  return [finding.code, finding.severity, there].join(" ");
}

/** What may differ, how it is shown, and what a difference means. */
const compared: readonly {
  readonly code: WorkerFindingCode;
  readonly option: "key" | "locks" | "onFailure" | "perKey";
  readonly shown: (setup: WorkerSetup) => string;
  readonly means: string;
}[] = [
  {
    code: "OTHER_KEY",
    option: "key",
    shown: ({ key }) => (key === null ? "a function" : JSON.stringify(key)),
    means: "jobs of one entity may run side by side",
  },
  {
    code: "OTHER_LOCKS",
    option: "locks",
    shown: ({ locks, nodes }) => {
      const names = locks === null ? "named by a function" : `named ${JSON.stringify(`${locks}…`)}`;
      return `${names} on ${nodes} ${nodes === 1 ? "node" : "nodes"}`;
    },
    means: "code that takes the ones is not kept out by the others",
  },
  {
    code: "OTHER_ON_FAILURE",
    option: "onFailure",
    shown: ({ onFailure }) => JSON.stringify(onFailure),
    means: "what a failed job does to its key depends on the worker",
  },
  {
    code: "OTHER_PER_KEY",
    option: "perKey",
    shown: ({ perKey }) => perKey ?? "{}",
    means: "how many jobs of a key may run, start or wait, or whose turn it is, depends on the worker",
  },
];

/**
 * Returns what the set-ups of all workers mean beside one's own, which is among them, and jobs that run without their
 * key.
 */
export function differencesOf(own: WorkerSetup, all: readonly WorkerSetup[], jobs: readonly string[]): Difference[] {
  const found: Difference[] = [];
  if (jobs.length > 0) {
    const named = jobs.length > 5 ? `${jobs.slice(0, 5).join(", ")} and ${jobs.length - 5} more` : jobs.join(", ");
    const [run, them] =
      jobs.length === 1
        ? [`job ${named} runs without having its key`, "it"]
        : [`jobs ${named} run without having their key`, "them"];
    const message = `${run}: a worker took ${them} that knows no keys (BullMQ's own Worker), or the lane's keys were deleted`;
    found.push({ finding: { code: "PLAIN_WORKER", severity: "error", subjects: jobs, message }, there: "" });
  }
  for (const { code, option, shown, means } of compared) {
    const ours = shown(own);
    for (const there of new Set(all.map(shown))) {
      if (there === ours) continue;
      const alike = all.filter((setup) => shown(setup) === there);
      const subjects = [...new Set(alike.map(({ at }) => at))].sort();
      const isKnown = [own, ...alike].every((setup) => setup[option] !== null);
      const severity = isKnown && code !== "OTHER_ON_FAILURE" ? "error" : "warning";
      const message = `${option} of ${subjects.join(", ")}: ${there}, here: ${ours}; ${isKnown ? "" : "unless they come to the same, "}${means}`;
      found.push({ finding: { code, severity, subjects, message }, there });
    }
  }
  return found;
}
