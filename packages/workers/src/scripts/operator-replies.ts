/** The replies of the functions in operators.lua.ts, parsed into objects. */
import { withoutParkingFields } from "../bullmq/rules/parked-hash.ts";
import type { ExclusionFigures } from "../operators/rules/exclusion.ts";
import { type Cancellation, parsePin } from "../rules/entity-key.ts";
import { parseUnknownJobs, TAGS, type UnknownKeyJob } from "./command-replies.ts";
import { ReplyShape } from "./rules/reply-shape.ts";

/** A worker that has not reported for this long counts as gone. Running workers report every 10 s. */
export const GONE_SECONDS = 30;

type Fact = string | number;

/** The facts of a key, from `keyFacts` in operate.lua.ts. */
export const KEY_FACTS: ReplyShape<
  | "key"
  | "holders"
  | "startedOn"
  | "parked"
  | "pause"
  | "limitedUntil"
  | "slots"
  | "rate"
  | "policy"
  | "waitingSince"
  | "keysAhead"
  | "isStalled"
> = new ReplyShape([
  "key",
  "holders",
  "startedOn",
  "parked",
  "pause",
  "limitedUntil",
  "slots",
  "rate",
  "policy",
  "waitingSince",
  "keysAhead",
  "isStalled",
]);

/** The facts of a key. A time is in ms since the epoch. */
export interface KeyFacts {
  readonly key: string;
  /** The IDs of the jobs that have the key, in the order of their slots. */
  readonly holders: readonly string[];
  /** When the first of these jobs last started. */
  readonly startedOn: number | undefined;
  /** The number of jobs in line. */
  readonly parked: number;
  /** The pause as JSON; empty if there is none. */
  readonly pause: string;
  /** The time until which no job starts, because of the key's rate. */
  readonly limitedUntil: number | undefined;
  readonly slots: number;
  /** The starts that count, the most that may, and the window in ms. Undefined if the key has no rate. */
  readonly rate: { readonly counted: number; readonly max: number; readonly duration: number } | undefined;
  /** The policy as JSON; empty if there is none. */
  readonly policy: string;
  /** When the first job in line was added. */
  readonly waitingSince: number | undefined;
  /** The number of keys whose turn comes first. Undefined if the key does not wait for its turn. */
  readonly keysAhead: number | undefined;
  /** Whether the worker of the first holder is gone. */
  readonly isStalled: boolean;
}

/** The facts of a job, from `jobReply` in operate.lua.ts. The keys of the job follow. */
export const JOB_FACTS: ReplyShape<
  | "name"
  | "pin"
  | "isParked"
  | "due"
  | "isFinished"
  | "waitsForLock"
  | "isQueuePaused"
  | "isStalled"
  | "state"
  | "startedOn"
  | "parkedAt"
  | "worker"
  | "lockMs"
  | "cancellation"
> = new ReplyShape([
  "name",
  "pin",
  "isParked",
  "due",
  "isFinished",
  "waitsForLock",
  "isQueuePaused",
  "isStalled",
  "state",
  "startedOn",
  "parkedAt",
  "worker",
  "lockMs",
  "cancellation",
]);
const JOB_FACT_COUNT = 14;

/** The facts of a job and of each of its keys. */
export interface JobFacts {
  readonly name: string;
  /** Undefined if the keys are not known yet. */
  readonly pin: string | undefined;
  readonly isParked: boolean;
  /** The time at which the job leaves `delayed`. Undefined if the job is not there. */
  readonly due: number | undefined;
  readonly isFinished: boolean;
  readonly waitsForLock: boolean;
  readonly isQueuePaused: boolean;
  /** Whether the worker of the job is gone. */
  readonly isStalled: boolean;
  /** The state, as BullMQ names it. */
  readonly state: string;
  readonly startedOn: number | undefined;
  readonly parkedAt: number | undefined;
  /** The ID of the worker that BullMQ's lock names. Empty if there is none. */
  readonly worker: string;
  /** Time left of BullMQ's lock in ms. Undefined if there is none. */
  readonly lockMs: number | undefined;
  /** Undefined if the job was not cancelled, or has ended. */
  readonly cancellation: Cancellation | undefined;
  readonly keys: readonly {
    readonly isHolderRemoved: boolean;
    /** The number of jobs before this job in line. Undefined if the job is not in line. */
    readonly rank: number | undefined;
    readonly facts: KeyFacts;
  }[];
}

