/** OpenTelemetry's own SDK, configured as in an application. */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { context } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import { PrometheusExporter } from "@opentelemetry/exporter-prometheus";
import { MeterProvider } from "@opentelemetry/sdk-metrics";
import { InMemorySpanExporter, type ReadableSpan, SimpleSpanProcessor, TracerProvider } from "@opentelemetry/sdk-trace";
import { type InstrumentOptions, instrument } from "@x/otel";
import type { RedisServer } from "@x/test-support";

export interface Sdk extends AsyncDisposable {
  readonly tracer: ReturnType<TracerProvider["getTracer"]>;
  /** The spans that have ended, in the order of their ends. */
  readonly spans: () => readonly ReadableSpan[];
  /** Host and port of the address that Prometheus scrapes. */
  readonly target: string;
  /** Returns the samples of a metric as Prometheus receives them, by their labels. */
  readonly scrape: () => Promise<ReadonlyMap<string, number>>;
  readonly stop: () => void;
}

/** Starts the SDK and instruments this process, until the scope ends. */
export async function startSdk(options: Omit<InstrumentOptions, "tracer" | "meter"> = {}): Promise<Sdk> {
  const manager = new AsyncLocalStorageContextManager().enable();
  context.setGlobalContextManager(manager);
  const exporter = new InMemorySpanExporter();
  const tracers = new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] });
  // The exporter's own server interprets port 0 as its usual port.
  const prometheus = new PrometheusExporter({ preventServerStart: true });
  const meters = new MeterProvider({ readers: [prometheus] });
  const http = createServer((request, response) => prometheus.getMetricsRequestHandler(request, response));
  await once(http.listen(0, "127.0.0.1"), "listening");
  const { port } = http.address() as AddressInfo;
  const tracer = tracers.getTracer("test");
  const stop = instrument({ ...options, tracer, meter: meters.getMeter("test") });
  return {
    tracer,
    target: `127.0.0.1:${port}`,
    spans: () => exporter.getFinishedSpans(),
    scrape: async () => parse(await (await fetch(`http://127.0.0.1:${port}/metrics`)).text()),
    stop,
    async [Symbol.asyncDispose]() {
      stop();
      await Promise.all([tracers.shutdown(), meters.shutdown()]);
      context.disable();
      http.closeAllConnections();
      await new Promise((resolve) => http.close(resolve));
    },
  };
}

function parse(text: string): ReadonlyMap<string, number> {
  const samples = text.split("\n").filter((line) => line !== "" && !line.startsWith("#"));
  return new Map(
    samples.map((line) => {
      const end = line.lastIndexOf(" ");
      return [
        line
          .slice(0, end)
          .replaceAll(/,?otel_scope_\w+="[^"]*"/g, "")
          .replace("{,", "{")
          .replace("{}", ""),
        Number(line.slice(end + 1)),
      ];
    }),
  );
}

export function parentOf(span: ReadableSpan, all: readonly ReadableSpan[]): string | undefined {
  return all.find((each) => each.spanContext().spanId === span.parentSpanContext?.spanId)?.name;
}

export function connectionOf(server: RedisServer): { readonly host: string; readonly port: number } {
  return { host: server.host, port: server.port };
}
