/** Subscribes to the messages of locks, leaders, workers and effects, until the process stops it. */
import { type Meter, metrics, type Tracer, trace } from "@opentelemetry/api";
import { callback, integer, listOf, objectWith, Schema, type ShapeOf, shaped } from "@x/redlock-core/kit";
import { effectsMetrics } from "./effects.ts";
import { leaderMetrics } from "./leaders.ts";
import { lockMetrics } from "./locks.ts";
import { type NameOf, nameOf } from "./names.ts";
import { drawSpans } from "./spans.ts";
import { type ObservedQueue, queueGauges, workerMetrics } from "./workers.ts";

export interface InstrumentOptions {
  /**
   * Maps a resource to the name used in span names and metric attributes, where one value per account would be too
   * many. Default: the text up to the last `:`, followed by `*`. A resource without `:` keeps its name.
   */
  readonly name?: NameOf | undefined;
  /** Default: a tracer of the global provider. */
  readonly tracer?: Tracer | undefined;
  /** Default: a meter of the global provider. */
  readonly meter?: Meter | undefined;
  /** Queues with gauges, which cost a few Redis commands per queue at each export. Default: none. */
  readonly queues?: readonly ObservedQueue[] | undefined;
  /**
   * How many keys per queue have a gauge of their waiting jobs, beginning with the longest line. From 0 to 100; default
   * 0.
   */
  readonly topKeys?: number | undefined;
}

const SCOPE = "@x/otel";

/**
 * Creates spans and metrics of every lock, leader, exclusive worker and effect in this process. Returns a function that
 * stops the instrumentation and ends all open spans. Call `instrument` once, after OpenTelemetry's SDK has started.
 *
 * The packages publish on `node:diagnostics_channel`; no code is patched.
 * @throws TypeError or RangeError for bad options.
 */
export function instrument(options: InstrumentOptions = {}): () => void {
  const { name, queues, topKeys, ...given } = OPTIONS.resolve(options);
  const { tracer = trace.getTracer(SCOPE), meter = metrics.getMeter(SCOPE) } = given;
  const stops = [
    drawSpans(tracer, name),
    lockMetrics(meter, name),
    leaderMetrics(meter),
    workerMetrics(meter),
    effectsMetrics(meter),
    queueGauges(meter, queues, topKeys),
  ];
  return () => {
    for (const stop of stops.splice(0)) stop();
  };
}

const OPTIONS = new Schema({
  name: callback<NameOf>("a function of a resource").default(nameOf),
  tracer: shaped<Tracer>("a Tracer", ({ startSpan }) => typeof startSpan === "function").optional(),
  meter: shaped<Meter>("a Meter", ({ createHistogram }) => typeof createHistogram === "function").optional(),
  queues: listOf("an array of ExclusiveQueues", objectWith<ObservedQueue>(["counts", "listKeys"])).default([]),
  topKeys: integer({ min: 0, max: 100, unit: "" }).default(0),
} satisfies ShapeOf<InstrumentOptions>);