/** The last report of a worker. */
export interface StoredReport {
  /** Seconds since the report. */
  readonly ageSeconds: number;
  /** The report as JSON. */
  readonly text: string;
  /** The ID of the worker, as in BullMQ's locks. */
  readonly worker: string;
}

/** The facts of a queue's workers. */
export interface FleetFacts {
  /** The number of active jobs, including jobs whose workers are gone. */
  readonly active: number;
  /** Whether BullMQ's lock of an active job exists, so that a worker runs, even one that does not report. */
  readonly isHeard: boolean;
  readonly reports: readonly StoredReport[];
}

/** A job in line, with its place there and the fields from which BullMQ makes the job. */
export interface InLine {
  readonly id: string;
  readonly place: string;
  readonly fields: Readonly<Record<string, string>>;
}

/** Returns the JSON of the workers' rules if the command was refused because the caller has other rules. */
export function parseChangedRules(raw: unknown): string | undefined {
  return Array.isArray(raw) && raw[0] === TAGS.rules ? String(raw[1]) : undefined;
}

/** Returns the JSON of the workers' rules in the value of P lane:rules. Empty if no worker has stored its rules. */
export function parseStoredRules(raw: unknown): string {
  return typeof raw === "string" ? raw.slice(raw.indexOf(" ") + 1) : "";
}

/** A page of the list of keys, and the cursor of the next page. */
export function parseList(raw: unknown): { readonly cursor: string; readonly keys: readonly KeyFacts[] } {
  const [cursor, ...keys] = raw as readonly [unknown, ...unknown[]];
  return { cursor: String(cursor), keys: keys.map(parseKeyFacts) };
}

/** Returns undefined if there is no such job. */
export function parseExplain(raw: unknown): { readonly fleet: FleetFacts; readonly job: JobFacts } | undefined {
  const [fleet, job] = raw as readonly unknown[];
  return job === undefined ? undefined : { fleet: parseFleet(fleet), job: parseJob(job) };
}

/** A key and its jobs at one moment. */
export interface ReadingFacts {
  readonly atMs: number;
  readonly fleet: FleetFacts;
  readonly key: KeyFacts;
  readonly jobs: readonly { readonly id: string; readonly facts: JobFacts }[];
}

export function parseReading(raw: unknown): ReadingFacts {
  const [seconds, micros, fleet, key, ...jobs] = raw as readonly unknown[];
  return {
    atMs: msOf(seconds, micros),
    fleet: parseFleet(fleet),
    key: parseKeyFacts(key),
    jobs: (jobs as readonly (readonly [string, unknown])[]).map(([id, facts]) => ({ id, facts: parseJob(facts) })),
  };
}

/** The facts of a queue at one moment. */
export interface QueueFacts {
  /** The moment, in ms since the epoch, by the clock of the queue's Redis. */
  readonly atMs: number;
  readonly isPaused: boolean;
  /** Number of jobs that a free slot would take. 0 while the queue is paused. */
  readonly runnable: number;
  /** Number of jobs that have started and not ended, including the stalled ones. */
  readonly active: number;
  /** IDs of the jobs that have started, and whose workers are gone: at most the 100 oldest active jobs. */
  readonly stalled: readonly string[];
  /** Whether the queue is exclusive or only watched, and the figures of `QueueOperators.exclusion`, without `keys`. */
  readonly exclusion: ExclusionFigures;
}

export function parseOverview(raw: unknown): QueueFacts & {
  readonly reports: readonly StoredReport[];
  /** The first page of the list of keys. */
  readonly page: ReturnType<typeof parseList>;
  readonly readings: readonly ReadingFacts[];
} {
  const [seconds, micros, isPaused, runnable, active, stalled, reports, watched, page, ...readings] =
    raw as readonly unknown[];
  return {
    atMs: msOf(seconds, micros),
    isPaused: isPaused === 1,
    runnable: Number(runnable),
    active: Number(active),
    stalled: stalled as readonly string[],
    exclusion: parseWatched(watched),
    reports: parseReports(reports),
    page: parseList(page),
    readings: readings.map(parseReading),
  };
}

