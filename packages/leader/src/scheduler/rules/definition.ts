/**
 * Pure: schedules as data, and their texts in the register.
 *
 * The register contains one set, the field `w:set`, and the orders that are newer than the set: a field `d:<name>` for
 * each schedule that was added, changed or removed on its own. A set has a revision and a version, an order has a
 * version. The set with the greater revision wins, then the greater version. An order counts only if its version is
 * greater than the version of the set. A set is one line, so it is written as a whole or not at all.
 */
import { isTime } from "../../rules/values.ts";
import { type ResolvedScheduleOptions, resolveStoredOptions, scheduleName } from "../options.ts";
import { boundedCalendar, type Calendar, everyCalendar, storedCronCalendar } from "./calendar.ts";

/** A schedule as data, as the register stores it. */
export interface Definition {
  readonly name: string;
  readonly kind: string;
  /** Time at which the schedule was added, or its times were changed. Earlier ticks do not belong to this schedule. */
  readonly sinceMs: number;
  /** Everything but `sinceMs`, as canonical JSON: two schedules are equal if these texts are equal. */
  readonly json: string;
}

/** The calendar and options of a schedule. */
export interface Times {
  readonly calendar: Calendar;
  readonly options: ResolvedScheduleOptions;
}

/** The values of a definition. */
export interface DefinitionParts {
  readonly name: string;
  readonly kind: string;
  /** A cron expression, or a period in ms. */
  readonly times: string | number;
  /** Zone of a cron expression. Empty for a period. */
  readonly timezone: string;
  /** JSON of the data. Undefined if there is no data. */
  readonly data: string | undefined;
  /** JSON of the options that differ from their defaults. */
  readonly options: string;
}

/** The set of a `reconcile()`. */
export interface WantedSet {
  readonly revision: number;
  readonly version: number;
  /** The texts of the definitions. They are parsed during the iteration. */
  readonly texts: Iterable<string>;
}

/** An order to add, change or remove one schedule. */
export interface DefinitionOrder {
  readonly version: number;
  /** The text of the definition. Undefined if the schedule is removed. */
  readonly text: string | undefined;
}

/** Field of the set, and prefix of the fields of orders. */
export const SET = "w:set";
export const DEFINITION = "d:";

/** JSON contains no control character, so one of them can replace the colon, which no line may contain. */
const COLON = "\u0001";
/** Versions have a fixed width, because equal revisions are compared as texts. */
const VERSION_DIGITS = 16;

export function isDefinitionField(field: string): boolean {
  return field === SET || field.startsWith(DEFINITION);
}

export function jsonOf({ name, kind, times, timezone, data, options }: DefinitionParts): string {
  const texts = [name, kind, times, timezone].map((value) => JSON.stringify(value));
  return `[${texts.join(",")},[${data ?? ""}],${options}]`;
}

export function definitionText({ sinceMs, json }: Pick<Definition, "sinceMs" | "json">): string {
  return `${sinceMs} ${json}`;
}

/** Returns the definition in a text. Undefined if the text is damaged. */
export function definitionOf(text: string): Definition | undefined {
  const split = text.indexOf(" ");
  const [sinceMs, json] = [Number(text.slice(0, split)), text.slice(split + 1)];
  const [name, kind, times, timezone, data, options] = listIn(json);
  const isValid =
    /^\d+$/.test(text.slice(0, split)) &&
    isTime(sinceMs) &&
    scheduleName.accepts(name) &&
    typeof kind === "string" &&
    (typeof times === "string" || (Number.isSafeInteger(times) && Number(times) > 0)) &&
    typeof timezone === "string" &&
    Array.isArray(data) &&
    typeof options === "object";
  return isValid ? { name, kind, sinceMs, json } : undefined;
}

function listIn(json: string): readonly unknown[] {
  try {
    const list: unknown = JSON.parse(json);
    return Array.isArray(list) ? list : [];
  } catch {
    return [];
  }
}

/** Returns the data of a definition, a new value with each call, so that no handler changes the data of the next. */
export function dataOf({ json }: Definition): unknown {
  const data = listIn(json)[4];
  return Array.isArray(data) ? (data as readonly unknown[])[0] : undefined;
}

/**
 * Returns the calendar and the options of a definition. `cache` shares options between definitions, because ten
 * thousand may exist.
 * @throws TypeError, RangeError if this version does not know a value
 */
export function timesOf({ json }: Definition, cache: Map<string, ResolvedScheduleOptions>): Times {
  const [, , times, timezone, , given] = listIn(json) as [string, string, string | number, string, unknown, object];
  const key = `${timezone} ${JSON.stringify(given)}`;
  const { offset = 0, ...rest } = given as { readonly offset?: number };
  const options = cache.get(key) ?? resolveStoredOptions(rest, timezone === "" ? "UTC" : timezone);
  cache.set(key, options);
  const calendar = typeof times === "string" ? storedCronCalendar(times, timezone) : everyCalendar(times, offset);
  return { calendar: boundedCalendar(calendar, options.startMs, options.endMs), options };
}

/** Reports whether two definitions have the same ticks. */
export function isSameTimes(a: string, b: string): boolean {
  const of = (json: string): string => {
    const [, , times, timezone, , options] = listIn(json);
    const { offset, startAt, endAt } = options as Readonly<Record<string, unknown>>;
    return JSON.stringify([times, timezone, offset, startAt, endAt]);
  };
  return of(a) === of(b);
}

/** Returns the line of a set. `nonce` distinguishes two sets with one version. */
export function setLine({ revision, version, texts }: WantedSet, nonce: string): string {
  const head = `${revision} ${String(version).padStart(VERSION_DIGITS, "0")} ${nonce}`;
  return [head, ...texts].join("\n").replaceAll(":", COLON);
}

/** Returns the set in a line. Undefined if the line is damaged. */
export function setOf(line: string): WantedSet | undefined {
  const [, revision, version] = /^(\d{1,16}) (\d{16}) \w+(?:\n|$)/.exec(line) ?? [];
  if (!Number.isSafeInteger(Number(revision)) || !Number.isSafeInteger(Number(version))) return undefined;
  return { revision: Number(revision), version: Number(version), texts: textsIn(line) };
}

function* textsIn(line: string): Generator<string> {
  for (let from = line.indexOf("\n"); from >= 0; ) {
    const to = line.indexOf("\n", from + 1);
    yield line.slice(from + 1, to < 0 ? undefined : to).replaceAll(COLON, ":");
    from = to;
  }
}

export function orderLine({ version, text = "" }: DefinitionOrder, nonce: string): string {
  return `${version} ${nonce} ${text}`.replaceAll(":", COLON);
}

/** Returns the order in a line. Undefined if the line is damaged. */
export function orderOf(line: string): DefinitionOrder | undefined {
  const [, version, text] = /^(\d{1,16}) \w+ (.*)$/.exec(line.replaceAll(COLON, ":")) ?? [];
  if (version === undefined || !Number.isSafeInteger(Number(version))) return undefined;
  return { version: Number(version), text: text === "" ? undefined : text };
}
