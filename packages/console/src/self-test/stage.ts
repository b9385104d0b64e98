/** One queue of the self-test with its worker processes, and the history of their runs. */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { systemClock } from "@x/redlock-core";
import { ExclusiveQueue } from "@x/workers";
import { FlowProducer } from "bullmq";
import type { Cluster, Redis } from "ioredis";
import type { ConnectionOptions } from "../connections.ts";
import type { JobData, MemberTask, SentEvent } from "./member.ts";
import { type Demands, faultsOf, type RunEvent } from "./rules/judge.ts";

/** A promise of the scripts was broken. */
export class BrokenPromise extends Error {
  constructor(message: string) {
    super(message);
    this.name = "BrokenPromise";
  }
}

export interface StageSettings {
  readonly client: Redis | Cluster;
  readonly connection: ConnectionOptions;
  readonly prefix: string;
  readonly acceptScripts: string | undefined;
  readonly signal: AbortSignal;
}

const POLL_MS = 25;
/** A phase has failed if nothing changes for this long. */
const PATIENCE_MS = 15_000;
const MOST_FAULTS = 5;
/** A killed worker's jobs come back after about `lockDuration` + `stalledInterval`. */
const RECOVERY = {
  lockDuration: 1_500,
  stalledInterval: 300,
  maxStalledCount: 20,
  recheckInterval: 500,
  drainDelay: 1,
};

export type MemberOptions = Partial<MemberTask["options"]>;

const program = new URL(import.meta.url.endsWith(".ts") ? "./member.ts" : "./member.js", import.meta.url);

export class Stage {
  readonly queue: ExclusiveQueue<JobData>;
  readonly flows: FlowProducer;
  readonly events: RunEvent[] = [];
  readonly #settings: StageSettings;
  readonly #deaths = new Map<number, bigint>();
  readonly #members = new Set<ChildProcess>();
  #failure: string | undefined;

  constructor(name: string, settings: StageSettings) {
    const { client: connection, prefix } = settings;
    this.#settings = settings;
    this.queue = new ExclusiveQueue<JobData>(name, { connection, prefix, ...this.#accepted });
    this.flows = new FlowProducer({ connection, prefix });
    const ignore = (): void => undefined;
    this.queue.on("error", ignore);
    this.flows.on("error", ignore);
  }

  /** Starts a worker process. Resolves when the process takes jobs. */
  async spawn(options: MemberOptions = {}): Promise<ChildProcess> {
    const member = fork(program, { stdio: ["ignore", "ignore", "ignore", "ipc"] });
    this.#members.add(member);
    const ready = new Promise<void>((resolve, reject) => {
      member.on(
        "message",
        (message: { readonly kind: string; readonly event: SentEvent; readonly message: string }) => {
          if (message.kind === "ready") resolve();
          if (message.kind === "failed") reject(new BrokenPromise(`a worker could not start: ${message.message}`));
          if (message.kind === "event") this.events.push({ ...message.event, ns: BigInt(message.event.ns) });
        },
      );
      member.once("exit", (code) => {
        // oxlint-disable-next-line eslint/no-restricted-properties -- the clock that all processes share
        this.#deaths.set(member.pid ?? 0, process.hrtime.bigint());
        if (this.#members.delete(member)) this.#failure = `a worker process ended by itself, with exit code ${code}`;
        reject(new BrokenPromise("a worker process ended before it was ready"));
      });
      member.once("error", reject);
    });
    const { connection } = this.#settings;
    const task: MemberTask = { connection, queue: this.queue.name, options: this.#options(options) };
    member.send(task, () => undefined);
    await ready;
    return member;
  }

  /** Kills a worker process, and resolves when it is dead. */
  async kill(member: ChildProcess | undefined): Promise<void> {
    if (member === undefined || !this.#members.delete(member)) return;
    const exited = once(member, "exit");
    member.kill("SIGKILL");
    await exited;
  }

  /** Waits until `isSo`. The time of `what` begins anew whenever a job starts or ends. */
  async until(what: string, isSo: () => boolean | Promise<boolean>): Promise<void> {
    let [seen, sinceMs] = [this.events.length, systemClock.monotonicMs()];
    while (!(await isSo())) {
      this.#settings.signal.throwIfAborted();
      if (this.#failure !== undefined) throw new BrokenPromise(this.#failure);
      if (this.events.length !== seen) [seen, sinceMs] = [this.events.length, systemClock.monotonicMs()];
      if (systemClock.monotonicMs() - sinceMs > PATIENCE_MS) {
        throw new BrokenPromise(`${what} did not happen: ${JSON.stringify(await this.queue.getJobCounts())}`);
      }
      await delay(POLL_MS);
    }
  }

  /** Waits until `completed` and `failed` jobs have ended. */
  async untilEnded(completed: number, failed = 0): Promise<void> {
    await this.until(`the end of ${completed + failed} jobs`, async () => {
      const counts = await this.queue.getJobCounts("completed", "failed");
      return (counts["completed"] ?? 0) + (counts["failed"] ?? 0) >= completed + failed;
    });
    const counts = await this.queue.getJobCounts("completed", "failed");
    if (counts["completed"] !== completed || counts["failed"] !== failed) {
      throw new BrokenPromise(
        `${counts["completed"]} jobs completed and ${counts["failed"]} failed, expected ${completed} and ${failed}`,
      );
    }
  }

  /** Waits until no key is busy, and throws `BrokenPromise` for the faults of the runs. */
  async judge(demands: Demands): Promise<void> {
    await this.until("the release of all keys", async () => {
      const { busyKeys, parked } = await this.queue.counts();
      return busyKeys === 0 && parked === 0;
    });
    const faults = faultsOf(this.events, this.#deaths, demands);
    if (faults.length === 0) return;
    const more = faults.length > MOST_FAULTS ? `; and ${faults.length - MOST_FAULTS} more` : "";
    throw new BrokenPromise(`${faults.slice(0, MOST_FAULTS).join("; ")}${more}`);
  }

  /** Kills all worker processes, and closes the connections. */
  async end(): Promise<void> {
    await Promise.all([...this.#members].map((member) => this.kill(member)));
    await Promise.all([this.queue.close(), this.flows.close()]);
  }

  #options(options: MemberOptions): MemberTask["options"] {
    const { prefix } = this.#settings;
    const own = { key: "k", resource: `${prefix}:lock:`, concurrency: 10 };
    return { ...own, ...RECOVERY, ...this.#accepted, ...options, prefix } as MemberTask["options"];
  }

  get #accepted(): { readonly acceptScripts?: string } {
    const { acceptScripts } = this.#settings;
    return acceptScripts === undefined ? {} : { acceptScripts };
  }
}