function msOf(seconds: unknown, micros: unknown): number {
  return Number(seconds) * 1_000 + Math.floor(Number(micros) / 1_000);
}

function parseFleet(raw: unknown): FleetFacts {
  const [active, isHeard, reports] = raw as readonly unknown[];
  return { active: Number(active), isHeard: isHeard === 1, reports: parseReports(reports) };
}

function parseReports(raw: unknown): readonly StoredReport[] {
  return (raw as readonly (readonly [number, string, string])[]).map(([ageSeconds, text, worker]) => ({
    ageSeconds,
    text,
    worker,
  }));
}

function parseJob(raw: unknown): JobFacts {
  const elements = raw as readonly unknown[];
  const { name, pin, due, startedOn, parkedAt, lockMs, ...facts } = JOB_FACTS.parse(elements);
  const cancelled = parsePin(String(facts.cancellation));
  const keys = elements.slice(JOB_FACT_COUNT) as readonly (readonly [number, number, unknown])[];
  return {
    name: String(name),
    pin: typeof pin === "string" ? pin : undefined,
    isParked: facts.isParked === 1,
    due: numberOf(due),
    isFinished: facts.isFinished === 1,
    waitsForLock: facts.waitsForLock === 1,
    isQueuePaused: facts.isQueuePaused === 1,
    isStalled: facts.isStalled === 1,
    state: String(facts.state),
    startedOn: numberOf(startedOn),
    parkedAt: numberOf(parkedAt),
    worker: String(facts.worker),
    lockMs: Number(lockMs) < 0 ? undefined : Number(lockMs),
    cancellation: cancelled.kind === "cancelled" ? cancelled.cancellation : undefined,
    keys: keys.map(([isRemoved, rank, keyFacts]) => ({
      isHolderRemoved: isRemoved === 1,
      rank: rank < 0 ? undefined : rank,
      facts: parseKeyFacts(keyFacts),
    })),
  };
}

export function parseLine(raw: unknown): {
  readonly holders: readonly string[];
  readonly parkedSince: readonly (number | undefined)[];
  readonly ids: readonly string[];
} {
  const [holders, since, ...ids] = raw as readonly [string, readonly (string | null)[], ...string[]];
  const parkedSince = since.map((ms) => (ms === null ? undefined : Number(ms)));
  return { holders: holdersOf(holders), parkedSince, ids };
}

export function parseSearch(raw: unknown): {
  /** The number of jobs that were looked at. */
  readonly looked: number;
  readonly ids: readonly string[];
  /** Jobs whose keys have to be computed. */
  readonly unknown: readonly UnknownKeyJob[];
} {
  const [looked, ids, unknown] = raw as readonly [number, readonly string[], unknown];
  return { looked, ids, unknown: parseUnknownJobs(unknown) };
}

/**
 * State in which `cancel` has found a job. `running` includes jobs whose worker is gone. `waiting` includes delayed
 * jobs and jobs that wait for their children. `unknown`: the job does not exist or has ended.
 */
export type CancelledState = "running" | "parked" | "waiting" | "unknown";

export function parseCancel(raw: unknown): {
  readonly found: CancelledState;
  /** The keys of the job, if they are known. */
  readonly keys: readonly string[];
} {
  const [found, pin] = raw as readonly [CancelledState, string];
  return { found, keys: holdersOf(pin) };
}

export function parsePause(raw: unknown): { readonly isNew: boolean; readonly until: number | undefined } {
  const [isNew, until] = raw as readonly [number, string];
  return { isNew: isNew === 1, until: numberOf(until) };
}

export function parsePolicies(raw: unknown): {
  readonly cursor: string;
  readonly policies: readonly { readonly key: string; readonly policy: string }[];
} {
  const [cursor, ...policies] = raw as readonly [string, ...(readonly [string, string])[]];
  return { cursor, policies: policies.map(([key, policy]) => ({ key, policy })) };
}

/** A number as text; null if it was never set. */
type Count = string | null;

