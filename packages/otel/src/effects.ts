/** Metrics of effects in Postgres and of their outbox. */
import type { BatchObservableResult, Meter } from "@opentelemetry/api";
import { allOf, listen } from "./channels.ts";
import { durations } from "./meters.ts";

/** How long the gauges export the last backlog. A process that is no longer the leader measures no backlog. */
const VALID_MS = 15_000;

export function effectsMetrics(meter: Meter): () => void {
  const calls = meter.createCounter("x.effects.calls", {
    description: "Calls of once by their outcome, and repetitions after a lost connection or a conflict",
    unit: "{call}",
  });
  const duration = durations(meter, "x.effects.duration", "From the call of once to the commit of its effect");
  const relayed = meter.createCounter("x.effects.outbox.relayed", {
    description: "Outbox rows that were added to their queue",
    unit: "{row}",
  });
  const failed = meter.createCounter("x.effects.outbox.failed", {
    description: "Batches of outbox rows that could not be added, and are tried again",
    unit: "{batch}",
  });
  const rows = meter.createObservableGauge("x.effects.outbox.rows", {
    description: "Outbox rows that wait for their relay, as the leader counts them every 5 s",
    unit: "{row}",
  });
  const oldest = meter.createObservableGauge("x.effects.outbox.oldest", {
    description: "Age of the oldest outbox row that waits: the figure to alert on",
    unit: "s",
  });
  let latest = { rows: 0, oldestMs: 0, untilMs: 0 };
  const observe = (result: BatchObservableResult): void => {
    if (nowMs() > latest.untilMs) return;
    result.observe(rows, latest.rows);
    result.observe(oldest, latest.oldestMs / 1_000);
  };
  meter.addBatchObservableCallback(observe, [rows, oldest]);
  const count = (outcome: string) => (): void => calls.add(1, { "x.effects.outcome": outcome });
  const queueOf = ({ queue }: { readonly queue: string }) => ({ "x.workers.queue": queue });
  return allOf([
    listen("x.effects.committed", ({ tookMs }) => {
      count("committed")();
      duration.record(tookMs / 1_000);
    }),
    listen("x.effects.repeated", count("repeated")),
    listen("x.effects.fencedOff", count("fencedOff")),
    listen("x.effects.retried", count("retried")),
    listen("x.effects.relayed", (message) => relayed.add(message.rows, queueOf(message))),
    listen("x.effects.relayFailed", (message) => failed.add(1, queueOf(message))),
    listen("x.effects.backlogMeasured", (backlog) => {
      latest = { ...backlog, untilMs: nowMs() + VALID_MS };
    }),
    () => meter.removeBatchObservableCallback(observe, [rows, oldest]),
  ]);
}

function nowMs(): number {
  // oxlint-disable-next-line eslint/no-restricted-globals -- no Clock: only what is exported depends on it
  return performance.now();
}
