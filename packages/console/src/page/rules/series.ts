/** Pure: the points of a queue's charts. */
import { MOST_POINTS, type SeriesView, STEP_MS } from "../state.ts";

/** What one look knows. Undefined: not known. */
interface Point {
  readonly runnable: number;
  readonly parked: number;
  /** The counts of each process since its start, by the name of the process. */
  readonly counts: ReadonlyMap<string, { readonly completed: number; readonly failed: number }>;
}

type Line = (number | null)[];

export class Series {
  readonly #lines: Readonly<Record<"completed" | "failed" | "runnable" | "parked", Line>> = {
    completed: [],
    failed: [],
    runnable: [],
    parked: [],
  };
  #step = Number.NEGATIVE_INFINITY;
  #counts: Point["counts"] | undefined;

  /** Adds a look. Looks within one step share a point. A step without a look has no value. */
  add(nowMs: number, { runnable, parked, counts }: Point): void {
    const { completed, failed } = this.#lines;
    const ended = this.#endedSince(counts);
    const step = Math.floor(nowMs / STEP_MS);
    if (step > this.#step) {
      const passed = Math.min(MOST_POINTS, Number.isFinite(this.#step) ? step - this.#step : 1);
      this.#step = step;
      for (const line of Object.values(this.#lines)) {
        line.unshift(...Array.from({ length: passed }, () => null));
        line.splice(MOST_POINTS);
      }
    }
    this.#lines.runnable[0] = runnable;
    this.#lines.parked[0] = parked;
    if (ended === undefined) return;
    completed[0] = (completed[0] ?? 0) + ended.completed;
    failed[0] = (failed[0] ?? 0) + ended.failed;
  }

  /** Undefined before the first look. */
  get view(): SeriesView | undefined {
    if (!Number.isFinite(this.#step)) return undefined;
    const { completed, failed, runnable, parked } = this.#lines;
    const at = this.#step * STEP_MS;
    return { at, completed: [...completed], failed: [...failed], runnable: [...runnable], parked: [...parked] };
  }

  /** Returns what has ended since the last look. Undefined at the first look, and if no process reports. */
  #endedSince(counts: Point["counts"]): { readonly completed: number; readonly failed: number } | undefined {
    const before = this.#counts;
    this.#counts = counts;
    if (before === undefined || counts.size === 0) return undefined;
    let [completed, failed] = [0, 0];
    for (const [process, count] of counts) {
      // Counts of a process that is new since the last look began at 0.
      const { completed: c = 0, failed: f = 0 } = before.get(process) ?? {};
      completed += Math.max(0, count.completed - c);
      failed += Math.max(0, count.failed - f);
    }
    return { completed, failed };
  }
}
