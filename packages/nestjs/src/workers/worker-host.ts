/** The base class of exclusive processors. */
import type { ExclusiveWorker, JobLock } from "@x/workers";
import type { Job } from "bullmq";

const workers = new WeakMap<object, ExclusiveWorker>();

/** The counterpart of `WorkerHost` of `@nestjs/bullmq`, with the job's signal and lock. */
// oxlint-disable typescript/no-explicit-any -- the defaults of BullMQ's own Job, so that a host without types compiles
export abstract class ExclusiveWorkerHost<Data = any, Result = any, Name extends string = string> {
  // oxlint-enable typescript/no-explicit-any
  /** The worker. Available from the hook `onApplicationBootstrap` on. */
  get worker(): ExclusiveWorker<Data, Result, Name> {
    const worker = workers.get(this);
    if (worker === undefined)
      throw new Error(`${this.constructor.name}.worker is available from the hook onApplicationBootstrap on`);
    return worker as unknown as ExclusiveWorker<Data, Result, Name>;
  }

  /**
   * Processes one job. No other job of the same keys runs at the same time. `signal` aborts when the job is cancelled
   * or a lock is lost. Pass `lock.fencingToken` to the store that the job writes to.
   */
  abstract process(
    job: Job<Data, Result, Name>,
    token: string | undefined,
    signal: AbortSignal,
    lock: JobLock,
  ): Promise<Result>;
}

/**
 * The members of `ExclusiveWorkerHost` and of `WorkerHost` of `@nestjs/bullmq`, whose type has no signal and no lock.
 */
export interface JobHost<Data = unknown, Name extends string = string> {
  readonly worker: object;
  // oxlint-disable typescript/no-explicit-any -- a result may be of any type
  process(
    job: Job<Data, any, Name>,
    token: string | undefined,
    signal: AbortSignal,
    lock: JobLock<any, any, Name>,
  ): Promise<any>;
  // oxlint-enable typescript/no-explicit-any
}

export function isJobHost(object: object): object is JobHost {
  return object instanceof ExclusiveWorkerHost || isWorkerHost(object);
}

/**
 * Recognizes a host by its members, because `@nestjs/bullmq` may be missing. The getter `worker` throws until the
 * worker exists.
 */
function isWorkerHost(object: object): boolean {
  return "worker" in object && "process" in object && typeof object.process === "function";
}

export function attachWorker(host: JobHost, worker: ExclusiveWorker): void {
  if (host instanceof ExclusiveWorkerHost) workers.set(host, worker);
  else Object.defineProperty(host, "worker", { value: worker });
}
