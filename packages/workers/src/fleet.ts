/**
 * The workers of a queue, and whether they agree: exclusion holds among those that take the same key of a job, and no plain worker
 * takes part in it. Each that runs tells the others how it is set up, and looks at them and at the jobs that run, when it
 * starts and every minute: one request, O(workers + running jobs).
 *
 * Seen are jobs that run without their key, not plain workers that are idle; of keys and names made by functions, only that they are.
 */
import { hostname } from "node:os";
import type { Clock } from "@x/redlock-core";
import type { OnFailure } from "./compose.ts";
import { Regularly } from "./regularly.ts";

export interface WorkerFinding {
  /**
   * `PLAIN_WORKER`: jobs run without having their key, so somebody took them who knows no keys. `OTHER_KEY`, `OTHER_LOCKS`, `OTHER_ON_FAILURE`:
   * another worker of the queue has another `key`; other names of locks, or another number of nodes for them; another `onFailure`.
   */
  readonly code: "PLAIN_WORKER" | "OTHER_KEY" | "OTHER_LOCKS" | "OTHER_ON_FAILURE";
  /** `error`: jobs of one key may run side by side; `warning`: it depends, the message says on what. */
  readonly severity: "error" | "warning";
  readonly message: string;
  /** What the other workers have, in words; empty for `PLAIN_WORKER`. */
  readonly there: string;
  /** The other workers, as `host:pid`. */
  readonly workers: readonly string[];
  /** The ids of the jobs, at most 100. */
  readonly jobs: readonly string[];
}

/** How a worker is set up; null: by a function. */
export interface Setup {
  readonly at: string;
  readonly key: string | null;
  readonly onFailure: OnFailure;
  /** What the names of its locks on the nodes begin with. */
  readonly locks: string | null;
  readonly nodes: number;
}

export interface FleetParts {
  readonly clock: Clock;
  /** BullMQ's id of the worker. */
  readonly id: string;
  readonly setup: Omit<Setup, "at">;
  /** Runs the operator `look`, see scripts/operators.lua.ts. */
  readonly look: (id: string, setup: string, lifeMs: number) => Promise<unknown>;
  readonly onFinding: (finding: WorkerFinding) => void;
}

const EVERY_MS = 60_000;
/** A worker that was killed is forgotten after this. */
const LIFE_MS = 3 * EVERY_MS;

export class Fleet {
  readonly #parts: FleetParts;
  readonly #setup: Setup;
  readonly #loop: Regularly;
  #told: ReadonlySet<string> = new Set();
  #isMember = false;
  #isClosed = false;

  constructor(parts: FleetParts) {
    this.#parts = parts;
    this.#setup = { at: `${hostname()}:${process.pid}`, ...parts.setup };
    this.#loop = new Regularly(parts.clock, EVERY_MS, async () => await this.#watch());
  }

  /** From now on this worker is one of them; what it finds is told once, and again when it comes back. */
  join(): void {
    if (this.#isMember || this.#isClosed) return;
    this.#isMember = true;
    void this.#loop.start();
  }

  async look(): Promise<readonly WorkerFinding[]> {
    const own = this.#isMember && !this.#isClosed ? JSON.stringify(this.#setup) : "";
    const [setups, jobs] = (await this.#parts.look(this.#parts.id, own, LIFE_MS)) as readonly [string[], string[]];
    return findingsOf(
      this.#setup,
      setups.map((setup) => JSON.parse(setup) as Setup),
      jobs,
    );
  }

  /** Not waited for: where Redis is away, the others forget this worker after a while. */
  leave(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#loop.stop();
    if (this.#isMember) this.look().catch(() => {});
  }

  async #watch(): Promise<void> {
    const findings = await this.look();
    if (this.#isClosed) return;
    const told = this.#told;
    this.#told = new Set(findings.map(nameOf));
    for (const finding of findings) if (!told.has(nameOf(finding))) this.#parts.onFinding(finding);
  }
}

/** The same trouble, though other workers or jobs are in it. */
function nameOf({ code, severity, there }: WorkerFinding): string {
  return [code, severity, there].join(" ");
}

/** What may differ: how it is shown, and what a difference means. */
const differences: readonly {
  readonly code: WorkerFinding["code"];
  readonly option: "key" | "locks" | "onFailure";
  readonly shown: (setup: Setup) => string;
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
];

/** Pure: what the set-ups of the workers, one's own among them, mean beside one's own, and jobs that run without their key. */
export function findingsOf(own: Setup, all: readonly Setup[], jobs: readonly string[]): WorkerFinding[] {
  const findings: WorkerFinding[] = [];
  if (jobs.length > 0) {
    const named = jobs.length > 5 ? `${jobs.slice(0, 5).join(", ")} and ${jobs.length - 5} more` : jobs.join(", ");
    findings.push({
      code: "PLAIN_WORKER",
      severity: "error",
      message:
        `without having their key run the jobs ${named}: a worker took them that knows no keys (BullMQ's own Worker), ` +
        "or the lane's keys were deleted",
      there: "",
      workers: [],
      jobs,
    });
  }
  for (const { code, option, shown, means } of differences) {
    const ours = shown(own);
    for (const theirs of new Set(all.map(shown))) {
      if (theirs === ours) continue;
      const alike = all.filter((setup) => shown(setup) === theirs);
      const workers = [...new Set(alike.map(({ at }) => at))].sort();
      const isKnown = [own, ...alike].every((setup) => setup[option] !== null);
      findings.push({
        code,
        severity: isKnown && code !== "OTHER_ON_FAILURE" ? "error" : "warning",
        message: `${option} of ${workers.join(", ")}: ${theirs}, here: ${ours}; ${isKnown ? "" : "unless they come to the same, "}${means}`,
        there: theirs,
        workers,
        jobs: [],
      });
    }
  }
  return findings;
}
