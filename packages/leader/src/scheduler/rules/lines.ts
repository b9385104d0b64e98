/**
 * Pure: the fields of a scheduler's register, and the lines in them. The scheduler's own fields contain ":", which no
 * schedule's name does.
 */
import type { NamedTick } from "../tick.ts";

/** The state of a schedule says how far it is dealt with; its field is its name. */
export interface ScheduleState {
  readonly accountedMs: number;
  /** The last tick that ran or was about to, or 0. */
  readonly lastMs: number;
  readonly missed: number;
}

/** An order to pause or to resume; of two, the one with the higher version counts. */
export interface Pause {
  readonly version: number;
  readonly isPaused: boolean;
  /** When a pause last ended, by the clock of the process that ended it, or 0. */
  readonly resumedMs: number;
}

/** A trigger is an order to run a schedule once, now. */
export interface Trigger extends NamedTick {
  readonly id: string;
}

/** Each of these begins the fields of one kind. */
export const NOTE = "r:";
export const PAUSE = "p:";
export const TRIGGER = "t:";

/**
 * Returns field and line of each, of a text that has all of them. No line has a colon, and no field has two, or ends
 * with one. So the first two in a row separate, also where the next field begins with one.
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

export function stateLine({ accountedMs, lastMs, missed }: ScheduleState): string {
  return `${accountedMs} ${lastMs} ${missed}`;
}

export function stateOf(line: string | undefined): ScheduleState | undefined {
  const [accountedMs, lastMs, missed] = (line ?? "").split(" ").map(Number);
  return accountedMs === undefined || lastMs === undefined || missed === undefined
    ? undefined
    : { accountedMs, lastMs, missed };
}

/**
 * The field of an at-least-once tick that was begun and has not ended. Its line is the attempt, or the one before if
 * that was given back.
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

export function pauseOf(line: string | undefined): Pause | undefined {
  const [version, isPaused, resumedMs] = (line ?? "").split(" ");
  if (resumedMs === undefined) return undefined;
  return { version: Number(version), isPaused: isPaused === "1", resumedMs: Number(resumedMs) };
}

/**
 * A leader that has begun it sets `isTaken`. Its line is later than that of the order, so a late copy of the order
 * changes nothing.
 */
export function triggerLine({ name, atMs }: NamedTick, isTaken: boolean): string {
  return `${atMs} ${isTaken ? 1 : 0} ${name}`;
}

export function triggerOf(field: string, line: string): Trigger & { readonly isTaken: boolean } {
  const [at, taken, ...name] = line.split(" ");
  return { id: field.slice(TRIGGER.length), name: name.join(" "), atMs: Number(at), isTaken: taken === "1" };
}

/** The number at the beginning counts, then the text, as in order.lua.ts. Every line is later than none. */
export function isLater(line: string, than: string | undefined): boolean {
  if (than === undefined || than === "") return line !== "";
  const [a, b] = [Number.parseInt(line, 10), Number.parseInt(than, 10)];
  return a > b || (a === b && line > than);
}
