/** Pure: the figures of a report that a release must not make worse, and their comparison with the recorded figures. */
import type { Spread } from "../support/statistics.ts";
import type { Measurements } from "./report.ts";

export interface Figure {
  /** Description of the measured value, the same in every run. */
  readonly name: string;
  readonly better: "higher" | "lower";
  readonly value: Spread;
}

export interface Comparison {
  readonly name: string;
  readonly recorded: Spread;
  readonly now: Spread;
  /** The share of the recorded median that was lost. Negative if the figure has improved. */
  readonly lossShare: number;
  /** The loss that is attributed to chance. */
  readonly noiseShare: number;
  readonly isWorse: boolean;
}

/** A smaller loss is never reported as worse, because two runs of one build differ by as much. */
const smallestNoiseShare = 0.05;

const ours: ReadonlySet<string> = new Set(["ours", "ours, as redlock 5", "ExclusiveWorker"]);

/** Returns ratios to the floor of the same run, and counts, because these figures depend least on the machine. */
export function figuresOf(measured: Measurements): readonly Figure[] {
  const figures: Figure[] = [];
  const add = (name: string, better: Figure["better"], value: Spread | number): void => {
    const spread = typeof value === "number" ? { median: value, low: value, high: value } : value;
    if (Number.isFinite(spread.median)) figures.push({ name, better, value: spread });
  };
  for (const row of (measured.throughput ?? []).filter(({ driver }) => ours.has(driver))) {
    const where = `${row.driver}, ${row.nodes} nodes, ${row.callers} callers`;
    add(`pairs/s x ioredis (${where})`, "higher", row.timesFloor);
    add(`client CPU x ioredis (${where})`, "lower", row.clientCpuTimesFloor);
    add(`server CPU x ioredis (${where})`, "lower", row.serverCpuTimesFloor);
    add(`server calls a pair (${where})`, "lower", row.serverCalls);
  }
  for (const row of (measured.handOver ?? []).filter(({ label }) => ours.has(label))) {
    add(`hand-over p50 ms (${row.nodes} nodes)`, "lower", row.p50Ms);
    add(`hand-over commands a grant (${row.nodes} nodes)`, "lower", row.commands);
  }
  for (const row of (measured.held ?? []).filter(({ driver }) => ours.has(driver))) {
    add(`commands/s for ${row.locks} held locks`, "lower", row.commandsPerSecond);
  }
  for (const row of (measured.memory ?? []).filter(({ driver }) => ours.has(driver))) {
    add("bytes a pending acquire", "lower", row.pendingBytes);
    add("bytes a held lock", "lower", row.heldBytes);
    add("bytes left on the node a resource", "lower", row.leftBytes);
  }
  for (const row of (measured.workers ?? []).filter(({ system }) => ours.has(system))) {
    add(`jobs/s x BullMQ (${row.load})`, "higher", row.timesPlain);
    add(`server calls a job (${row.load})`, "lower", row.serverCalls);
    add(`client CPU µs a job (${row.load})`, "lower", row.clientCpuUs);
    add(`server CPU µs a job (${row.load})`, "lower", row.serverCpuUs);
  }
  for (const row of (measured.leaders ?? []).filter(({ way }) => ours.has(way))) {
    add(`idle commands/s of ${row.candidates} candidates (${row.nodes} nodes)`, "lower", row.commandsPerSecond);
    add(`resigned leader to the next, cold, ms (${row.nodes} nodes)`, "lower", row.resignedCold.tookMs);
    add(`resigned leader to the next, warm, ms (${row.nodes} nodes)`, "lower", row.resignedWarm.tookMs);
  }
  for (const row of (measured.elections ?? []).filter(({ way }) => ours.has(way))) {
    add(`commands/s of ${row.elections} elections (${row.nodes} nodes)`, "lower", row.commandsPerSecond);
  }
  return figures;
}

/** Returns the record, with new figures instead of figures with the same name. Figures with new names come last. */
export function updated(recorded: readonly Figure[], now: readonly Figure[]): readonly Figure[] {
  return [...new Map([...recorded, ...now].map((figure) => [figure.name, figure])).values()];
}

/** Compares the figures that both have, so that a run of some parts is compared with the same parts. */
export function compare(recorded: readonly Figure[], now: readonly Figure[]): readonly Comparison[] {
  const byName = new Map(recorded.map((figure) => [figure.name, figure]));
  return now.flatMap(({ name, better, value }) => {
    const before = byName.get(name)?.value;
    if (before === undefined || !(before.median > 0)) return [];
    const change = (value.median - before.median) / before.median;
    const lossShare = better === "higher" ? -change : change;
    const widthShare = ({ low, high }: Spread): number => (high - low) / before.median;
    const noiseShare = Math.max(smallestNoiseShare, widthShare(before), widthShare(value));
    return [{ name, recorded: before, now: value, lossShare, noiseShare, isWorse: lossShare > noiseShare }];
  });
}
