/** Pure: outcomes of ticks, as lines that the nodes store, the newest first, and as records for users. */
import { messageOf } from "@x/redlock-core/kit";
import { dateOf, isTime } from "../../rules/values.ts";
import type { SkipReason } from "../events.ts";
import { tickId } from "../tick.ts";

/**
 * Outcome of a tick.
 *
 * - `running`: the current leader has called the handler, or was about to call it, and the handler has not ended.
 * - `run`: the handler has ended without an error.
 * - `failed`: the handler rejected.
 * - `unfinished`: like `running`, but the term is over. The leader may have died.
 * - `skipped`: the tick did not run, for a `reason`.
 * - `missed`: `count` ticks were missed.
 */
export type TickOutcome = "running" | "run" | "failed" | "unfinished" | "skipped" | "missed";

/** An entry of a schedule's history. */
export interface TickRecord {
  readonly outcome: TickOutcome;
  /** The time at which the tick was due. With `missed`, the time at which the leader counted the ticks as missed. */
  readonly scheduledAt: Date;
  /** The term of the leader that wrote the entry. */
  readonly term: number;
  /** The `tick.id`, if the handler was called. */
  readonly id?: string;
  /** Delay of the handler's call in ms. */
  readonly lateMs?: number;
  /** Duration of the handler in ms. */
  readonly tookMs?: number;
  /** The number of the attempt, as in `tick.attempt`. */
  readonly attempt?: number;
  /** Error of the handler, cut to 200 characters. */
  readonly error?: string;
  /** Reason of a skipped tick. If several ticks in a row are skipped for one reason, only the last is kept. */
  readonly reason?: SkipReason;
  /** Number of missed ticks. If several such entries follow each other, only the last is kept. */
  readonly count?: number;
}

/** An entry as the leader writes it and the nodes store it. The outcome `unfinished` is computed by the reader. */
export type PastTick = Omit<TickRecord, "scheduledAt" | "outcome" | "id"> & {
  readonly outcome: Exclude<TickOutcome, "unfinished">;
  readonly scheduledAtMs: number;
  /** The end of `tick.id`. The name and the time give the rest. */
  readonly suffix?: string;
};

/** The nodes' history of one schedule. */
interface Past {
  /** Time of the next tick when the leader wrote the newest line. Undefined if there is no next tick or no line. */
  readonly nextMs: number | undefined;
  /** The entries, the newest first. */
  readonly pastTicks: readonly PastTick[];
}

/** The greatest number of lines of a tick: its beginning and its end. */
export const LINES_PER_TICK = 2;

const LONGEST_ERROR = 200;

/**
 * Returns the key of a line. A line begins with its key, followed by facts in a fixed order, as JSON. A later line with
 * the same key replaces the previous line on the nodes. Lines are short, because there may be a hundred thousand.
 */
export function keyOf(pastTick: PastTick): string {
  const { outcome, scheduledAtMs, attempt, reason, suffix } = pastTick;
  if (outcome === "skipped") return `skipped/${reason}`;
  if (outcome === "missed") return outcome;
  return `${scheduledAtMs}/${attempt}/${suffix}`;
}

type LineFacts = readonly [
  outcome: PastTick["outcome"],
  term: number,
  nextMs: number | null,
  // If the handler was called: the facts that the key does not contain. Otherwise the time and the count.
  lateMs: number,
  tookMs?: number | null,
  error?: string,
];

export function lineOf(pastTick: PastTick, nextMs: number | undefined): string {
  const { outcome, term, scheduledAtMs, lateMs, tookMs, error, count } = pastTick;
  const wasCalled = lateMs !== undefined;
  const rest = wasCalled ? [lateMs, tookMs, error] : [scheduledAtMs, count];
  return `${JSON.stringify([outcome, term, nextMs, ...rest.filter((fact) => fact !== undefined)])}\n`;
}

const CALLED: ReadonlySet<unknown> = new Set(["running", "run", "failed"]);

interface Found {
  readonly pastTick: PastTick;
  readonly nextMs: number | null;
}

