/** Subscribes to the messages of locks, leaders, workers and effects, until the process stops it. */
import { type Meter, metrics, type Tracer, trace } from "@opentelemetry/api";
import { callback, integer, listOf, objectWith, Schema, type ShapeOf, shaped } from "@x/redlock-core/kit";
import { effectsMetrics } from "./effects.ts";
import { leaderMetrics } from "./leaders.ts";
import { lockMetrics } from "./locks.ts";
import { type NameOf, nameOf } from "./names.ts";
import { drawSpans } from "./spans.ts";
import { type ObservedWorker, workerGauges, workerMetrics } from "./workers.ts";

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
  /** One worker per queue. The gauges of the queue cost a few Redis commands at each export. Default: none. */
  readonly workers?: readonly ObservedWorker[] | undefined;
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
  const { name, workers, topKeys, ...given } = OPTIONS.resolve(options);
  const { tracer = trace.getTracer(SCOPE), meter = metrics.getMeter(SCOPE) } = given;
  const stops = [
    drawSpans(tracer, name),
    lockMetrics(meter, name),
    leaderMetrics(meter),
    workerMetrics(meter),
    effectsMetrics(meter),
    workerGauges(meter, workers, topKeys),
  ];
  return () => {
    for (const stop of stops.splice(0)) stop();
  };
}

const OPTIONS = new Schema({
  name: callback<NameOf>("a function of a resource").default(nameOf),
  tracer: shaped<Tracer>("a Tracer", ({ startSpan }) => typeof startSpan === "function").optional(),
  meter: shaped<Meter>("a Meter", ({ createHistogram }) => typeof createHistogram === "function").optional(),
  workers: listOf("an array of ExclusiveWorkers", objectWith<ObservedWorker>(["counts", "listKeys"])).default([]),
  topKeys: integer({ min: 0, max: 100, unit: "" }).default(0),
} satisfies ShapeOf<InstrumentOptions>);
