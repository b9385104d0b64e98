/** Health indicators in the form of `@nestjs/terminus`, which need not be installed. */
import type { LeaderElection } from "@x/leader";
import type { Redlock } from "@x/redlock-core";
import type { ExclusiveWorkers } from "./workers/exclusive-workers.ts";

/** What `HealthCheckService.check()` takes. */
export type CoordinationHealthResult<Key extends string> = Record<
  Key,
  { readonly status: "up" | "down" } & Readonly<Record<string, unknown>>
>;

/** Nobody locks it: it is only asked after. */
const PROBE = "x:health";

/** The indicators for readiness and liveness probes. None is down because another process leads. */
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
   * Is up if a quorum of the lock nodes answers, at the cost of one request per node. Nodes in quarantine answer, and
   * do not vote yet: see `quarantineLeftMs`.
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
   * Is up while this process takes part in the election, leading or not. It is down when it has stopped, and while work
   * runs on without its lease: a process that hangs should be restarted. Without an election it is down.
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

  /** Is up while every worker of an `@ExclusiveProcessor` runs. */
  workers<const Key extends string = "workers">(key?: Key): CoordinationHealthResult<Key> {
    const states = this.#workers.all.map((worker) => ({ queue: worker.name, isRunning: worker.isRunning() }));
    const stopped = states.filter(({ isRunning }) => !isRunning).map(({ queue }) => queue);
    const message = `no worker runs here for the queue ${stopped.join(", ")}`;
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
