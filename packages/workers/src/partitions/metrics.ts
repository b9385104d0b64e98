/** Metrics of a divided queue as one queue, in the text format of Prometheus. */
import { sumFigures } from "../operators/rules/exclusion.ts";
import { bullText, LABELS, prometheusText, sumCounts } from "../operators/rules/prometheus.ts";
import type { PartitionQueues } from "./partition-queues.ts";

/** Resolves with BullMQ's metrics and the gauges of the keys. `labels` are added to every sample. */
export async function readMetrics<Data, Result, Name extends string>(
  partitions: PartitionQueues<Data, Result, Name>,
  labels: Readonly<Record<string, string>>,
): Promise<string> {
  LABELS.of("labels", labels);
  const { name } = partitions.division;
  const ended = async (state: "completed" | "failed"): Promise<number> => {
    const counts = await partitions.askAll(async (each) => (await each.getMetrics(state)).meta.count);
    return counts.reduce((sum, count) => sum + count, 0);
  };
  const [jobs, completed, failed, counts, overviews] = await Promise.all([
    partitions.askAll(async (each) => await each.getJobCounts()),
    ended("completed"),
    ended("failed"),
    partitions.askAll(async (each) => await each.counts()),
    partitions.askAll(async (each) => await each.overview()),
  ]);
  const exclusion = sumFigures(
    overviews.map((overview) => overview.exclusion),
    0,
  );
  const bull = bullText(name, { jobs: sumCounts(jobs), completed, failed }, labels);
  return [bull, prometheusText(name, { counts: sumCounts(counts), exclusion }, labels)].join("\n");
}
