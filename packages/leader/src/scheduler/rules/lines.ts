/**
 * Pure: the fields of a scheduler's register, and the lines in these fields. The scheduler's own fields contain ":",
 * which no schedule's name contains.
 */
import { isTime } from "../../rules/values.ts";
import type { NamedTick } from "../tick.ts";
import { DEFINITION, orderOf, SET, setOf } from "./definition.ts";

/** State of a schedule. The name of the schedule is the field. */
export interface ScheduleState {
  readonly accountedMs: number;
  /** The last tick that ran or was claimed to run, or 0. */
  readonly lastMs: number;
  readonly missed: number;
  /** Time at which the schedule, one as data, was removed. Undefined if the schedule was not removed. */
  readonly removedMs?: number | undefined;
}

/** An order to pause or resume a schedule. The order with the higher version wins. */
export interface Pause {
  readonly version: number;
  readonly isPaused: boolean;
  /** End of the last pause, by the clock of the process that ended it. 0 if no pause has ended. */
  readonly resumedMs: number;
}

/** An order to run a schedule once, immediately. */
export interface Trigger extends NamedTick {
  readonly id: string;
}

/** Prefixes of the fields of notes, pauses and triggers. */
export const NOTE = "r:";
export const PAUSE = "p:";
export const TRIGGER = "t:";

/**
 * Returns the fields and lines of a text that contains all fields. No line contains a colon, and no field contains two
 * or ends with one. The first two colons in a row are therefore a separator, even if the next field begins with a
 * colon.
 */
export function* linesIn(text: string): Generator<readonly [string, string]> {
  for (let from = 0; from < text.length; ) {
    const split = text.indexOf("::", from);
    if (split < 0) return;
    const next = text.indexOf("::", split + 2);
    const end = next < 0 ? text.length : next;
    yield [text.slice(from, split), text.slice(split + 2, end)];
    from = end + 2;
  }
}

/** Returns the integer that a text is in decimal digits, or undefined. A greater one would not be exact. */
function integerOf(text: string | undefined): number | undefined {
  const value = text !== undefined && /^-?\d+$/.test(text) ? Number(text) : Number.NaN;
  return Number.isSafeInteger(value) ? value : undefined;
}

function timeOf(text: string | undefined): number | undefined {
  const timeMs = integerOf(text);
  return isTime(timeMs) ? timeMs : undefined;
}

/**
 * Reports whether a line can be from a scheduler. Another line was damaged, or was written by hand. A leader drops such
 * a line and reports it, because a time that is not a number would keep all schedules from running.
 */
export function isValidLine(field: string, line: string): boolean {
  if (field.startsWith(NOTE)) {
    const split = field.lastIndexOf("@");
    return split > NOTE.length && timeOf(field.slice(split + 1)) !== undefined && (integerOf(line) ?? -1) >= 0;
  }
  if (field.startsWith(PAUSE)) return pauseOf(line) !== undefined;
  if (field.startsWith(TRIGGER)) return triggerOf(field, line) !== undefined;
  if (field === SET) return setOf(line) !== undefined;
  if (field.startsWith(DEFINITION)) return orderOf(line) !== undefined;
  return stateOf(line) !== undefined;
}

export function stateLine({ accountedMs, lastMs, missed, removedMs }: ScheduleState): string {
  return `${accountedMs} ${lastMs} ${missed}${removedMs === undefined ? "" : ` ${removedMs}`}`;
}

/** Returns the state in a line. Undefined if the line is damaged. */
export function stateOf(line: string | undefined): ScheduleState | undefined {
  const [accounted, last, given, removed, ...more] = (line ?? "").split(" ");
  const [accountedMs, lastMs, missed, removedMs] = [timeOf(accounted), timeOf(last), integerOf(given), timeOf(removed)];
  if (accountedMs === undefined || lastMs === undefined || missed === undefined || more.length > 0) return undefined;
  if (removed === undefined) return { accountedMs, lastMs, missed };
  return removedMs === undefined ? undefined : { accountedMs, lastMs, missed, removedMs };
}

/** Returns the time at which a schedule was removed, by the line of its state. Undefined if it was not removed. */
export function removedMsOf(line: string): number | undefined {
  return timeOf(/^\S+ \S+ \S+ (\d+)$/.exec(line)?.[1]);
}

/**
 * Returns the field of an at-least-once tick that began and has not ended. The line is the number of the attempt, or
 * the number before if the tick was left to the next leader without an attempt.
 */
export function noteOf({ name, atMs }: NamedTick): string {
  return `${NOTE}${name}@${atMs}`;
}

export function notedTick(field: string): NamedTick {
  const split = field.lastIndexOf("@");
  return { name: field.slice(NOTE.length, split), atMs: Number(field.slice(split + 1)) };
}

export function pauseLine({ version, isPaused, resumedMs }: Pause): string {
  return `${version} ${isPaused ? 1 : 0} ${resumedMs}`;
}

/** Returns the pause in a line. Undefined if the line is damaged. */
export function pauseOf(line: string | undefined): Pause | undefined {
  const [given, isPaused = "", resumed] = (line ?? "").split(" ");
  const [version, resumedMs] = [integerOf(given), timeOf(resumed)];
  if (version === undefined || resumedMs === undefined || !/^[01]$/.test(isPaused)) return undefined;
  return { version, isPaused: isPaused === "1", resumedMs };
}

/**
 * Returns the line of a trigger. A leader that starts the trigger sets `isTaken`. The line then wins over the line of
 * the order, so a late copy of the order has no effect.
 */
export function triggerLine({ name, atMs }: NamedTick, isTaken: boolean): string {
  return `${atMs} ${isTaken ? 1 : 0} ${name}`;
}

/** Returns the trigger in a line. Undefined if the line is damaged. */
export function triggerOf(field: string, line: string): (Trigger & { readonly isTaken: boolean }) | undefined {
  const [at, taken = "", ...words] = line.split(" ");
  const [atMs, name] = [timeOf(at), words.join(" ")];
  if (atMs === undefined || name === "" || !/^[01]$/.test(taken)) return undefined;
  return { id: field.slice(TRIGGER.length), name, atMs, isTaken: taken === "1" };
}

/**
 * Reports whether a line replaces another: the greater number at the beginning wins, then the greater text, as in
 * order.lua.ts. Any line replaces none. A number that is not exact loses against each other number.
 */
export function isLater(line: string, than: string | undefined): boolean {
  if (than === undefined || than === "") return line !== "";
  const [a, b] = [versionOf(line), versionOf(than)];
  return a > b || (a === b && line > than);
}

function versionOf(line: string): number {
  const version = Number(/^\d+/.exec(line)?.[0] ?? -1);
  return Number.isSafeInteger(version) ? version : -1;
}
