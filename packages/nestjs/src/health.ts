/** Health indicators in the format of `@nestjs/terminus`, which may be missing. */
import type { LeaderElection } from "@x/leader";
import type { Redlock } from "@x/redlock-core";
import type { ExclusiveWorkers } from "./workers/exclusive-workers.ts";

/** The result of an indicator, for `HealthCheckService.check()`. */
export type CoordinationHealthResult<Key extends string> = Record<
  Key,
  { readonly status: "up" | "down" } & Readonly<Record<string, unknown>>
>;

/** A resource that is never locked, only inspected. */
const PROBE = "x:health";

/** Indicators for readiness and liveness probes. A replica that does not lead is still up. */
export class CoordinationHealth {
  readonly #redlock: Redlock;
  readonly #election: LeaderElection | null;
  readonly #workers: ExclusiveWorkers;

  constructor(redlock: Redlock, election: LeaderElection | null, workers: ExclusiveWorkers) {
    this.#redlock = redlock;
    this.#election = election;
    this.#workers = workers;
  }

  /**
   * Reports `up` if a quorum of the lock nodes answers. Costs one request per node. A node in quarantine answers, but
   * does not vote until `quarantineLeftMs` has passed.
   */
  async redlock<const Key extends string = "redlock">(key?: Key): Promise<CoordinationHealthResult<Key>> {
    const { quorum, nodeCount } = this.#redlock;
    try {
      const { nodes } = await this.#redlock.inspect(PROBE);
      const answering = nodes.filter((node) => node.error === undefined);
      const quarantineLeftMs = Math.max(0, ...answering.map((node) => node.quarantineLeftMs ?? 0));
      const facts = { nodes: nodeCount, answering: answering.length, quarantineLeftMs };
      const isUp = answering.length >= quorum;
      const message = `${answering.length} of ${nodeCount} lock nodes answer, ${quorum} are needed`;
      return resultOf(key ?? "redlock", isUp, { ...facts, ...(isUp ? {} : { message }) });
    } catch (error) {
      return resultOf(key ?? "redlock", false, { message: String(error) });
    }
  }

  /**
   * Reports `up` while this process takes part in the election, as leader or not. Reports `down` if the module has no
   * election, or if this process does not take part. Also reports `down` while work runs on without its lease, because
   * such a process should be restarted.
   */
  election<const Key extends string = "election">(key?: Key): CoordinationHealthResult<Key> {
    const health = this.#election?.health();
    if (health === undefined) return resultOf(key ?? "election", false, { message: "no election" });
    const { healthy, state, running, overrunMs, lastError } = health;
    const message = running
      ? `its work runs on without its lease, for ${Math.round(overrunMs)} ms`
      : "this process takes no part in the election";
    const facts = {
      state,
      overrunMs,
      ...(lastError === undefined ? {} : { lastError: lastError.message }),
      ...(healthy && running ? {} : { message }),
    };
    return resultOf(key ?? "election", healthy && running, facts);
  }

  /**
   * Reports `up` while every worker of an `@ExclusiveProcessor` runs and can write to its Redis. Reports `down` if a
   * worker has not been able to for 30 s.
   */
  workers<const Key extends string = "workers">(key?: Key): CoordinationHealthResult<Key> {
    const states = this.#workers.all.map((worker) => ({ queue: worker.name, isRunning: worker.isRunning() }));
    const stopped = states.filter(({ isRunning }) => !isRunning).map(({ queue }) => queue);
    const message = `no worker that can write to its Redis runs here for the queue ${stopped.join(", ")}`;
    return resultOf(key ?? "workers", stopped.length === 0, {
      workers: states.length,
      stopped,
      ...(stopped.length === 0 ? {} : { message }),
    });
  }
}

function resultOf<Key extends string>(
  key: string,
  isUp: boolean,
  facts: Readonly<Record<string, unknown>>,
): CoordinationHealthResult<Key> {
  return { [key]: { status: isUp ? "up" : "down", ...facts } } as CoordinationHealthResult<Key>;
}
