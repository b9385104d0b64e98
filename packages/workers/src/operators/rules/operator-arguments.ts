/** Pure: the rules and defaults of the arguments that `QueueOperators` describes. */
import {
  boolean,
  type Check,
  choice,
  DAY_MS,
  integer,
  type Option,
  Schema,
  type ShapeOf,
  shaped,
  text,
} from "@x/redlock-core/kit";
import { KEY } from "../../rules/entity-key.ts";
import type { ExclusionMode } from "./exclusion.ts";
import type { KeyJobState } from "./key-report.ts";

/** One script reads all of these keys. */
const MOST_READ = 5;
/** Number of jobs in line that a reading contains by default. Each job in line costs Redis about twenty commands. */
export const LINE_LIMIT = 25;

const REASON = text({ max: 10_000 });
const LIMIT = integer({ min: 1, unit: "" }).default(1_000);
const STATE: Check<KeyJobState | "all"> = choice(["parked", "waiting", "delayed", "all"]);

export const JOB_ID: Check<string> = text({ min: 1 });
export const CANCEL_REASON: Option<string> = REASON.default("cancelled by an operator");
export const PAUSE_REASON: Option<string> = REASON.default("paused by an operator");
export const EXCLUSION_MODE: Check<ExclusionMode> = choice(["on", "watch"]);

export const LIST: Schema<ShapeOf<{ readonly limit: number }>> = new Schema({ limit: LIMIT });

export const JOBS: Schema<ShapeOf<{ readonly limit: number; readonly state: KeyJobState | "all" }>> = new Schema({
  limit: LIMIT,
  state: STATE.default("parked"),
});

export const REMOVE: Schema<ShapeOf<{ readonly state: KeyJobState | "all" }>> = new Schema({
  state: STATE.default("all"),
});

export const CANCEL: Schema<ShapeOf<{ readonly remove: boolean }>> = new Schema({ remove: boolean.default(false) });

export const READ: Schema<ShapeOf<{ readonly limit: number }>> = new Schema({
  limit: integer({ min: 0, max: 100, unit: "" }).default(LINE_LIMIT),
});

export const OVERVIEW: Schema<ShapeOf<{ readonly keys: number; readonly read: readonly string[] }>> = new Schema({
  keys: integer({ min: 0, unit: "" }).default(0),
  read: shaped<readonly string[]>(`an array of at most ${MOST_READ} keys`, (given) => {
    const list: unknown = given;
    return Array.isArray(list) && list.length <= MOST_READ && list.every((key) => KEY.accepts(key));
  }).default([]),
});

export const PAUSE: Schema<ShapeOf<{ readonly for: number | undefined }>> = new Schema({
  for: integer({ min: 1, max: 366 * DAY_MS }).optional(),
});

export const EXCLUSION_CHANGE: Schema<ShapeOf<{ readonly force: boolean }>> = new Schema({
  force: boolean.default(false),
});

export const EXCLUSION_REPORT: Schema<ShapeOf<{ readonly limit: number }>> = new Schema({
  limit: integer({ min: 0, max: 100, unit: "" }).default(10),
});
