/** Pure: the runs of all processes of a system, combined. */

/** Key and place of a job, and the start and end of its run. */
export type Ran = readonly [key: string, place: number, fromMs: number, toMs: number];

export interface History {
  readonly done: number;
  readonly elapsedMs: number;
  /** When the first job began. */
  readonly firstMs: number;
  /** When the last job of a key other than the hot key was done. */
  readonly lastOtherMs: number;
  /** Jobs that began while another job of their key ran. */
  readonly overlaps: number;
  /** Jobs that began after a later job of their key. */
  readonly orderViolations: number;
}

export function historyOf(startedMs: number, ran: readonly Ran[], hotKey: string): History {
  const furthest = new Map<string, { place: number; toMs: number }>();
  let [overlaps, orderViolations, lastMs, lastOtherMs] = [0, 0, startedMs, startedMs];
  const inOrder = ran.toSorted((a, b) => a[2] - b[2]);
  for (const [key, place, fromMs, toMs] of inOrder) {
    const before = furthest.get(key);
    if (before !== undefined && before.toMs > fromMs) overlaps += 1;
    if (before !== undefined && before.place > place) orderViolations += 1;
    furthest.set(key, { place: Math.max(place, before?.place ?? 0), toMs: Math.max(toMs, before?.toMs ?? 0) });
    lastMs = Math.max(lastMs, toMs);
    if (key !== hotKey) lastOtherMs = Math.max(lastOtherMs, toMs);
  }
  return {
    done: ran.length,
    elapsedMs: lastMs - startedMs,
    firstMs: (inOrder[0]?.[2] ?? startedMs) - startedMs,
    lastOtherMs: lastOtherMs - startedMs,
    overlaps,
    orderViolations,
  };
}
