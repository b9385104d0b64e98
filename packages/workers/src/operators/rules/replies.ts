/** Pure: what the lane's scripts reply to operators, and what it means. */
import { bullFieldsOf } from "../../bullmq/rules/parked-hash.ts";
import { parsePin } from "../../rules/entity-key.ts";
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

/** What stands in place of a job that has a key. */
const marks: ReadonlySet<string> = new Set(["", "!:paused", "!:next"]);
/** This text stands between the ids of the jobs that have a key. */
const SEPARATOR = "\u001f";

/** Returns a page of the list of keys, and where the next one begins. */
export function parseKeys(raw: unknown): { readonly cursor: string; readonly keys: readonly BusyKey[] } {
  const [cursor, ...keys] = raw as readonly [unknown, ...(readonly Fact[])[]];
  return { cursor: String(cursor), keys: keys.map(busyKey) };
}

export function parseKeyJobs(raw: unknown): KeyJobs {
  const [holders, since, ...parked] = raw as readonly [string, readonly (string | null)[], ...string[]];
  const parkedSinceMs = since.map((ms) => (ms === null ? undefined : Number(ms)));
  return { ...holdersOf(holders), parked, parkedSinceMs };
}

/** A job that stands in line: its place there, and its hash as BullMQ makes a job of it. */
export interface InLine {
  readonly id: string;
  readonly place: string;
  readonly fields: Readonly<Record<string, string>>;
}

export function parseInLine(raw: unknown): InLine[] {
  return (raw as readonly (readonly [string, string, readonly string[]])[]).map(([id, place, flat]) => ({
    id,
    place,
    fields: bullFieldsOf(flat),
  }));
}

/** Returns the explanation in a reply, or undefined if there is no such job. */
export function parseExplanation(jobId: string, state: string, raw: unknown): Explanation | undefined {
  const [pinText, isParked, due, isFinished, isYielding, isQueuePaused, isStalled, heardAgo, ...rest] =
    raw as readonly unknown[];
  if (isParked === undefined) return undefined;
  const keys = (rest as readonly (readonly Fact[])[]).map(parsePosition);
  const pin = typeof pinText === "string" ? parsePin(pinText) : undefined;
  const holdsAll = keys.length > 0 && keys.every(({ holders }) => holders.includes(jobId));
  const verdict = ((): Verdict => {
    if (isFinished === 1) return "finished";
    if (state === "active") return isStalled === 1 ? "stalled" : "runs";
    if (state === "waiting-children") return "waits-for-children";
    if (pin?.kind === "none") return "no-key";
    if (pin?.kind === "fault") return "unusable-key";
    if (isParked === 1) return "parked";
    if (!holdsAll) return "not-judged";
    // Not `state`, which is a reply of its own: the job may have been chosen between the two.
    if (due === "") return "chosen";
    return isYielding === 1 ? "waits-for-lock" : "waits-for-retry";
  })();
  const fault = pin?.kind === "fault" ? pin.fault : "";
  const dueAtMs = due === "" ? undefined : Number(due);
  return {
    jobId,
    state,
    verdict,
    message:
      inWords(verdict, { jobId, state, keys, fault, dueAtMs }) +
      (isQueuePaused === 1 && !["active", "completed", "failed"].includes(state) ? "; the queue is paused" : "") +
      (NEED_NO_WORKER.has(verdict) ? "" : workersInWords(heardAgo)),
    keys,
    dueAtMs,
  };
}

/** Jobs of these verdicts run, or wait for no worker. */
const NEED_NO_WORKER: ReadonlySet<Verdict> = new Set(["finished", "runs", "waits-for-children"]);

/** A worker that runs is heard of every minute. */
const SILENT_SECONDS = 90;

/** Says that no worker runs. Empty if one was heard of. */
function workersInWords(heardAgo: unknown): string {
  if (heardAgo === "") return "; no worker with keys runs";
  return Number(heardAgo) > SILENT_SECONDS ? `; no worker with keys was heard of for ${Number(heardAgo)} s` : "";
}

type Fact = string | number;

/** A pause as the lane's scripts keep it. */
type StoredPause = Pick<KeyPause, "reason" | "jobId"> & { readonly since: number; readonly until?: number };

function parsePosition(raw: readonly Fact[]): KeyPosition {
  const [key = "", holders = "", since = "", isRemoved, rank, parked = 0, ...facts] = raw;
  return {
    ...busyKey([key, holders, parked, since, ...facts]),
    isHolderRemoved: isRemoved === 1,
    ahead: Number(rank) < 0 ? undefined : Number(rank),
  };
}

function busyKey(raw: readonly Fact[]): BusyKey {
  const [key, holders, parked, since, paused = "", isStalled, ...limits] = raw;
  const [limited, slots = 1, rate = "", policy = "", waiting, keysAhead] = limits;
  const [counted = 0, max = 0, duration = 0] = String(rate).split(",").map(Number);
  return {
    key: String(key),
    ...holdersOf(holders),
    sinceMs: timeOf(since),
    parked: Number(parked),
    paused: paused === "" ? undefined : pauseIn(String(paused)),
    isStalled: isStalled === 1,
    limitedUntilMs: timeOf(limited),
    slots: Number(slots),
    rate: rate === "" ? undefined : { counted, max, duration },
    policy: parsePolicy(String(policy)),
    waitingSinceMs: timeOf(waiting),
    keysAhead: timeOf(keysAhead),
  };
}

/** Returns the pause that the lane has kept. A damaged pause still holds up the key, so the reason says that. */
function pauseIn(json: string): KeyPause {
  const stored: Partial<StoredPause> = storedObject(json) ?? {};
  const { since = 0, until, reason = "damaged", ...said } = stored;
  return { ...said, reason, sinceMs: since, ...(until === undefined ? {} : { untilMs: until }) };
}

function timeOf(text: Fact | undefined): number | undefined {
  return text === "" || text === undefined ? undefined : Number(text);
}

function holdersOf(ids: unknown): Holders {
  const holders = String(ids)
    .split(SEPARATOR)
    .filter((id) => !marks.has(id));
  return { holder: holders[0], holders };
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
