/**
 * The registry of a queue's workers. They must agree, because exclusion holds among those that take the same key of a
 * job. No plain worker takes part in it.
 *
 * Each worker that runs tells the others how it is set up. It looks at them and at the jobs that run, when it starts
 * and every minute: one request, O(workers + running jobs).
 *
 * It sees jobs that run without their key, and no plain workers that are idle. Of keys and names made by functions, it
 * sees only that they are.
 */
import { hostname } from "node:os";
import type { Clock } from "@x/redlock-core";
import { repeat } from "@x/redlock-core/protocol";
import type { OnFailure } from "../bullmq/compose.ts";
import type { WorkerFinding, WorkerFindingCode } from "../errors.ts";

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

export interface WorkerRegistryParts {
  readonly clock: Clock;
  /** BullMQ's id of the worker. */
  readonly id: string;
  readonly setup: Omit<WorkerSetup, "at">;
  /** Runs the operator `look` (see scripts/starting.lua.ts). */
  readonly look: (id: string, setup: string, lifeMs: number) => Promise<unknown>;
  readonly onFinding: (finding: WorkerFinding) => void;
}

const EVERY_MS = 60_000;
/** A worker that was killed is forgotten after this. */
const LIFE_MS = 3 * EVERY_MS;

export class WorkerRegistry {
  readonly #parts: WorkerRegistryParts;
  readonly #setup: WorkerSetup;
  #stop: () => void = () => undefined;
  #told: ReadonlySet<string> = new Set();
  #isMember = false;
  #isClosed = false;

  constructor(parts: WorkerRegistryParts) {
    this.#parts = parts;
    this.#setup = { at: `${hostname()}:${process.pid}`, ...parts.setup };
  }

  /** Makes this worker one of them from now on. What it finds is told once, and again when it comes back. */
  join(): void {
    if (this.#isMember || this.#isClosed) return;
    this.#isMember = true;
    this.#stop = repeat(this.#parts.clock, EVERY_MS, async () => await this.#watch());
  }

  /** Compares the workers now. */
  async check(): Promise<readonly WorkerFinding[]> {
    return (await this.#look()).map(({ finding }) => finding);
  }

  /** How the workers that run are set up, also this one if it does. */
  async setups(): Promise<readonly WorkerSetup[]> {
    return (await this.#ask()).setups;
  }

  async #look(): Promise<readonly Difference[]> {
    const { setups, jobs } = await this.#ask();
    return differencesOf(this.#setup, setups, jobs);
  }

  async #ask(): Promise<{ readonly setups: readonly WorkerSetup[]; readonly jobs: readonly string[] }> {
    const own = this.#isMember && !this.#isClosed ? JSON.stringify(this.#setup) : "";
    const [setups, jobs] = (await this.#parts.look(this.#parts.id, own, LIFE_MS)) as readonly [string[], string[]];
    return { setups: setups.map((setup) => JSON.parse(setup) as WorkerSetup), jobs };
  }

  /** Leaves the others, which nobody waits for. Where Redis is away, they forget this worker after a while. */
  leave(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#stop();
    if (this.#isMember) this.#look().catch(() => {});
  }

  async #watch(): Promise<void> {
    const differences = await this.#look();
    if (this.#isClosed) return;
    const told = this.#told;
    this.#told = new Set(differences.map(nameOf));
    for (const each of differences) if (!told.has(nameOf(each))) this.#parts.onFinding(each.finding);
  }
}

/** Returns what is the same for the same trouble, though other workers or jobs are in it. */
function nameOf({ finding, there }: Difference): string {
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
