/** Pure: the rules of a queue's workers as they are stored in Redis, for callers that run no jobs. */
import { type KeyRate, type LaneRules, type LineRules, type OnFailure } from "../../bullmq/rules/compose.ts";
import { DEFAULT_RULES } from "../../options.ts";
import { storedObject } from "./key-policy.ts";

const FAILURES: readonly unknown[] = ["skip", "block", "halt"] satisfies readonly OnFailure[];
const DROPS: readonly unknown[] = ["backlog", "superseded", "busy"] satisfies readonly LineRules["as"][];

export function formatRules(rules: LaneRules): string {
  return JSON.stringify(rules);
}

/**
 * Parses stored rules. A missing or damaged member becomes its default, because the rules are written into the text of
 * a script.
 */
export function parseRules(text: string): LaneRules {
  const stored: Readonly<Record<string, unknown>> = { ...storedObject(text) };
  const { path, onFailure, slots, rate, line, rotate, merge, nearMs, farMs } = stored;
  const isPath = Array.isArray(path) && path.length > 0 && path.every((field) => typeof field === "string");
  return {
    path: isPath ? path : undefined,
    onFailure: FAILURES.includes(onFailure) ? (onFailure as OnFailure) : DEFAULT_RULES.onFailure,
    slots: isCount(slots) ? slots : DEFAULT_RULES.slots,
    rate: parseRate(objectOf(rate)),
    line: parseLine(objectOf(line)),
    rotate: parseRotation(objectOf(rotate)),
    merge: parseMerge(objectOf(merge)),
    nearMs: isCount(nearMs) ? nearMs : DEFAULT_RULES.nearMs,
    farMs: isCount(farMs) ? farMs : DEFAULT_RULES.farMs,
  };
}

type Stored = Readonly<Record<string, unknown>> | undefined;

function parseRate(rate: Stored): KeyRate | undefined {
  const { max, duration } = rate ?? {};
  return isCount(max) && isCount(duration) ? { max, duration } : undefined;
}

function parseLine(line: Stored): LineRules | undefined {
  const { max, drop, as, interrupts } = line ?? {};
  if (!(isCount(max) || max === 0) || !DROPS.includes(as)) return undefined;
  return {
    max,
    drop: drop === "oldest" ? "oldest" : "newest",
    as: as as LineRules["as"],
    interrupts: interrupts === true || undefined,
  };
}

function parseRotation(rotate: Stored): LaneRules["rotate"] {
  if (rotate === undefined) return undefined;
  const weights = Object.entries(objectOf(rotate["weights"]) ?? {}).filter((entry): entry is [string, number] =>
    isCount(entry[1]),
  );
  return { weights: Object.fromEntries(weights) };
}

function parseMerge(merge: Stored): LaneRules["merge"] {
  const { size, wait } = merge ?? {};
  return isCount(size) ? { size, wait: isCount(wait) ? wait : 0 } : undefined;
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) > 0;
}

function objectOf(value: unknown): Stored {
  return typeof value === "object" && value !== null && !Array.isArray(value)
    ? (value as Readonly<Record<string, unknown>>)
    : undefined;
}
