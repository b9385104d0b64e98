/** Pure: what operators see of keys and jobs, and the explanation in words. */
import { parsePin } from "../../rules/entity-key.ts";
import type { JobFacts, KeyFacts, parseLine } from "../../scripts/operator-replies.ts";
import { type KeyPolicy, parsePolicy, storedObject } from "./key-policy.ts";

export interface KeyPause {
  /** What the operator said, also if a job has failed since. It is `failed` if nobody had paused the key before. */
  readonly reason: string;
  /** The time of the pause, in ms since the epoch. */
  readonly sinceMs: number;
  /** The time at which the pause ends by itself, in ms since the epoch. */
  readonly untilMs?: number;
  /** The job whose failure stopped the key, alone or besides the operator. */
  readonly jobId?: string;
}

/** What holds for a key: what operators have said of it (`policy`), or else the options of the worker that is asked. */
interface KeyLimits {
  /** The time until which no job starts, because of the key's rate, in ms since the epoch. */
  readonly limitedUntilMs: number | undefined;
  /** The number of jobs that may have the key at a time. */
  readonly slots: number;
  /** At most `max` jobs start in `duration` ms; `counted` have. It is undefined if any number may. */
  readonly rate: { readonly counted: number; readonly max: number; readonly duration: number } | undefined;
  /** What `setKeyPolicy` has said. What it does not have is the option's. */
  readonly policy: KeyPolicy | undefined;
  /** The time at which the first in line was added, in ms since the epoch. */
  readonly waitingSinceMs: number | undefined;
  /**
   * The number of keys that have their turn before this one, with `between: "rotate"`. It is undefined if the key does
   * not wait for its turn.
   */
  readonly keysAhead: number | undefined;
}

/** Which jobs have a key. */
interface Holders {
  /** The job that has the key: it runs, was chosen to run next, or waits for its retry. The first of `holders`. */
  readonly holder: string | undefined;
  /** All jobs that have the key: with `perKey.concurrency`, as many as have a slot. */
  readonly holders: readonly string[];
}

export interface BusyKey extends Holders, KeyLimits {
  readonly key: string;
  /** The time at which `holder` was last started, in ms since the epoch. */
  readonly sinceMs: number | undefined;
  /** The number of jobs that wait in line. */
  readonly parked: number;
  readonly paused: KeyPause | undefined;
  /** Whether the worker of `holder` is gone: the job had started, and BullMQ's lock of it has ended. */
  readonly isStalled: boolean;
}

/** The ids of a key's jobs, by where they are. */
export interface KeyJobs extends Holders {
  /**
   * The ids of the jobs that wait in line for it, first come first. A job that was removed by hand is listed until its
   * turn.
   */
  readonly parked: readonly string[];
  /**
   * The times at which the first 1000 of these were parked, in ms since the epoch, by the clocks of the workers that
   * did it. It is undefined for a job that was removed by hand.
   */
  readonly parkedSinceMs: readonly (number | undefined)[];
  /** The ids of its jobs that wait in the queue itself: nobody has looked at them, or they were given the key. */
  readonly waiting?: readonly string[];
  /** The ids of its jobs that wait for their time or their retry. */
  readonly delayed?: readonly string[];
}

/**
 * The state of a key's job that does not run: in line for it, in the queue, or waiting for its time.
 *
 * `waiting` is BullMQ's: the job waits in the queue, in no line. What waits for its key is `parked`.
 */
export type KeyJobState = "parked" | "waiting" | "delayed";

export interface JobCounts {
  readonly runnable: number;
  readonly active: number;
  readonly parked: number;
  readonly busyKeys: number;
  readonly pausedKeys: number;
  /** Keys that jobs wait for. */
  readonly waitingKeys: number;
  /** Keys of which no job starts, because of their rate. */
  readonly limitedKeys: number;
  /**
   * The time for which the first in line waits, since it was added, of the key where that is longest. 0 if nobody
   * waits.
   */
  readonly oldestWaitingMs: number;
}

export type Verdict =
  | "finished"
  /** The job has no key, and waits only for a slot or its time. */
  | "no-key"
  /** The key cannot be used, so the job will fail. */
  | "unusable-key"
  /** The job is in no line. It waits for a slot, its delay or its retry; then its key is looked at. */
  | "not-judged"
  /** The job waits for its children, without a key. */
  | "waits-for-children"
  | "runs"
  /** The job had started, and its worker is gone. A worker that runs moves it on within its `stalledInterval`. */
  | "stalled"
  /** The job has its keys, and waits for a slot. */
  | "chosen"
  /** The job has its keys, and waits in `delayed` for its retry. */
  | "waits-for-retry"
  /** The job has its keys, and waits in `delayed` for their lock: other code holds it, or its nodes did not answer. */
  | "waits-for-lock"
  /** The job waits in line for a key. */
  | "parked";

