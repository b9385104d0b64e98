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
import { repeat } from "@x/redlock-core/kit";
import type { WorkerFinding } from "../errors.ts";
import { parseExchange } from "../scripts/operator-replies.ts";
import { storedObject } from "./rules/key-policy.ts";
import { type Difference, differencesOf, nameOf, type WorkerSetup } from "./rules/worker-setup.ts";

interface WorkerRegistryParts {
  readonly clock: Clock;
  /** BullMQ's id of the worker. */
  readonly id: string;
  readonly setup: Omit<WorkerSetup, "at">;
  /** Runs the operator `exchange` (see scripts/operators.lua.ts). */
  readonly exchange: (id: string, setup: string, lifeMs: number) => Promise<unknown>;
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
    return (await this.#compare()).map(({ finding }) => finding);
  }

  /** Resolves with how the workers that run are set up, also this one if it does. */
  async setups(): Promise<readonly WorkerSetup[]> {
    return (await this.#exchange()).setups;
  }

  async #compare(): Promise<readonly Difference[]> {
    const { setups, jobs } = await this.#exchange();
    return differencesOf(this.#setup, setups, jobs);
  }

  /** Tells the others how this worker is set up, if it is a member, and reads what they have told. */
  async #exchange(): Promise<{ readonly setups: readonly WorkerSetup[]; readonly jobs: readonly string[] }> {
    const own = this.#isMember && !this.#isClosed ? JSON.stringify(this.#setup) : "";
    const { setups, strays } = parseExchange(await this.#parts.exchange(this.#parts.id, own, LIFE_MS));
    return { setups: setups.flatMap((setup) => (storedObject(setup) as WorkerSetup | undefined) ?? []), jobs: strays };
  }

  /** Takes this worker off the registry without waiting. If Redis is down, its entry expires. */
  leave(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#stop();
    if (this.#isMember) this.#exchange().catch(() => {});
  }

  async #watch(): Promise<void> {
    const differences = await this.#compare();
    if (this.#isClosed) return;
    const told = this.#told;
    this.#told = new Set(differences.map(nameOf));
    for (const each of differences) if (!told.has(nameOf(each))) this.#parts.onFinding(each.finding);
  }
}