/** Returns what a line says. Undefined if the line is damaged: one such line must not hide the others. */
function pastTickOf(key: string, json: string): Found | undefined {
  const [outcome, term, nextMs, lateMs, tookMs, error] = factsOf(json) ?? [];
  const [first = "", second, suffix = ""] = key.split("/");
  if (!Number.isSafeInteger(term) || !isTime(nextMs ?? 0) || term === undefined || nextMs === undefined)
    return undefined;
  if (outcome === "missed" && isTime(lateMs))
    return { nextMs, pastTick: { outcome, term, scheduledAtMs: lateMs, count: tookMs ?? 0 } };
  if (outcome === "skipped" && isTime(lateMs))
    return { nextMs, pastTick: { outcome, term, scheduledAtMs: lateMs, reason: second as SkipReason } };
  const scheduledAtMs = Number(first);
  if (!isCalled(outcome) || !isTime(scheduledAtMs) || !isTime(lateMs)) return undefined;
  const ended = {
    ...(typeof tookMs === "number" ? { tookMs } : {}),
    ...(error === undefined ? {} : { error }),
  };
  return { nextMs, pastTick: { outcome, term, scheduledAtMs, attempt: Number(second), suffix, lateMs, ...ended } };
}

function isCalled(outcome: unknown): outcome is "running" | "run" | "failed" {
  return CALLED.has(outcome);
}

function factsOf(json: string): Partial<LineFacts> | undefined {
  const facts = parsed(json);
  return Array.isArray(facts) ? (facts as unknown as Partial<LineFacts>) : undefined;
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json) as unknown;
  } catch {
    return undefined;
  }
}

/** Combines the lines of one schedule from several nodes. */
export function pastOf(texts: readonly string[]): Past {
  const newest = new Map<string, PastTick>();
  let last: Found | undefined;
  for (const text of texts) {
    const ofNode = new Set<string>();
    for (const line of text.split("\n")) {
      const split = line.indexOf(" ");
      if (split < 0) continue;
      const found = pastTickOf(line.slice(0, split), line.slice(split + 1));
      if (found === undefined) continue;
      const { pastTick } = found;
      const key = `${keyOf(pastTick)} ${pastTick.scheduledAtMs}`;
      // The first line of a key is the newest.
      if (ofNode.has(key)) continue;
      if (ofNode.size === 0 && (last === undefined || beganMs(pastTick) >= beganMs(last.pastTick))) last = found;
      ofNode.add(key);
      const known = newest.get(key);
      if (known === undefined || saysMore(pastTick, known)) newest.set(key, pastTick);
    }
  }
  const all = [...newest.values()].sort((a, b) => beganMs(b) - beganMs(a));
  // A node that was down may have an earlier line of the same key.
  const pastTicks = all.filter((each, at) => at === 0 || keyOf(each) !== keyOf(all[at - 1] as PastTick));
  return { nextMs: last?.nextMs ?? undefined, pastTicks };
}

/** Returns the name and the newest line of each schedule in a node's reply about all schedules. */
export function* newestIn(text: string): Generator<readonly [name: string, line: string]> {
  const lines = text.split("\n");
  for (let at = 0; at + 1 < lines.length; at += 2) {
    const name = parsed(lines[at] ?? "");
    if (typeof name === "string") yield [name, lines[at + 1] ?? ""];
  }
}

/** Reports whether `one` contains the end of a tick that `other` shows as running. A node may have missed the end. */
function saysMore(one: PastTick, other: PastTick): boolean {
  return other.outcome === "running" && one.outcome !== "running";
}

function beganMs({ scheduledAtMs, lateMs = 0 }: PastTick): number {
  return scheduledAtMs + lateMs;
}

/**
 * Returns the record of an entry. `term` is the leader's term, read at about the same time. Undefined without a leader.
 */
export function recordOf(name: string, pastTick: PastTick, term: number | undefined): TickRecord {
  const { scheduledAtMs, suffix, outcome, ...facts } = pastTick;
  return {
    outcome: outcome === "running" && (term === undefined || pastTick.term < term) ? "unfinished" : outcome,
    scheduledAt: dateOf(scheduledAtMs),
    ...(suffix === undefined ? {} : { id: tickId(name, scheduledAtMs, suffix) }),
    ...facts,
  };
}

export function errorText(error: unknown): string {
  const text = error instanceof Error ? `${error.name}: ${error.message}` : messageOf(error);
  return text.length <= LONGEST_ERROR ? text : `${text.slice(0, LONGEST_ERROR - 1)}…`;
}
