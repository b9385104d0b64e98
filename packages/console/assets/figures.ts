/** Pure: what the page computes from the figures of the state. */
import type { ElectionView, MarkView, QueueView, TermView } from "../src/page/state.ts";

/** Points of a chart in a minute. */
const A_MINUTE = 4;

/** Sums the newest minute of a series. Undefined if nothing was reported. */
export function perMinute(points: readonly (number | null)[] | undefined): number | undefined {
  const known = (points ?? []).slice(0, A_MINUTE).filter((each) => each !== null);
  return known.length === 0 ? undefined : Math.round((sumOf(known) / known.length) * A_MINUTE);
}

/** Sums a series. Undefined if nothing was reported. */
export function total(points: readonly (number | null)[] | undefined): number | undefined {
  const known = (points ?? []).filter((each) => each !== null);
  return known.length === 0 ? undefined : sumOf(known);
}

function sumOf(values: readonly number[]): number {
  return values.reduce((sum, each) => sum + each, 0);
}

/** Sorts queues: those with a problem first, then the busiest. */
export function sortedQueues(queues: readonly QueueView[], withProblem: ReadonlySet<string>): readonly QueueView[] {
  const busy = ({ series, running, runnable, parked }: QueueView): number =>
    (perMinute(series?.completed) ?? 0) + running + runnable + parked;
  return queues.toSorted(
    (one, other) =>
      Number(withProblem.has(other.name)) - Number(withProblem.has(one.name)) ||
      busy(other) - busy(one) ||
      (one.name < other.name ? -1 : 1),
  );
}

/** A round number above the greatest of the values, for the end of an axis with three steps. */
export function ceilingOf(values: readonly number[]): number {
  const greatest = Math.max(3, ...values);
  const size = 10 ** Math.floor(Math.log10(greatest / 3));
  const step = [1, 2, 3, 5, 10].map((each) => each * size).find((each) => each * 3 >= greatest) ?? size * 10;
  return step * 3;
}

/** A part of a line, in percent of its length. */
export interface Span {
  readonly left: number;
  readonly width: number;
}

/** The part of the time line that a period covers. Undefined if none of it is shown. */
export function spanOf(since: number, until: number, from: number, to: number): Span | undefined {
  const place = (at: number): number => ((Math.min(to, Math.max(from, at)) - from) / (to - from)) * 100;
  if (until < from || since > to) return undefined;
  return { left: place(since), width: Math.max(0, place(until) - place(since)) };
}

/** A period without a leader. */
export interface Gap {
  readonly since: number;
  readonly until: number;
}

/** Returns the periods in which nobody led: between two terms, and after the last one. Shorter than 10 ms is none. */
export function gapsOf({ terms, leaderlessSince }: ElectionView, now: number): readonly Gap[] {
  const gaps: Gap[] = [];
  for (const [at, { until }] of terms.entries()) {
    const next = terms[at + 1];
    if (until !== undefined && next !== undefined && next.since - until >= 10)
      gaps.push({ since: until, until: next.since });
  }
  if (leaderlessSince !== undefined) gaps.push({ since: leaderlessSince, until: now });
  return gaps;
}

/** The time until which a term is known to have lasted, and the time by which it had ended. */
export function endOf(
  { until, end, since }: TermView,
  now: number,
): { readonly known: number; readonly latest: number } {
  if (until === undefined) return { known: now, latest: now };
  return end === "unknown" ? { known: since, latest: until } : { known: until, latest: until };
}

/** Marks that are so close that they share a flag: the numbers of the marks, oldest first. */
export interface Flag {
  readonly at: number;
  readonly numbers: readonly number[];
}

/** Groups the marks of a time line. `apart`: the least distance of two flags, in ms. */
export function flagsOf(marks: readonly MarkView[], apart: number): readonly Flag[] {
  const flags: { at: number; numbers: number[] }[] = [];
  for (const [index, { at }] of marks.entries()) {
    const last = flags.at(-1);
    if (last !== undefined && at - last.at < apart) last.numbers.push(index + 1);
    else flags.push({ at, numbers: [index + 1] });
  }
  return flags;
}

/** Times of an axis, at full multiples of a round step. */
export function axisOf(from: number, to: number, most: number): readonly number[] {
  const steps = [0.5, 1, 2, 3, 5, 10, 15, 30, 60, 120, 180].map((minutes) => minutes * 60_000);
  const step = steps.find((each) => (to - from) / each <= most) ?? 180 * 60_000;
  const first = Math.ceil(from / step) * step;
  return Array.from({ length: Math.max(0, Math.floor((to - first) / step) + 1) }, (_, at) => first + at * step);
}
