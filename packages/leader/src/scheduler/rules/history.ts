/** Pure: what became of ticks, as lines that the nodes keep, the newest first, and as records made of them. */
import { messageOf } from "@x/redlock-core/protocol";
import { dateOf, isTime } from "../../rules/values.ts";
import type { SkipReason } from "../events.ts";
import { tickId } from "../tick.ts";

/**
 * What became of a tick.
 *
 * - `running`: the leader of the present term called its handler, or was about to, and that has not ended.
 * - `run`: its handler has ended.
 * - `failed`: its handler rejected.
 * - `unfinished`: the same of a term that is over. Its leader may have died.
 * - `skipped`: it was dealt with and did not run.
 * - `missed`: ticks were given up, `count` of them.
 */
export type TickOutcome = "running" | "run" | "failed" | "unfinished" | "skipped" | "missed";

/** One entry of a schedule's history. */
export interface TickRecord {
  readonly outcome: TickOutcome;
  /** The time at which the tick was due. With `missed` it is the time at which the ticks were given up. */
  readonly scheduledAt: Date;
  /** The term whose leader tells this. */
  readonly term: number;
  /** The `tick.id` of a tick whose handler was called. */
  readonly id?: string;
  /** How long after it was due the handler was called, in ms. */
  readonly lateMs?: number;
  /** How long the handler took, in ms. */
  readonly tookMs?: number;
  /** The number of the attempt, as in `tick.attempt`. */
  readonly attempt?: number;
  /** What the handler rejected with, cut to 200 characters. */
  readonly error?: string;
  /** Why it was skipped. Of several in a row that are skipped for one reason, the last is kept. */
  readonly reason?: SkipReason;
  /** How many were given up. Of several such records in a row, the last is kept. */
  readonly count?: number;
}

/** What happened, as the leader sees it and the nodes keep it. It knows of no term that is over. */
export type Happening = Omit<TickRecord, "scheduledAt" | "outcome" | "id"> & {
  readonly outcome: Exclude<TickOutcome, "unfinished">;
  readonly scheduledAtMs: number;
  /** The end of `tick.id`: the rest of it follows from the name and the time. */
  readonly suffix?: string;
};

/** What the nodes know of one schedule. */
interface Past {
  /** When it is due next, as its leader saw it then; undefined: never, or it is not known. */
  readonly nextMs: number | undefined;
  /** The newest first. */
  readonly happenings: readonly Happening[];
}

/** A tick takes two lines at most: when it begins, and when it has ended. */
export const LINES_PER_TICK = 2;

const LONGEST_ERROR = 200;

/**
 * A line begins with its key, which names what it is about: a later line with this key says more of the same. The rest
 * are facts in their order, as JSON. Of lines in a row that have one key, the nodes keep the last. There may be a
 * hundred thousand lines, so they are short.
 */
export function keyOf(happening: Happening): string {
  const { outcome, scheduledAtMs, attempt, reason, suffix } = happening;
  if (outcome === "skipped") return `skipped/${reason}`;
  if (outcome === "missed") return outcome;
  return `${scheduledAtMs}/${attempt}/${suffix}`;
}

type Facts = readonly [
  outcome: Happening["outcome"],
  term: number,
  nextMs: number | null,
  // Of a tick whose handler was called, what is not in the key. Of others the time, and how many.
  lateMs: number,
  tookMs?: number | null,
  error?: string,
];

export function lineOf(happening: Happening, nextMs: number | undefined): string {
  const { outcome, term, scheduledAtMs, lateMs, tookMs, error, count } = happening;
  const wasCalled = lateMs !== undefined;
  const rest = wasCalled ? [lateMs, tookMs, error] : [scheduledAtMs, count];
  return `${JSON.stringify([outcome, term, nextMs, ...rest.filter((fact) => fact !== undefined)])}\n`;
}

const CALLED: ReadonlySet<unknown> = new Set(["running", "run", "failed"]);

interface Found {
  readonly happening: Happening;
  readonly nextMs: number | null;
}

