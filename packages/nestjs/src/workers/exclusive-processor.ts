/** `@ExclusiveProcessor`: a class that processes the jobs of a queue, one per key at a time. */
import "reflect-metadata";
import type { ExclusiveWorkerOptions } from "@x/workers";
import type { ConnectionOptions } from "bullmq";
import type { Marker } from "../discovery.ts";
import type { ExclusiveWorkerHost } from "./worker-host.ts";

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

/** Decorates classes that extend `ExclusiveWorkerHost`. */
// oxlint-disable typescript/no-explicit-any -- a result may be of any type
export type ExclusiveProcessorDecorator<Data, Name extends string> = (
  target: new (...args: never[]) => ExclusiveWorkerHost<Data, any, Name>,
) => void;
// oxlint-enable typescript/no-explicit-any

/**
 * Processes the jobs of `queue` with this class, at most one job per key at a time. The class extends
 * `ExclusiveWorkerHost`. `@Processor` of `@nestjs/bullmq` works beside it, for other queues.
 *
 * The locks of the keys are on the `Redlock` of the module, so that `@Locked` methods and jobs exclude each other
 * wherever the queue is.
 */
// oxlint-disable-next-line typescript/no-explicit-any -- as ExclusiveWorkerHost
export function ExclusiveProcessor<Data = any, Name extends string = string>(
  queue: string,
  options: ExclusiveProcessorOptions<Data, Name>,
): ExclusiveProcessorDecorator<Data, Name> {
  return (target) => {
    const mark: ProcessorMark = { queue, options: options as unknown as ProcessorMark["options"] };
    Reflect.defineMetadata(PROCESSOR.key, mark, target);
  };
}
