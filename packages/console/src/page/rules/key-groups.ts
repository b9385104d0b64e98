/** Pure: groups the keys of a queue by their state, by the length of their line, and by the wait of their first job. */
import type { BusyKey } from "@x/workers";

/** The states by which keys can be filtered. A key may be in several groups. */
export interface KeyCounts {
  /** Keys with jobs in line. */
  readonly waiting: number;
  readonly limited: number;
  readonly paused: number;
  readonly halted: number;
  readonly stalled: number;
}

/** Keys whose lines have `least` or more jobs, and fewer than the next group's. */
export interface LineGroup {
  readonly least: number;
  readonly keys: number;
  /** The jobs in these lines. */
  readonly jobs: number;
}

/** Keys whose first job in line was added `leastMs` ago or earlier, and later than the next group's. */
export interface AgeGroup {
  readonly leastMs: number;
  readonly keys: number;
}

export interface KeyGroups {
  readonly counts: KeyCounts;
  /** The shortest lines first. */
  readonly lines: readonly LineGroup[];
  /** The shortest waits first. */
  readonly ages: readonly AgeGroup[];
  /** The least number of keys whose lines contain a fifth of the parked jobs. */
  readonly fifth: number;
}

const LINES = [1, 2, 4, 8, 16, 32, 64, 128, 512];
const AGES_MS = [0, 1_000, 10_000, 60_000, 300_000, 1_800_000];

type State = keyof KeyCounts;

const STATES: Readonly<Record<State, (key: BusyKey, atMs: number) => boolean>> = {
  waiting: ({ parked }) => parked > 0,
  limited: ({ limitedUntilMs = 0 }, atMs) => limitedUntilMs > atMs,
  paused: ({ paused }) => paused !== undefined && paused.jobId === undefined,
  halted: ({ paused }) => paused?.jobId !== undefined,
  stalled: ({ isStalled }) => isStalled,
};

/** Groups keys. `atMs`: when the keys were read. */
export function groupsOf(keys: readonly BusyKey[], atMs: number): KeyGroups {
  const counts = { waiting: 0, limited: 0, paused: 0, halted: 0, stalled: 0 };
  const lines = LINES.map((least) => ({ least, keys: 0, jobs: 0 }));
  const ages = AGES_MS.map((leastMs) => ({ leastMs, keys: 0 }));
  for (const key of keys) {
    for (const [state, isIn] of Object.entries(STATES) as [State, (typeof STATES)[State]][])
      if (isIn(key, atMs)) counts[state] += 1;
    const line = lines[placeIn(LINES, key.parked)];
    if (line !== undefined) {
      line.keys += 1;
      line.jobs += key.parked;
    }
    const age = ages[placeIn(AGES_MS, ageOf(key, atMs))];
    if (age !== undefined) age.keys += 1;
  }
  const jobs = lines.reduce((sum, each) => sum + each.jobs, 0);
  return { counts, lines, ages, fifth: fifthOf(keys, jobs) };
}

/**
 * Returns the filter with this name: a state, `line-8` for a group of lines, or `age-1000` for a group of waits.
 * Undefined for an unknown name.
 */
export function filterOf(name: string, atMs: number): ((key: BusyKey) => boolean) | undefined {
  if (Object.hasOwn(STATES, name)) return (key) => STATES[name as State](key, atMs);
  const [kind, text] = name.split("-", 2);
  const steps = kind === "line" ? LINES : kind === "age" ? AGES_MS : [];
  const place = steps.indexOf(Number(text));
  if (place === -1) return undefined;
  return (key) => placeIn(steps, kind === "line" ? key.parked : ageOf(key, atMs)) === place;
}

/** Returns how long the first job in line waits. -1 without a line. */
function ageOf({ parked, waitingSinceMs }: BusyKey, atMs: number): number {
  return parked === 0 || waitingSinceMs === undefined ? -1 : Math.max(0, atMs - waitingSinceMs);
}

/** Returns the place of the last step that `value` reaches. -1 if `value` reaches none. */
function placeIn(steps: readonly number[], value: number): number {
  return steps.findLastIndex((step) => value >= step);
}

function fifthOf(keys: readonly BusyKey[], jobs: number): number {
  let [left, count] = [jobs / 5, 0];
  for (const parked of keys.map((key) => key.parked).toSorted((one, other) => other - one)) {
    if (left <= 0 || parked === 0) break;
    left -= parked;
    count += 1;
  }
  return count;
}
