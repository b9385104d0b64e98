/**
 * Pure: a job as an outbox row, checked by BullMQ's rules. A row that BullMQ refuses would hold up its queue forever,
 * so `enqueue` refuses such a job.
 */
import { integer, show, text, textLike } from "@x/redlock-core/kit";
import type { JobsOptions } from "bullmq";

/** Options that the relay sets, or that BullMQ stores elsewhere. */
type RefusedOption = "parent" | "repeat" | "repeatJobKey" | "timestamp" | "telemetryMetadata" | "omitContext";

/** The options of a job that is added by way of the outbox. */
export type OutboxJobOptions = Omit<JobsOptions, RefusedOption>;

/** Queue, name, data and options of a job; data and options as JSON. */
export type OutboxRow = readonly [queue: string, name: string, data: string, opts: string];

/** The highest priority of BullMQ. */
const LOWEST_PRIORITY = 2 ** 21 - 1;

const REFUSED: readonly string[] = ["parent", "repeat", "repeatJobKey", "debounce", "timestamp"] satisfies readonly (
  | RefusedOption
  | "debounce"
)[];

/** BullMQ accepts at most one of these options. */
const EXCLUSIVE = [
  "removeDependencyOnFailure",
  "failParentOnFailure",
  "continueParentOnFailure",
  "ignoreDependencyOnFailure",
];

const QUEUE = textLike("a queue's name, which is not empty and has no colon", (name) => /^[^:]+$/.test(name));
const NAME = text();
const JOB_ID = textLike(
  "an ID that BullMQ accepts: not empty, no integer, and no colon unless there are two of them",
  (id) => id !== "" && `${Number.parseInt(id, 10)}` !== id && [1, 3].includes(id.split(":").length),
).optional();
const PRIORITY = integer({ min: 0, max: LOWEST_PRIORITY, unit: "" }).optional();
const DELAY = integer({ min: 0 }).optional();

/** Returns the row of a job. Throws `TypeError` or `RangeError` for a job that BullMQ would refuse. */
export function rowOf(queue: string, name: string, data: unknown, opts: OutboxJobOptions = {}): OutboxRow {
  QUEUE.of("queue", queue);
  NAME.of("name", name);
  if (Object.prototype.toString.call(opts) !== "[object Object]")
    throw new TypeError(`opts must be an object, got ${show(opts)}`);
  const given = opts as Readonly<Record<string, unknown>>;
  const refused = REFUSED.find((option) => given[option] !== undefined);
  if (refused !== undefined)
    throw new RangeError(`opts.${refused} must be left out: a job of the outbox cannot have it`);
  JOB_ID.of("opts.jobId", opts.jobId);
  PRIORITY.of("opts.priority", opts.priority);
  DELAY.of("opts.delay", opts.delay);
  if (opts.deduplication !== undefined) text({ min: 1 }).of("opts.deduplication.id", opts.deduplication?.id);
  const policies = EXCLUSIVE.filter((option) => Boolean(given[option]));
  if (policies.length > 1) throw new RangeError(`opts.${policies[0]} must be alone, got also ${policies[1]}`);
  const json = jsonOf("data", data) ?? "{}";
  const { sizeLimit, backoff } = opts;
  if (sizeLimit !== undefined && Buffer.byteLength(json) > sizeLimit)
    throw new RangeError(`data must be at most opts.sizeLimit (${sizeLimit} bytes), got ${Buffer.byteLength(json)}`);
  if (typeof backoff === "object" && backoff.jitter !== undefined && !(backoff.jitter >= 0 && backoff.jitter <= 1))
    throw new RangeError(`opts.backoff.jitter must be from 0 to 1, got ${show(backoff.jitter)}`);
  return [queue, name, json, jsonOf("opts", opts) ?? "{}"];
}

/** Returns a value as JSON text; undefined for a value that JSON does not have. */
export function jsonOf(name: string, value: unknown): string | undefined {
  try {
    return JSON.stringify(value);
  } catch (cause) {
    throw new TypeError(`${name} must be a value that JSON has, got ${show(value)}`, { cause });
  }
}