export function parseWatched(raw: unknown): ExclusionFigures {
  type Reply = readonly [number, ...(readonly [Count, Count, Count, Count, Count]), readonly string[]];
  const [isWatched, since, until, ended, overlaps, outOfOrder, flat] = raw as Reply;
  return {
    mode: isWatched === 1 ? "watch" : "on",
    watchedSinceMs: since === null ? undefined : Number(since),
    watchedUntilMs: until === null ? undefined : Number(until),
    ended: Number(ended),
    overlaps: Number(overlaps),
    outOfOrder: Number(outOfOrder),
    keys: Array.from({ length: flat.length / 2 }, (_, index) => ({
      key: String(flat[2 * index]),
      starts: Number(flat[2 * index + 1]),
    })),
  };
}

export function parseOverlapping(raw: unknown): { readonly cursor: string; readonly count: number } {
  const [cursor, count] = raw as readonly [string, number];
  return { cursor, count };
}

export function parseLengths(raw: unknown): { readonly runnable: number; readonly active: number } {
  const [runnable, active] = raw as readonly [number, number];
  return { runnable, active };
}

/** What the function `runnable` saw of a part of the queue. */
export interface RunnablePage {
  /** Number of jobs or keys looked at. */
  readonly looked: number;
  /** Number of jobs that only need a slot of a worker. */
  readonly ready: number;
  readonly keys: readonly {
    readonly key: string;
    /** Number of jobs that the key could take. */
    readonly free: number;
    /** Number of jobs in line that go first. */
    readonly inLine: number;
  }[];
  /** The keys of the other jobs, and how many jobs have the same keys. */
  readonly pins: readonly { readonly pin: readonly string[]; readonly jobs: number }[];
}

export function parseRunnable(raw: unknown): RunnablePage {
  const [looked, ready, keys, pins] = raw as readonly [
    number,
    number,
    readonly (string | number)[],
    readonly unknown[],
  ];
  return {
    looked,
    ready,
    keys: Array.from({ length: keys.length / 3 }, (_, index) => ({
      key: String(keys[3 * index]),
      free: Number(keys[3 * index + 1]),
      inLine: Number(keys[3 * index + 2]),
    })),
    pins: Array.from({ length: pins.length / 2 }, (_, index) => ({
      pin: String(pins[2 * index]).split(SEPARATOR),
      jobs: Number(pins[2 * index + 1]),
    })),
  };
}

export function parseExchange(raw: unknown): {
  readonly reports: readonly StoredReport[];
  readonly strays: readonly string[];
  readonly isWatched: boolean;
} {
  const [reports, strays, isWatched] = raw as readonly [unknown, readonly string[], number];
  return { reports: parseReports(reports), strays, isWatched: isWatched === 1 };
}

export function parseGather(raw: unknown): readonly InLine[] {
  const jobs = raw as readonly (readonly [string, string, readonly string[]])[];
  return jobs.map(([id, place, flat]) => ({ id, place, fields: withoutParkingFields(flat) }));
}

/** Text between the IDs of the jobs that have a key. */
const SEPARATOR = "\u001f";

/** The IDs are joined, and empty if no job has the key. */
function holdersOf(ids: string): readonly string[] {
  return ids === "" ? [] : ids.split(SEPARATOR).filter((id) => id !== "");
}

function parseKeyFacts(raw: unknown): KeyFacts {
  const facts = KEY_FACTS.parse(raw) as Readonly<Record<keyof KeyFacts, Fact>>;
  const [counted = 0, max = 0, duration = 0] = String(facts.rate).split(",").map(Number);
  return {
    key: String(facts.key),
    holders: holdersOf(String(facts.holders)),
    startedOn: numberOf(facts.startedOn),
    parked: Number(facts.parked),
    pause: String(facts.pause),
    limitedUntil: numberOf(facts.limitedUntil),
    slots: Number(facts.slots),
    rate: facts.rate === "" ? undefined : { counted, max, duration },
    policy: String(facts.policy),
    waitingSince: numberOf(facts.waitingSince),
    keysAhead: numberOf(facts.keysAhead),
    isStalled: Number(facts.isStalled) === 1,
  };
}

/** A fact that does not apply is empty. */
function numberOf(fact: unknown): number | undefined {
  return fact === "" || fact === undefined ? undefined : Number(fact);
}
