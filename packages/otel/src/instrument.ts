/** Subscribes to the messages of locks, leaders, workers and effects, until the process stops it. */
import { type Meter, metrics, type Tracer, trace } from "@opentelemetry/api";
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
const MOST_KEYS = 100;

/**
 * Creates spans and metrics of every lock, leader, exclusive worker and effect in this process. Returns a function that
 * stops the instrumentation and ends all open spans. Call `instrument` once, after OpenTelemetry's SDK has started.
 *
 * The packages publish on `node:diagnostics_channel`; no code is patched.
 * @throws TypeError or RangeError for bad options.
 */
export function instrument(options: InstrumentOptions = {}): () => void {
  const { name, tracer, meter, workers, topKeys } = resolved(options);
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

type Resolved = { readonly [Option in keyof InstrumentOptions]-?: NonNullable<InstrumentOptions[Option]> };

function resolved(options: InstrumentOptions): Resolved {
  if (Object.prototype.toString.call(options) !== "[object Object]") throw new TypeError("options must be an object");
  const unknown = Object.keys(options).find((each) => !OPTIONS.has(each));
  if (unknown !== undefined) {
    throw new TypeError(`unknown option ${JSON.stringify(unknown)}: known are ${[...OPTIONS].join(", ")}`);
  }
  const {
    name = nameOf,
    tracer = trace.getTracer(SCOPE),
    meter = metrics.getMeter(SCOPE),
    workers = [],
    topKeys = 0,
  } = options;
  if (typeof name !== "function") throw new TypeError("name must be a function of a resource");
  if (typeof (tracer as Partial<Tracer>)?.startSpan !== "function") throw new TypeError("tracer must be a Tracer");
  if (typeof (meter as Partial<Meter>)?.createHistogram !== "function") throw new TypeError("meter must be a Meter");
  if (!Array.isArray(workers) || !workers.every(isWorker))
    throw new TypeError("workers must be an array of ExclusiveWorkers");
  if (typeof topKeys !== "number") throw new TypeError(`topKeys must be a number, got ${typeof topKeys}`);
  if (!Number.isInteger(topKeys) || topKeys < 0 || topKeys > MOST_KEYS)
    throw new RangeError(`topKeys must be an integer from 0 to ${MOST_KEYS}, got ${topKeys}`);
  return { name, tracer, meter, workers, topKeys };
}

const OPTIONS: ReadonlySet<string> = new Set(["name", "tracer", "meter", "workers", "topKeys"]);

function isWorker(given: unknown): given is ObservedWorker {
  const worker = given as Partial<ObservedWorker> | null | undefined;
  return typeof worker?.counts === "function" && typeof worker.listKeys === "function";
}