/** A key, as a job sees it that has it or waits for it. */
export interface KeyPosition extends BusyKey {
  /** Whether the holder was removed from the queue. The key is passed on when it is next asked for. */
  readonly isHolderRemoved: boolean;
  /** The number of jobs in front of it in line, besides the holder. It is undefined if the job stands in no line. */
  readonly ahead: number | undefined;
}

export interface Explanation {
  readonly jobId: string;
  /** BullMQ's state of the job. */
  readonly state: string;
  readonly verdict: Verdict;
  /** The explanation in words. */
  readonly message: string;
  readonly keys: readonly KeyPosition[];
  /** The latest time at which the job leaves `delayed`, in ms since the epoch. */
  readonly dueAtMs: number | undefined;
}

/** Returns the jobs in line for a key, and the jobs that have it. */
export function keyJobsOf({ holders, parkedSince, ids }: ReturnType<typeof parseLine>): KeyJobs {
  return { holder: holders[0], holders, parked: ids, parkedSinceMs: parkedSince };
}

export function busyKeyOf(facts: KeyFacts): BusyKey {
  const { key, holders, parked, pause, slots, rate, policy } = facts;
  return {
    key,
    holder: holders[0],
    holders,
    sinceMs: facts.startedOn,
    parked,
    paused: pause === "" ? undefined : pauseIn(pause),
    limitedUntilMs: facts.limitedUntil,
    slots,
    rate,
    policy: parsePolicy(policy),
    waitingSinceMs: facts.waitingSince,
    keysAhead: facts.keysAhead,
    isStalled: facts.isStalled,
  };
}

/** Returns the explanation of a job in this state of BullMQ's. Undefined if there is no such job. */
export function explanationOf(jobId: string, state: string, job: JobFacts | undefined): Explanation | undefined {
  if (job === undefined) return undefined;
  const keys = job.keys.map(({ isHolderRemoved, rank, facts }) => ({
    ...busyKeyOf(facts),
    isHolderRemoved,
    ahead: rank,
  }));
  const pin = job.pin === undefined ? undefined : parsePin(job.pin);
  const holdsAll = keys.length > 0 && keys.every(({ holders }) => holders.includes(jobId));
  const verdict = ((): Verdict => {
    if (job.isFinished) return "finished";
    if (state === "active") return job.isStalled ? "stalled" : "runs";
    if (state === "waiting-children") return "waits-for-children";
    if (pin?.kind === "none") return "no-key";
    if (pin?.kind === "fault") return "unusable-key";
    if (job.isParked) return "parked";
    if (!holdsAll) return "not-judged";
    // The state is from a reply of its own: the job may have been chosen between the two replies.
    if (job.due === undefined) return "chosen";
    return job.waitsForLock ? "waits-for-lock" : "waits-for-retry";
  })();
  const fault = pin?.kind === "fault" ? pin.fault : "";
  const isHeldUp = job.isQueuePaused && !["active", "completed", "failed"].includes(state);
  return {
    jobId,
    state,
    verdict,
    message:
      inWords(verdict, { jobId, state, keys, fault, dueAtMs: job.due }) +
      (isHeldUp ? "; the queue is paused" : "") +
      (NEED_NO_WORKER.has(verdict) ? "" : workersInWords(job.heardAgo)),
    keys,
    dueAtMs: job.due,
  };
}

/** A pause as the lane's scripts store it. */
type StoredPause = Pick<KeyPause, "reason" | "jobId"> & { readonly since: number; readonly until?: number };

/** Returns the pause that the lane has stored. A damaged pause still holds up the key, so the reason says that. */
function pauseIn(json: string): KeyPause {
  const stored: Partial<StoredPause> = storedObject(json) ?? {};
  const { since = 0, until, reason = "damaged", ...said } = stored;
  return { ...said, reason, sinceMs: since, ...(until === undefined ? {} : { untilMs: until }) };
}

/** Jobs of these verdicts run, or wait for no worker. */
const NEED_NO_WORKER: ReadonlySet<Verdict> = new Set(["finished", "runs", "waits-for-children"]);

/** A worker that runs is heard of every minute. */
const SILENT_SECONDS = 90;

/** Says that no worker runs. Empty if one was heard of. */
function workersInWords(heardAgo: number | undefined): string {
  if (heardAgo === undefined) return "; no worker with keys runs";
  return heardAgo > SILENT_SECONDS ? `; no worker with keys was heard of for ${heardAgo} s` : "";
}

