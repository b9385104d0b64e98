/**
 * The registry of a queue's workers. All workers must have the same options, because exclusion only holds among workers
 * that derive the same key from a job. Plain workers are not in the registry.
 *
 * Each running worker stores its setup in the registry. When it starts and every minute, it compares the setups of the
 * other workers, and looks for running jobs without their key. Each comparison costs one request, O(workers + running
 * jobs).
 *
 * The comparison cannot find plain workers that are idle. If keys or names of locks are computed by functions, it
 * cannot compare the functions.
 */
import { hostname } from "node:os";
import type { Clock } from "@x/redlock-core";
import { repeat } from "@x/redlock-core/kit";
import type { WorkerFinding } from "../errors.ts";
import { parseExchange } from "../scripts/operator-replies.ts";
import { storedObject } from "./rules/key-policy.ts";
import { type Difference, differencesOf, identityOf, type WorkerSetup } from "./rules/worker-setup.ts";

interface WorkerRegistryParts {
  readonly clock: Clock;
  /** BullMQ's ID of the worker. */
  readonly id: string;
  readonly setup: Omit<WorkerSetup, "at">;
  /** Runs the operator `exchange` (see scripts/operators.lua.ts). */
  readonly exchange: (id: string, setup: string, lifeMs: number) => Promise<unknown>;
  readonly onFinding: (finding: WorkerFinding) => void;
}

const EVERY_MS = 60_000;
/** How long a worker that was killed remains in the registry. */
const LIFE_MS = 3 * EVERY_MS;

export class WorkerRegistry {
  readonly #parts: WorkerRegistryParts;
  readonly #setup: WorkerSetup;
  #stop: () => void = () => undefined;
  #reported: ReadonlySet<string> = new Set();
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
    this.#stop = repeat(this.#parts.clock, EVERY_MS, async () => await this.#watch());
  }

  async check(): Promise<readonly WorkerFinding[]> {
    return (await this.#compare()).map(({ finding }) => finding);
  }

  /** Resolves with the setups of the running workers, including this one if it is running. */
  async setups(): Promise<readonly WorkerSetup[]> {
    return (await this.#exchange()).setups;
  }

  async #compare(): Promise<readonly Difference[]> {
    const { setups, jobs } = await this.#exchange();
    return differencesOf(this.#setup, setups, jobs);
  }

  /** Stores this worker's setup if it is a member, and reads the setups of all workers. */
  async #exchange(): Promise<{ readonly setups: readonly WorkerSetup[]; readonly jobs: readonly string[] }> {
    const own = this.#isMember && !this.#isClosed ? JSON.stringify(this.#setup) : "";
    const { setups, strays } = parseExchange(await this.#parts.exchange(this.#parts.id, own, LIFE_MS));
    return { setups: setups.flatMap((setup) => (storedObject(setup) as WorkerSetup | undefined) ?? []), jobs: strays };
  }

  /** Removes this worker from the registry without waiting. If Redis cannot be reached, the entry expires. */
  leave(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#stop();
    if (this.#isMember) this.#exchange().catch(() => {});
  }

  async #watch(): Promise<void> {
    const differences = await this.#compare();
    if (this.#isClosed) return;
    const reported = this.#reported;
    this.#reported = new Set(differences.map(identityOf));
    for (const each of differences) if (!reported.has(identityOf(each))) this.#parts.onFinding(each.finding);
  }
}
