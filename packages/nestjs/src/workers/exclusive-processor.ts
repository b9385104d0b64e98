/** `@ExclusiveProcessor`: a class that processes the jobs of a queue, one per key at a time. */
import "reflect-metadata";
import type { ExclusiveWorkerOptions, KeyOption, KeyPath } from "@x/workers";
import type { ConnectionOptions } from "bullmq";
import type { Marker } from "../discovery.ts";
import type { JobHost } from "./worker-host.ts";

/** The options of `ExclusiveWorker`, with defaults from the module. */
export interface ExclusiveProcessorOptions<Data = unknown, Name extends string = string>
  extends Omit<ExclusiveWorkerOptions<Data, Name>, "connection"> {
  /** Default: the connection of the queue, or else of `BullModule.forRoot`. */
  readonly connection?: ConnectionOptions | undefined;
  /**
   * Whether the locks of the keys are on the queue's own Redis, where they cost no extra request. In this case
   * `@Locked` methods exclude these jobs only if the queue's Redis is also the single node of the module's `Redlock`.
   * Default false.
   */
  readonly locksOnQueue?: boolean | undefined;
  /** The `configKey` of the `BullModule.forRoot` to use, if an application has several. */
  readonly configKey?: string | undefined;
}

export interface ProcessorMark {
  readonly queue: string;
  readonly options: ExclusiveProcessorOptions;
}

export const PROCESSOR: Marker = { key: Symbol("x.nestjs.processor"), decorator: "@ExclusiveProcessor" };

type DataOf<Host> = Host extends { process(job: { readonly data: infer Data }): unknown } ? Data : unknown;

/**
 * Checks that a path exists in the job data of the class. A wrong path shows the missing name in the compiler's error.
 */
type Fits<Key, Host> = [Extract<Key, string>] extends [KeyPath<DataOf<Host>>]
  ? unknown
  : { readonly "the key is not a path to a key in the data of these jobs": Key };

/** Decorates classes that extend `ExclusiveWorkerHost`, or `WorkerHost` of `@nestjs/bullmq`. */
export type ExclusiveProcessorDecorator<Data, Name extends string, Key = KeyOption<Data, Name>> = <
  Host extends JobHost<Data, Name>,
>(
  target: (new (...args: never[]) => Host) & Fits<Key, Host>,
) => void;

/**
 * Processes the jobs of `queue` with this class, at most one job per key at a time. The class extends
 * `ExclusiveWorkerHost`, or `WorkerHost` of `@nestjs/bullmq`. Other queues may use `@Processor` in the same
 * application.
 *
 * The locks of the keys are on the module's `Redlock`. So `@Locked` methods and jobs exclude each other, on any queue.
 */
export function ExclusiveProcessor<
  // oxlint-disable-next-line typescript/no-explicit-any -- as ExclusiveWorkerHost
  Data = any,
  Name extends string = string,
  Key extends KeyOption<Data, Name> = KeyOption<Data, Name>,
>(
  queue: string,
  options: Omit<ExclusiveProcessorOptions<Data, Name>, "key"> & { readonly key: Key },
): ExclusiveProcessorDecorator<Data, Name, Key> {
  return (target) => {
    const mark: ProcessorMark = { queue, options: options as unknown as ProcessorMark["options"] };
    Reflect.defineMetadata(PROCESSOR.key, mark, target);
  };
}
