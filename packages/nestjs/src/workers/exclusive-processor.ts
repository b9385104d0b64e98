/** `@ExclusiveProcessor`: a class that processes the jobs of a queue, one per key at a time. */
import "reflect-metadata";
import type { ExclusiveWorkerOptions, KeyOption, KeyPath } from "@x/workers";
import type { ConnectionOptions } from "bullmq";
import type { Marker } from "../discovery.ts";
import type { JobHost } from "./worker-host.ts";

/** The options of `ExclusiveWorker`, with what the module knows left out. */
export interface ExclusiveProcessorOptions<Data = unknown, Name extends string = string>
  extends Omit<ExclusiveWorkerOptions<Data, Name>, "connection"> {
  /** Default: that of the queue, or else of `BullModule.forRoot`. */
  readonly connection?: ConnectionOptions | undefined;
  /**
   * Whether the locks of the keys are on the queue's own Redis, where they cost no request of their own. `@Locked`
   * methods then exclude these jobs only if that Redis is the one node of the module's `Redlock`. Default false.
   */
  readonly locksOnQueue?: boolean | undefined;
  /** Which `BullModule.forRoot` is meant, where there are several. */
  readonly configKey?: string | undefined;
}

export interface ProcessorMark {
  readonly queue: string;
  readonly options: ExclusiveProcessorOptions;
}

export const PROCESSOR: Marker = { key: Symbol("x.nestjs.processor"), decorator: "@ExclusiveProcessor" };

type DataOf<Host> = Host extends { process(job: { readonly data: infer Data }): unknown } ? Data : unknown;

/** A path that leads nowhere in the data of the class's jobs is told by the name of what is missing. */
type Fits<Key, Host> = [Extract<Key, string>] extends [KeyPath<DataOf<Host>>]
  ? unknown
  : { readonly "the key is no path to a key in the data of these jobs": Key };

/** Decorates classes that extend `ExclusiveWorkerHost`, or `WorkerHost` of `@nestjs/bullmq`. */
export type ExclusiveProcessorDecorator<Data, Name extends string, Key = KeyOption<Data, Name>> = <
  Host extends JobHost<Data, Name>,
>(
  target: (new (...args: never[]) => Host) & Fits<Key, Host>,
) => void;

/**
 * Processes the jobs of `queue` with this class, at most one job per key at a time. The class extends
 * `ExclusiveWorkerHost`, or `WorkerHost` of `@nestjs/bullmq`. `@Processor` works beside it, for other queues.
 *
 * The locks of the keys are on the `Redlock` of the module, so that `@Locked` methods and jobs exclude each other
 * wherever the queue is.
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
