/** BullMQ's option `telemetry`: exclusive workers emit the same spans as plain workers. */
import { until } from "@x/test-support";
import { ExclusiveWorker } from "@x/workers";
import { type Job, Queue, type Telemetry, UnrecoverableError, Worker } from "bullmq";
import { expect, it } from "vitest";
import { type Data, finished, jobs, Lab } from "./support/lab.ts";

interface SpanRecord {
  readonly name: string;
  readonly kind: unknown;
  readonly parent: string | undefined;
  readonly attributes: Record<string, unknown>;
  readonly events: string[];
  readonly exceptions: string[];
  isEnded: boolean;
}

/** Records spans like bullmq-otel, without OpenTelemetry: a context is the active span. */
function recorder(): { readonly telemetry: Telemetry<SpanRecord | undefined>; readonly spans: SpanRecord[] } {
  const spans: SpanRecord[] = [];
  let active: SpanRecord | undefined;
  const telemetry: Telemetry<SpanRecord | undefined> = {
    contextManager: {
      with: (context, work) => {
        const before = active;
        active = context as SpanRecord | undefined;
        try {
          return work();
        } finally {
          active = before;
        }
      },
      active: () => active as never,
      getMetadata: (context) => (context as SpanRecord | undefined)?.name ?? "",
      fromMetadata: (_active, metadata) => ({ name: `sent: ${metadata}` }) as never,
    },
    tracer: {
      startSpan: (name, options, context) => {
        const span: SpanRecord = {
          name,
          kind: options?.kind,
          parent: context?.name,
          attributes: {},
          events: [],
          exceptions: [],
          isEnded: false,
        };
        spans.push(span);
        return {
          setSpanOnContext: () => span as never,
          setAttribute: (key, value) => void (span.attributes[key] = value),
          setAttributes: (attributes) => void Object.assign(span.attributes, attributes),
          addEvent: (event, attributes) => void span.events.push(`${event} ${Object.keys(attributes ?? {}).join()}`),
          recordException: (exception) => void span.exceptions.push((exception as Error).message),
          end: () => void (span.isEnded = true),
        };
      },
    },
  };
  return { telemetry, spans };
}

/** The parts of a span that do not depend on the moment: the names of attributes, and the values that describe the event. */
function described(span: SpanRecord): string {
  const { name, kind, parent, attributes, events, exceptions, isEnded } = span;
  const told = Object.entries(attributes)
    .map(([key, value]) =>
      /timestamp|token|worker\.id|processedOn|delay/i.test(key) ? key : `${key}=${String(value)}`,
    )
    .toSorted();
  return JSON.stringify({ name, kind, parent, told, events, exceptions, isEnded });
}

/** Runs jobs that succeed, a job that is retried, and a job that fails for good. */
async function trace(makeWorker: typeof Worker): Promise<string[]> {
  await using lab = await Lab.start();
  const { telemetry, spans } = recorder();
  const queue = new Queue<Data>("q", { connection: lab.connection, telemetry: telemetry as never });
  lab.defer(async () => await queue.close());
  await queue.pause();
  for (const { name, data } of jobs(4, () => "k")) await queue.add(name, data, { attempts: 2 });
  const options = { connection: lab.connection, telemetry: telemetry as never, concurrency: 1, key: "k" };
  const worker = new makeWorker<Data>(
    "q",
    async (job: Job<Data>) => {
      if (job.data.i === 1 && job.attemptsMade === 0) throw new Error("to be retried");
      if (job.data.i === 2) throw new UnrecoverableError("for good");
      return await Promise.resolve(job.data.i);
    },
    { ...options, stalledInterval: 60_000, lockDuration: 30_000, name: "traced" },
  );
  worker.on("error", () => {});
  lab.defer(async () => await worker.close());
  await worker.waitUntilReady();
  await queue.resume();
  await finished(queue, 4);
  await until(() => spans.filter(({ name }) => name.startsWith("process")).every(({ isEnded }) => isEnded));
  // The number of requests of an idle worker depends on time.
  return spans
    .filter(({ name }) => !name.startsWith("getNextJob"))
    .map(described)
    .toSorted();
}

it("emits the spans of a plain worker", async () => {
  const plain = await trace(Worker);
  expect(plain.filter((span) => span.includes('"name":"process'))).toHaveLength(5);
  expect(await trace(ExclusiveWorker as unknown as typeof Worker)).toEqual(plain);
});