/** Returns what a line says. Undefined if the line is damaged: one such line must not hide the others. */
function happeningOf(key: string, json: string): Found | undefined {
  const [outcome, term, nextMs, lateMs, tookMs, error] = factsOf(json) ?? [];
  const [first = "", second, suffix = ""] = key.split("/");
  if (!Number.isSafeInteger(term) || !isTime(nextMs ?? 0) || term === undefined || nextMs === undefined)
    return undefined;
  if (outcome === "missed" && isTime(lateMs))
    return { nextMs, happening: { outcome, term, scheduledAtMs: lateMs, count: tookMs ?? 0 } };
  if (outcome === "skipped" && isTime(lateMs))
    return { nextMs, happening: { outcome, term, scheduledAtMs: lateMs, reason: second as SkipReason } };
  const scheduledAtMs = Number(first);
  if (!isCalled(outcome) || !isTime(scheduledAtMs) || !isTime(lateMs)) return undefined;
  const ended = {
    ...(typeof tookMs === "number" ? { tookMs } : {}),
    ...(error === undefined ? {} : { error }),
  };
  return { nextMs, happening: { outcome, term, scheduledAtMs, attempt: Number(second), suffix, lateMs, ...ended } };
}

function isCalled(outcome: unknown): outcome is "running" | "run" | "failed" {
  return CALLED.has(outcome);
}

function factsOf(json: string): Partial<Facts> | undefined {
  const facts = parsed(json);
  return Array.isArray(facts) ? (facts as unknown as Partial<Facts>) : undefined;
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json) as unknown;
  } catch {
    return undefined;
  }
}

/** What the nodes keep of one schedule, of each its lines. */
export function pastOf(texts: readonly string[]): Past {
  const newest = new Map<string, Happening>();
  let last: Found | undefined;
  for (const text of texts) {
    const ofNode = new Set<string>();
    for (const line of text.split("\n")) {
      const split = line.indexOf(" ");
      if (split < 0) continue;
      const found = happeningOf(line.slice(0, split), line.slice(split + 1));
      if (found === undefined) continue;
      const { happening } = found;
      const key = `${keyOf(happening)} ${happening.scheduledAtMs}`;
      // The first of a key is its newest.
      if (ofNode.has(key)) continue;
      if (ofNode.size === 0 && (last === undefined || beganMs(happening) >= beganMs(last.happening))) last = found;
      ofNode.add(key);
      const known = newest.get(key);
      if (known === undefined || saysMore(happening, known)) newest.set(key, happening);
    }
  }
  const all = [...newest.values()].sort((a, b) => beganMs(b) - beganMs(a));
  // A node that was down may have an earlier one of several in a row.
  const happenings = all.filter((each, at) => at === 0 || keyOf(each) !== keyOf(all[at - 1] as Happening));
  return { nextMs: last?.nextMs ?? undefined, happenings };
}

/** Name and newest line of each schedule, of what a node replies about all. */
export function* newestIn(text: string): Generator<readonly [name: string, line: string]> {
  const lines = text.split("\n");
  for (let at = 0; at + 1 < lines.length; at += 2) {
    const name = parsed(lines[at] ?? "");
    if (typeof name === "string") yield [name, lines[at + 1] ?? ""];
  }
}

/** A node that missed the end of a tick still says that it runs. */
function saysMore(one: Happening, other: Happening): boolean {
  return other.outcome === "running" && one.outcome !== "running";
}

function beganMs({ scheduledAtMs, lateMs = 0 }: Happening): number {
  return scheduledAtMs + lateMs;
}

/** `term`: that of the leader, as it was seen, maybe before this was read; undefined: nobody leads. */
export function recordOf(name: string, happening: Happening, term: number | undefined): TickRecord {
  const { scheduledAtMs, suffix, outcome, ...facts } = happening;
  return {
    outcome: outcome === "running" && (term === undefined || happening.term < term) ? "unfinished" : outcome,
    scheduledAt: dateOf(scheduledAtMs),
    ...(suffix === undefined ? {} : { id: tickId(name, scheduledAtMs, suffix) }),
    ...facts,
  };
}

export function errorText(error: unknown): string {
  const text = error instanceof Error ? `${error.name}: ${error.message}` : messageOf(error);
  return text.length <= LONGEST_ERROR ? text : `${text.slice(0, LONGEST_ERROR - 1)}…`;
}