function inWords(
  verdict: Verdict,
  facts: Pick<Explanation, "jobId" | "state" | "keys" | "dueAtMs"> & { readonly fault: string },
): string {
  const { jobId, state, keys, fault, dueAtMs } = facts;
  const paused = keys
    .filter((position) => position.paused !== undefined)
    .map((position) => positionInWords(position))
    .join("; ");
  const halted = keys.filter(({ paused }) => paused?.jobId === jobId).map(({ key }) => JSON.stringify(key));
  switch (verdict) {
    case "finished":
      if (state !== "failed") return "has finished";
      return halted.length === 0
        ? "has failed"
        : `has failed, and stopped key ${halted.join(", ")}: retry the job, then resume the key; or only resume it`;
    case "no-key":
      return state === "delayed" ? "has no key, and waits for its time" : "has no key, and waits only for a free slot";
    case "unusable-key":
      return `will fail: its key ${fault}`;
    case "not-judged":
      return "stands in no line: it waits for a free slot, its delay or its retry";
    case "waits-for-children":
      return "waits for its children, and keeps no key meanwhile";
    case "runs":
      return "is running";
    case "stalled":
      return "had started, and its worker is gone: a worker that runs moves it on within its stalledInterval";
    case "chosen":
      return `is next on its key, and waits ${paused === "" ? "for a free slot" : `while ${paused}`}`;
    case "waits-for-retry":
      return `has its key, and waits for its retry${paused === "" ? "" : `; ${paused}`}`;
    case "waits-for-lock":
      return `has its key, and waits for its lock, which other code holds or whose nodes did not answer${paused === "" ? "" : `; ${paused}`}`;
    case "parked":
      return keys.map((position) => positionInWords(position, dueAtMs)).join("; ");
  }
}

function positionInWords(position: KeyPosition, dueAtMs?: number): string {
  const { key, holder, holders, ahead, paused, limitedUntilMs, slots, keysAhead, isStalled } = position;
  if (paused !== undefined) return `key "${key}" is ${pauseInWords(paused)}`;
  const isFirst = ahead === undefined || ahead === 0;
  const line = isFirst ? "first in line" : `behind ${ahead} other ${ahead === 1 ? "job" : "jobs"}`;
  const taken =
    slots > 1 || holders.length > 1 ? ` (${holders.length} of ${slots} slots${sourceOf(position, "concurrency")})` : "";
  const isFull = holders.length >= slots;
  const who = `${holders.length > 1 ? `jobs ${holders.join(", ")} have` : `job ${holder} has`} it${taken}${isStalled ? `, and the worker of job ${holder} is gone` : ""}`;
  const limit = limitedUntilMs === undefined ? "" : `limited until ${timeText(limitedUntilMs)}${rateInWords(position)}`;
  if (holder !== undefined) return `key "${key}": ${line}, ${who}${isFull || limit === "" ? "" : `, ${limit}`}`;
  if (keysAhead !== undefined) {
    const others = `${keysAhead} other ${keysAhead === 1 ? "key" : "keys"}`;
    return `key "${key}": ${line}, waits for the turn of the key, behind ${others}`;
  }
  if (limit !== "") return `key "${key}": ${line}, ${limit}`;
  // Who asks may not know of a limit, but the job's time tells when it ends.
  const due = isFirst && dueAtMs !== undefined ? `, due at ${timeText(dueAtMs)}` : "";
  return `key "${key}": ${line}, nobody has it${due}`;
}

/** What was counted, such as `: 100 of 100 starts in 60 s`. */
function rateInWords(position: KeyLimits): string {
  const { rate } = position;
  if (rate === undefined) return "";
  return `: ${rate.counted} of ${rate.max} starts in ${rate.duration / 1_000} s${sourceOf(position, "rate")}`;
}

function sourceOf({ policy }: KeyLimits, member: keyof KeyPolicy): string {
  return policy?.[member] === undefined ? "" : ", by its policy";
}

/** A job that failed is named: to resume the key skips it, unless it was retried. */
function pauseInWords({ reason, untilMs, jobId }: KeyPause): string {
  const stopped = jobId === undefined ? [] : [`stopped by job ${jobId}, which failed`];
  const isOperators = jobId === undefined || reason !== "failed";
  const paused = isOperators ? [`paused${untilMs === undefined ? "" : ` until ${timeText(untilMs)}`}: ${reason}`] : [];
  return [...stopped, ...paused].join(", and ");
}

function timeText(ms: number): string {
  // oxlint-disable-next-line eslint/no-restricted-globals -- it reads no clock
  return new Date(ms).toISOString();
}
