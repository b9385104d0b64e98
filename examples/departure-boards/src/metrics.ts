/** Metrics for Prometheus, on the port that `METRICS_PORT` names; docker-compose.yml does. Without it, nothing is loaded. */
import type { ExclusiveQueue } from "@x/workers";

/** Resolves with a function that ends the serving. */
export async function serveMetrics(queues: readonly ExclusiveQueue[] = []): Promise<() => Promise<void>> {
  const port = Number(process.env["METRICS_PORT"] ?? 0);
  if (port === 0) return async () => {};
  const [{ instrument }, { PrometheusExporter }, { MeterProvider }] = await Promise.all([
    import("@x/otel"),
    import("@opentelemetry/exporter-prometheus"),
    import("@opentelemetry/sdk-metrics"),
  ]);
  const exporter = new PrometheusExporter({ port, preventServerStart: true });
  await exporter.startServer();
  const provider = new MeterProvider({ readers: [exporter] });
  const stop = instrument({ meter: provider.getMeter("departure-boards"), queues });
  return async () => {
    stop();
    await provider.shutdown();
  };
}
