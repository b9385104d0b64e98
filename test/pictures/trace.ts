/** The spans of `@x/otel`, from OpenTelemetry's own SDK, with the times of the virtual clock. */
import { context, SpanStatusCode } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import {
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
  type SpanProcessor,
  TracerProvider,
} from "@opentelemetry/sdk-trace";
import { instrument } from "@x/otel";
import { Redlock } from "@x/redlock-core";
import { memoryNodes, VirtualClock } from "@x/testing";
import type { Row } from "./waterfall.ts";

/** Two requests of two services for one account. The second request waits until the first has ended. */
export async function trace(): Promise<readonly Row[]> {
  const clock = new VirtualClock();
  const nodes = memoryNodes(3, { clock, latency: 1 });
  const times = new Map<string, { readonly fromMs: number; toMs: number }>();
  const stopwatch: SpanProcessor = {
    onStart: (span) => void times.set(span.spanContext().spanId, { fromMs: clock.elapsedMs, toMs: clock.elapsedMs }),
    onEnd: (span) => {
      const time = times.get(span.spanContext().spanId);
      if (time !== undefined) time.toMs = clock.elapsedMs;
    },
    forceFlush: () => Promise.resolve(),
    shutdown: () => Promise.resolve(),
  };
  const exporter = new InMemorySpanExporter();
  const provider = new TracerProvider({ spanProcessors: [stopwatch, new SimpleSpanProcessor({ exporter })] });
  const tracer = provider.getTracer("picture");
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  const stop = instrument({ tracer });
  const redlocks = ["invoices", "refunds"].map((name) => {
    const process = clock.process(name);
    let count = 0;
    const random = { token: () => `${name}${String((count += 1))}`.padStart(40, "0"), fraction: () => 0.5 };
    return new Redlock(memoryNodes(nodes, { clock: process, latency: 1 }), { clock: process, random });
  });
  const lasting = (ms: number): Promise<void> => new Promise((resolve) => clock.schedule(ms, resolve));
  const request = async (name: string, redlock: Redlock | undefined, call: string, ms: number): Promise<void> =>
    await tracer.startActiveSpan(name, async (span) => {
      await redlock?.using("account:42", async (lock) => {
        const inner = tracer.startSpan(call);
        await lasting(ms);
        inner.end();
        await lock.extend();
      });
      span.end();
    });
  try {
    const first = request("POST /invoices", redlocks[0], "bank: charge", 120);
    await clock.advance(40);
    const second = request("POST /refunds", redlocks[1], "bank: refund", 60);
    await clock.until(Promise.all([first, second]));
    await clock.until(Promise.all(redlocks.map((redlock) => redlock.close())));
    return rowsOf(exporter.getFinishedSpans(), times);
  } finally {
    stop();
    await provider.shutdown();
    context.disable();
  }
}

function rowsOf(
  spans: readonly ReadableSpan[],
  times: ReadonlyMap<string, { readonly fromMs: number; readonly toMs: number }>,
): readonly Row[] {
  const timeOf = (span: ReadableSpan): { readonly fromMs: number; readonly toMs: number } =>
    times.get(span.spanContext().spanId) ?? { fromMs: 0, toMs: 0 };
  const under = (parent: ReadableSpan | undefined, depth: number, service: string): readonly Row[] =>
    spans
      .filter((span) => span.parentSpanContext?.spanId === parent?.spanContext().spanId)
      .toSorted((one, other) => timeOf(one).fromMs - timeOf(other).fromMs || timeOf(other).toMs - timeOf(one).toMs)
      .flatMap((span) => {
        const { fromMs, toMs } = timeOf(span);
        const own = parent === undefined ? span.name : service;
        const token = span.attributes["x.fencing_token"];
        const isGrant = span.name.startsWith("lock acquire") && typeof token === "number";
        const text = `${toMs - fromMs} ms${isGrant ? `, token ${token}` : ""}`;
        const isError = span.status.code === SpanStatusCode.ERROR;
        const row = { name: span.name, depth, service: own, fromMs, toMs, text, isError };
        return [row, ...under(span, depth + 1, own)];
      });
  return under(undefined, 0, "");
}
