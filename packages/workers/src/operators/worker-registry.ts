/**
 * The registry of a queue's workers. All workers must have the same options, because exclusion only holds among workers
 * that derive the same key from a job. Plain workers are not in the registry.
 *
 * Each running worker reports to the registry every 10 s: its setup, its slots and its counts. A report costs one
 * request. When the worker starts and every minute, the same request also compares the setups of the other workers, and
 * looks for running jobs without their key, which costs O(workers + running jobs). A worker that has not reported for
 * 30 s counts as gone. Its last report stays for 15 min.
 *
 * A worker also stores its rules, which operators follow (see operator-lane.ts).
 *
 * The comparison cannot find plain workers that are idle. If keys or names of locks are computed by functions, it
 * cannot compare the functions.
 */
import { hostname } from "node:os";
import type { Clock } from "@x/redlock-core";
import { repeat } from "@x/redlock-core/kit";
import type { WorkerFinding } from "../errors.ts";
import { GONE_SECONDS, parseExchange } from "../scripts/operator-replies.ts";
import { setupsOf, type WorkerStatus } from "./rules/worker-report.ts";
import { type Difference, differencesOf, identityOf, type WorkerSetup } from "./rules/worker-setup.ts";

interface WorkerRegistryParts {
  readonly clock: Clock;
  /** BullMQ's ID of the worker. */
  readonly id: string;
  readonly setup: Omit<WorkerSetup, "at">;
  /** The rules of this worker as JSON, which operators follow. */
  readonly rules: string;
  /** Returns the part of the report that changes. */
  readonly status: () => WorkerStatus;
  /** Run the operators `report` and `exchange` (see scripts/operators.lua.ts). */
  readonly report: (id: string, text: string, lifeMs: number) => Promise<unknown>;
  readonly exchange: (id: string, text: string, lifeMs: number, rules: string) => Promise<unknown>;
  readonly onFinding: (finding: WorkerFinding) => void;
}

const EVERY_MS = 10_000;
/** Every sixth report also compares the workers. */
const COMPARED = 6;
/** How long the last report of a worker that was killed remains in the registry. */
const LIFE_MS = 15 * 60_000;

/** The setups of the running workers, and the running jobs without their key. */
interface Registered {
  readonly setups: readonly WorkerSetup[];
  readonly jobs: readonly string[];
  /** Whether the queue is watched, so that it may have plain workers. */
  readonly isWatched: boolean;
}

/** Reads the registry without joining it. */
export async function readRegistry(lane: {
  operate(command: "exchange", ...args: readonly (string | number)[]): Promise<unknown>;
}): Promise<Registered> {
  return registeredIn(await lane.operate("exchange", "", "", LIFE_MS, ""));
}

function registeredIn(reply: unknown): Registered {
  const { reports, strays, isWatched } = parseExchange(reply);
  return { setups: setupsOf(reports), jobs: strays, isWatched };
}

export class WorkerRegistry {
  readonly #parts: WorkerRegistryParts;
  readonly #setup: WorkerSetup;
  #stop: () => void = () => undefined;
  #reported: ReadonlySet<string> = new Set();
  #reports = 0;
  /** When this worker joined or last reported with success, in ms of the monotonic clock. */
  #reportedMs = 0;
  #isMember = false;
  #isClosed = false;

  constructor(parts: WorkerRegistryParts) {
    this.#parts = parts;
    this.#setup = { at: `${hostname()}:${process.pid}`, ...parts.setup };
  }

  /** Adds this worker to the registry. Each finding is reported once, and again if it reappears. */
  join(): void {
    if (this.#isMember || this.#isClosed) return;
    this.#isMember = true;
    this.#reportedMs = this.#parts.clock.monotonicMs();
    this.#stop = repeat(this.#parts.clock, EVERY_MS, async () => await this.#report());
  }

  /**
   * Whether this worker should report but has not been able to for 30 s, because Redis does not answer or refuses to
   * write.
   */
  get isOverdue(): boolean {
    if (!this.#isMember || this.#isClosed) return false;
    return this.#parts.clock.monotonicMs() - this.#reportedMs > GONE_SECONDS * 1_000;
  }

  async #compare(): Promise<readonly Difference[]> {
    const { setups, jobs, isWatched } = await this.#exchange();
    return differencesOf(this.#setup, setups, isWatched ? [] : jobs);
  }

  /** Stores this worker's report if it is a member, and reads the setups of the running workers. */
  async #exchange(): Promise<Registered> {
    const own = this.#isMember && !this.#isClosed ? this.#text() : "";
    const { clock, id, rules, exchange } = this.#parts;
    const reply = await exchange(id, own, LIFE_MS, rules);
    this.#reportedMs = clock.monotonicMs();
    return registeredIn(reply);
  }

  #text(): string {
    return JSON.stringify({ ...this.#setup, status: this.#parts.status() });
  }

  /** Removes this worker from the registry without waiting. If Redis cannot be reached, the entry expires. */
  leave(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#stop();
    if (this.#isMember) this.#exchange().catch(() => {});
  }

  async #report(): Promise<void> {
    const isCompared = this.#reports % COMPARED === 0;
    this.#reports += 1;
    if (isCompared) {
      await this.#watch();
      return;
    }
    const { clock, id, report } = this.#parts;
    await report(id, this.#text(), LIFE_MS);
    this.#reportedMs = clock.monotonicMs();
  }

  async #watch(): Promise<void> {
    const differences = await this.#compare();
    if (this.#isClosed) return;
    const reported = this.#reported;
    this.#reported = new Set(differences.map(identityOf));
    for (const each of differences) if (!reported.has(identityOf(each))) this.#parts.onFinding(each.finding);
  }
}
