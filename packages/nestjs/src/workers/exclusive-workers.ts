/** The workers of an application: one worker for each `@ExclusiveProcessor`. */
import "reflect-metadata";
import { Logger } from "@nestjs/common";
import type { ModuleRef } from "@nestjs/core";
import type { Redlock } from "@x/redlock-core";
import { asError, boolean, messageOf, quote } from "@x/redlock-core/kit";
import { ExclusiveWorker, type ExclusiveWorkerOptions } from "@x/workers";
import type { WorkerListener } from "bullmq";
import type { Discovery, MarkedMethod, MarkedObject } from "../discovery.ts";
import { at } from "../rules/names.ts";
import { PROCESSOR, type ProcessorMark } from "./exclusive-processor.ts";
import { attachWorker, isJobHost } from "./worker-host.ts";

/** Provider names and metadata keys of `@nestjs/bullmq`, repeated here because the package may be missing. */
const queueToken = (queue: string): string => `BullQueue_${queue}`;
const configToken = (key = "default"): string => `BULLMQ_CONFIG(${key})`;
const ON_WORKER_EVENT = "bullmq:worker_events_metadata";
const PLAIN_PROCESSOR = "bullmq:processor_metadata";

const LOCKS_ON_QUEUE = boolean.default(false);

const logger = new Logger("ExclusiveWorkers");

interface WorkerEvent {
  readonly eventName: keyof WorkerListener;
}

type Shared = Partial<Pick<ExclusiveWorkerOptions, "connection" | "prefix" | "telemetry">>;

export class ExclusiveWorkers {
  readonly #redlock: Redlock;
  readonly #providers: ModuleRef;
  readonly #workers: ExclusiveWorker[] = [];
  /** Workers of `#workers` with `autorun: false`, which the application starts itself. */
  readonly #startedByHand = new Set<ExclusiveWorker>();
  #stopped: Promise<void> | undefined;

  constructor(redlock: Redlock, providers: ModuleRef) {
    this.#redlock = redlock;
    this.#providers = providers;
  }

  get all(): readonly ExclusiveWorker[] {
    return this.#workers;
  }

  /** Creates the workers, which take no job until `start()`. Throws for a decorator that is used wrongly. */
  prepare(discovery: Discovery): void {
    const processors = discovery.objects<ProcessorMark>(PROCESSOR);
    for (const each of processors) {
      try {
        this.#workers.push(this.#make(each, discovery));
      } catch (error) {
        void this.stop();
        throw at(each.name, error);
      }
    }
  }

  start(): void {
    for (const worker of this.#workers) {
      if (!this.#startedByHand.has(worker)) worker.run().catch((error: Error) => worker.emit("error", error));
    }
  }

  /** Takes no more jobs. Resolves when all running jobs have ended. */
  stop(): Promise<void> {
    this.#stopped ??= this.#stop();
    return this.#stopped;
  }

  async #stop(): Promise<void> {
    const ends = await Promise.allSettled(this.#workers.map((worker) => worker.close()));
    for (const end of ends)
      if (end.status === "rejected") logger.warn(`a worker was not closed: ${String(end.reason)}`);
  }

  /** Aborts the signals of all running jobs. */
  cancel(reason: string): void {
    for (const worker of this.#workers) worker.cancelAllJobs(reason);
  }

  #make({ mark, object }: MarkedObject<ProcessorMark>, discovery: Discovery): ExclusiveWorker {
    if (!isJobHost(object))
      throw new TypeError("an @ExclusiveProcessor must extend ExclusiveWorkerHost, or WorkerHost of @nestjs/bullmq");
    if (Reflect.hasMetadata(PLAIN_PROCESSOR, object.constructor))
      throw new TypeError(
        "an @ExclusiveProcessor must not also be a @Processor: two jobs of a key would run at a time",
      );
    const { configKey, autorun = true, locksOnQueue, ...own } = mark.options;
    const isOnQueue = LOCKS_ON_QUEUE.of("locksOnQueue", locksOnQueue);
    const options: { readonly connection?: unknown; readonly autorun: boolean } = {
      ...(isOnQueue ? {} : { redlock: this.#redlock }),
      ...this.#shared(mark.queue, configKey),
      ...withoutUndefined(own),
      autorun: false,
    };
    if (options.connection === undefined) {
      throw new TypeError(
        `connection must be an option of @ExclusiveProcessor, of BullModule.registerQueue or of BullModule.forRoot for queue ${quote(mark.queue)}`,
      );
    }
    const worker = new ExclusiveWorker(
      mark.queue,
      // Four parameters: BullMQ passes the signal only to a function with enough parameters.
      (job, token, signal, lock) => object.process(job, token, signal, lock),
      options as ExclusiveWorkerOptions,
    );
    if (!autorun) this.#startedByHand.add(worker);
    // Without a listener BullMQ prints the error. The error is also a line of Nest's log.
    worker.on("error", () => undefined);
    listen(worker, discovery.methodsOf(object, ON_WORKER_EVENT));
    attachWorker(object, worker);
    return worker;
  }

  /** Returns the queue's connection, prefix and telemetry: as registered for this queue, or else for all queues. */
  #shared(queue: string, configKey: string | undefined): Shared {
    const registered = this.#find(queueToken(queue)) as { readonly opts?: Shared } | undefined;
    const shared = this.#find(configToken(configKey)) as Shared | undefined;
    const { connection, prefix, telemetry } = registered?.opts ?? shared ?? {};
    return withoutUndefined({ connection, prefix, telemetry });
  }

  #find(token: string): unknown {
    try {
      return this.#providers.get<unknown>(token, { strict: false });
    } catch {
      return undefined;
    }
  }
}

/**
 * Calls the methods with `@OnWorkerEvent` of `@nestjs/bullmq` for the worker's events. BullMQ emits `error` for a
 * method that throws. For an async method that rejects, this function emits `error`.
 */
function listen(worker: ExclusiveWorker, methods: readonly MarkedMethod<WorkerEvent>[]): void {
  for (const { name, mark, call } of methods) {
    const failed = (error: unknown): void => {
      // A listener of `error` that fails would receive its own failure as the next `error`.
      if (mark.eventName === "error") logger.error(`${name} failed: ${messageOf(error)}`);
      else worker.emit("error", asError(error));
    };
    worker.on(mark.eventName, (...args: unknown[]) => {
      const result = call(...args);
      if (result instanceof Promise) result.catch(failed);
    });
  }
}

/** Removes options that are undefined, so that they count as missing. */
function withoutUndefined<Options extends object>(options: Options): Partial<Options> {
  return Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined)) as Partial<Options>;
}
