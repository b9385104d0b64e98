/** Pure: finds the due ticks, and decides which ticks run and which are missed. */
import type { Calendar } from "./calendar.ts";

/** How missed ticks are treated: see the option `catchup`. */
export type Catchup = "none" | "latest" | "all";

export interface PlanInput {
  readonly calendar: Calendar;
  /** Every tick up to this time has been dealt with. */
  readonly accountedMs: number;
  readonly nowMs: number;
  readonly catchup: Catchup;
  /** Older ticks are missed. */
  readonly windowMs: number;
  /** The greatest number of ticks that run, the newest. */
  readonly maxCatchup: number;
}

interface PlannedTick {
  readonly atMs: number;
  /** Whether the tick is later than `ON_TIME_MS`. */
  readonly isCatchup: boolean;
}

export interface Plan {
  /** The ticks that run, in ascending order. */
  readonly fire: readonly PlannedTick[];
  /** Number of missed ticks. A lower bound after a long gap of a dense schedule. */
  readonly missed: number;
  /** The last tick that is dealt with after `fire` was claimed. Unchanged if no tick was due. */
  readonly accountedMs: number;
}

/** A tick with at most this delay is on time. Timers, round trips and a hand-over cause such delays. */
export const ON_TIME_MS = 1_000;
/** The greatest number of ticks in a plan. croner needs about 0.1 ms a tick, so a plan takes a fraction of a second. */
const MOST_ENUMERATED = 1_000;

/** An unfinished plan. The calendar is called once between two yields. */
export type Planning = Generator<undefined, Plan, undefined>;

export function* planInSteps(input: PlanInput): Planning {
  const { calendar, accountedMs, nowMs } = input;
  const firstMs = calendar.next(accountedMs);
  if (firstMs === null || firstMs > nowMs) return { fire: [], missed: 0, accountedMs };
  const windowMs = input.catchup === "none" ? ON_TIME_MS : Math.max(input.windowMs, ON_TIME_MS);
  const recent = yield* newestTicks(calendar, Math.max(accountedMs, nowMs - windowMs - 1), nowMs);
  const most = input.catchup === "all" ? input.maxCatchup : 1;
  const fire = recent.ticks.slice(-most).map((atMs) => ({ atMs, isCatchup: nowMs - atMs > ON_TIME_MS }));
  const older = yield* ticksIn(calendar, accountedMs, recent.fromMs, MOST_ENUMERATED);
  return {
    fire,
    missed: older.length + recent.ticks.length - fire.length,
    accountedMs: recent.ticks.at(-1) ?? Math.max(accountedMs, Math.min(recent.fromMs, nowMs)),
  };
}

/** Finds the ticks in (fromMs, toMs], or in a shorter range before `toMs` if there are too many. */
function* newestTicks(
  calendar: Calendar,
  fromMs: number,
  toMs: number,
): Generator<undefined, { readonly ticks: readonly number[]; readonly fromMs: number }, undefined> {
  for (let start = fromMs; ; start = toMs - Math.floor((toMs - start) / 8)) {
    const ticks = yield* ticksIn(calendar, start, toMs, MOST_ENUMERATED + 1);
    if (ticks.length <= MOST_ENUMERATED) return { ticks, fromMs: start };
  }
}

/** Finds the first ticks in (fromMs, toMs], up to `most`. */
function* ticksIn(
  calendar: Calendar,
  fromMs: number,
  toMs: number,
  most: number,
): Generator<undefined, readonly number[], undefined> {
  const ticks: number[] = [];
  yield;
  let next = calendar.next(fromMs);
  while (next !== null && next <= toMs && ticks.length < most) {
    ticks.push(next);
    yield;
    next = calendar.next(next);
  }
  return ticks;
}
