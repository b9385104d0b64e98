/** Pure: what operators see of keys and jobs, including the explanations as text. */
import { type Cancellation, parsePin } from "../../rules/entity-key.ts";
import {
  type CancelledState,
  type FleetFacts,
  GONE_SECONDS,
  type JobFacts,
  type KeyFacts,
  type parseLine,
  type parseReading,
} from "../../scripts/operator-replies.ts";
import { type KeyPolicy, parsePolicy, storedObject } from "./key-policy.ts";
import { Fleet } from "./worker-report.ts";

export interface KeyPause {
  /**
   * The operator's reason, even if a job has failed since. `failed` if no operator had paused the key before the
   * failure.
   */
  readonly reason: string;
  /** When the pause began, in ms since the epoch. */
  readonly sinceMs: number;
  /** When the pause ends by itself, in ms since the epoch. */
  readonly untilMs?: number;
  /** ID of the job whose failure has stopped the key, with or without an operator's pause. */
  readonly jobId?: string;
}

/** The limits of a key: its policy, or else the options of the worker that is asked. */
interface KeyLimits {
  /** Until when the key's rate allows no start, in ms since the epoch. */
  readonly limitedUntilMs: number | undefined;
  /** Maximum number of jobs that may have the key at the same time. */
  readonly slots: number;
  /**
   * At most `max` jobs start within `duration` ms, and `counted` jobs have started. Undefined if there is no rate
   * limit.
   */
  readonly rate: { readonly counted: number; readonly max: number; readonly duration: number } | undefined;
  /** The policy that `setKeyPolicy` has set. Limits that it leaves out come from the options. */
  readonly policy: KeyPolicy | undefined;
  /** When the first job in line was added, in ms since the epoch. */
  readonly waitingSinceMs: number | undefined;
  /**
   * Number of keys that have their turn before this key, with `between: "rotate"`. Undefined if the key does not wait
   * for its turn.
   */
  readonly keysAhead: number | undefined;
}

interface KeyHolders {
  /**
   * ID of the job that has the key: the job runs, was chosen to run next, or waits for its retry. The first of
   * `holders`.
   */
  readonly holder: string | undefined;
  /** IDs of all jobs that have the key: one for each taken slot, with `perKey.concurrency`. */
  readonly holders: readonly string[];
}

export interface BusyKey extends KeyHolders, KeyLimits {
  readonly key: string;
  /** When `holder` last started, in ms since the epoch. */
  readonly sinceMs: number | undefined;
  /** Number of jobs in line. */
  readonly parked: number;
  readonly paused: KeyPause | undefined;
  /** Whether the worker of `holder` is gone: the job has started, and BullMQ's lock of the job has expired. */
  readonly isStalled: boolean;
}

/** IDs of a key's jobs by state. */
export interface KeyJobs extends KeyHolders {
  /** IDs of the jobs in line for the key, in order. A job that was removed by hand is listed until its turn. */
  readonly parked: readonly string[];
  /**
   * When the first 1000 jobs of `parked` were parked, in ms since the epoch, by the clocks of the workers that parked
   * them. Undefined for a job that was removed by hand.
   */
  readonly parkedSinceMs: readonly (number | undefined)[];
  /** IDs of the jobs in the queue itself: no worker has looked at them yet, or they were given the key. */
  readonly waiting?: readonly string[];
  /** IDs of the jobs that wait for their time or their retry. */
  readonly delayed?: readonly string[];
}

/** A job of a key, as `KeyReading` shows it. */
export interface KeyReadingJob {
  readonly id: string;
  readonly name: string;
  readonly verdict: Verdict;
  /** The explanation as text, in the words of `explain`. */
  readonly message: string;
  /** When the job last started, in ms since the epoch. Undefined if the job has not started. */
  readonly startedMs: number | undefined;
  /** When the job was parked, in ms since the epoch. Undefined if the job is not in line. */
  readonly parkedSinceMs: number | undefined;
  /** The worker whose lock the job has, as `host:pid`. Undefined if no worker has it, or the worker does not report. */
  readonly worker: string | undefined;
  /** Time left of BullMQ's lock of the job, in ms. Undefined if there is none. */
  readonly lockMs: number | undefined;
  /** When the worker last reported, in ms since the epoch. */
  readonly workerReportedMs: number | undefined;
}

/** A key at one moment: everything was read by one script. */
export interface KeyReading extends BusyKey {
  /** The moment, in ms since the epoch, by the clock of the queue's Redis. */
  readonly atMs: number;
  /** One sentence that says why the key's jobs wait, or which jobs of the key run. */
  readonly message: string;
  /** Jobs that have the key, followed by the first jobs in line. */
  readonly jobs: readonly KeyReadingJob[];
}

/**
 * State of a key's job that is not running: in line for the key, in the queue, or waiting for its time.
 *
 * `waiting` is BullMQ's state: the job is in the queue and not in a line. Jobs that wait for their key are `parked`.
 */
export type KeyJobState = "parked" | "waiting" | "delayed";

export type { CancelledState };

/** Number of jobs that `cancelKey` has cancelled, by the state in which it found them. */
export type CancelledJobs = Readonly<Record<Exclude<CancelledState, "unknown">, number>>;

export interface JobCounts {
  readonly runnable: number;
  readonly active: number;
  readonly parked: number;
  /**
   * Number of jobs that could start at this moment if enough slots of workers were free: one for each key, up to the
   * slots of the key, and the jobs without a key. At most 1000, among the 10000 jobs that are taken next.
   */
  readonly runnableKeys: number;
  readonly busyKeys: number;
  readonly pausedKeys: number;
  /** Number of keys with jobs in line. */
  readonly waitingKeys: number;
  /** Number of keys whose jobs may not start, because of the keys' rate. */
  readonly limitedKeys: number;
  /** The longest time in ms since a first job in line was added, over all keys. 0 if no job is in line. */
  readonly oldestWaitingMs: number;
  /** Number of jobs in the longest line of a key. */
  readonly longestLine: number;
  /** The longest time in ms since a job that has its key was started, over all keys. 0 if no job has a key. */
  readonly longestHeldMs: number;
}

export type Verdict =
  | "finished"
  /** The job has no key, and only waits for a slot or its time. */
  | "no-key"
  /** The key cannot be used, so the job will fail. */
  | "unusable-key"
  /** The job is not in a line. A worker looks at the job's key after the wait for a slot, the delay or the retry. */
  | "not-judged"
  /** The job waits for its children, and has no key. */
  | "waits-for-children"
  | "runs"
  /** The job was cancelled and has not ended yet. A job that runs ends when its processor settles. */
  | "cancelled"
  /** The job has started, and its worker is gone. A running worker moves the job on within its `stalledInterval`. */
  | "stalled"
  /** The job has its keys, and waits for a slot. */
  | "chosen"
  /** The job has its keys, and waits in `delayed` for its retry. */
  | "waits-for-retry"
  /**
   * The job has its keys, and waits in `delayed` for their lock: other code holds the lock, or its nodes did not
   * answer.
   */
  | "waits-for-lock"
  /** The job waits in line for a key. */
  | "parked";

/** A key from the view of a job that has the key or waits for it. */
export interface KeyPosition extends BusyKey {
  /** Whether the holder was removed from the queue. The key is passed on when a script next looks at it. */
  readonly isHolderRemoved: boolean;
  /** Number of jobs in line before this job, without the holder. Undefined if the job is not in a line. */
  readonly ahead: number | undefined;
}

export interface Explanation {
  readonly jobId: string;
  /** State of the job, as BullMQ names it. */
  readonly state: string;
  readonly verdict: Verdict;
  /** The explanation as text. */
  readonly message: string;
  readonly keys: readonly KeyPosition[];
  /** When the job leaves `delayed` at the latest, in ms since the epoch. */
  readonly dueAtMs: number | undefined;
}

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
    paused: pause === "" ? undefined : parseStoredPause(pause),
    limitedUntilMs: facts.limitedUntil,
    slots,
    rate,
    policy: parsePolicy(policy),
    waitingSinceMs: facts.waitingSince,
    keysAhead: facts.keysAhead,
    isStalled: facts.isStalled,
  };
}

/** Returns the explanation of a job. Undefined if the job does not exist. */
export function explanationOf(
  jobId: string,
  facts: { readonly fleet: FleetFacts; readonly job: JobFacts } | undefined,
): Explanation | undefined {
  return facts === undefined ? undefined : explained(jobId, facts.job, new Fleet(facts.fleet));
}

function explained(jobId: string, job: JobFacts, fleet: Fleet): Explanation {
  const { state } = job;
  const keys = job.keys.map(({ isHolderRemoved, rank, facts }) => ({
    ...busyKeyOf(facts),
    isHolderRemoved,
    ahead: rank,
  }));
  const pin = job.pin === undefined ? undefined : parsePin(job.pin);
  const holdsAll = keys.length > 0 && keys.every(({ holders }) => holders.includes(jobId));
  const stage = ((): Exclude<Verdict, "cancelled"> => {
    if (job.isFinished) return "finished";
    if (state === "active") return job.isStalled ? "stalled" : "runs";
    if (state === "waiting-children") return "waits-for-children";
    if (pin?.kind === "none") return "no-key";
    if (pin?.kind === "fault") return "unusable-key";
    if (job.isParked) return "parked";
    if (!holdsAll) return "not-judged";
    if (job.due === undefined) return "chosen";
    return job.waitsForLock ? "waits-for-lock" : "waits-for-retry";
  })();
  const fault = pin?.kind === "fault" ? pin.fault : "";
  const isHeldUp = job.isQueuePaused && !["active", "completed", "failed"].includes(state);
  const absence = NEED_NO_WORKER.has(stage) ? undefined : fleet.absence;
  const waits = isHeldUp || absence !== undefined ? "waits for a free slot" : fleet.slots;
  return {
    jobId,
    state,
    verdict: job.cancellation === undefined ? stage : "cancelled",
    message:
      cancellationInWords(job.cancellation) +
      messageFor(stage, { jobId, state, keys, fault, dueAtMs: job.due, waits, worker: fleet.reportOf(job.worker) }) +
      (isHeldUp ? "; the queue is paused" : "") +
      (absence === undefined ? "" : `; ${absence}`),
    keys,
    dueAtMs: job.due,
  };
}

/** Returns what operators see of a key and its jobs. */
export function keyReadingOf({ atMs, fleet: facts, key, jobs }: ReturnType<typeof parseReading>): KeyReading {
  const fleet = new Fleet(facts);
  const shown = jobs.map(({ id, facts: job }): KeyReadingJob => {
    const { verdict, message } = explained(id, job, fleet);
    const worker = fleet.reportOf(job.worker);
    return {
      id,
      name: job.name,
      verdict,
      message,
      startedMs: job.startedOn,
      parkedSinceMs: job.parkedAt,
      worker: worker?.at,
      workerReportedMs: worker === undefined ? undefined : atMs - worker.ageSeconds * 1_000,
      lockMs: job.lockMs,
    };
  });
  const [first] = shown;
  const busy = busyKeyOf(key);
  const message =
    busy.paused === undefined
      ? first === undefined
        ? "no job has the key, and none waits for it"
        : `job ${first.id} ${first.message}`
      : `key "${key.key}" is ${pauseInWords(busy.paused)}`;
  return { ...busy, atMs, message, jobs: shown };
}

/** A pause as the lane's scripts store it. */
type StoredPause = Pick<KeyPause, "reason" | "jobId"> & { readonly since: number; readonly until?: number };

/** Parses a stored pause. A damaged pause still stops the key, so its reason becomes `damaged`. */
function parseStoredPause(json: string): KeyPause {
  const stored: Partial<StoredPause> = storedObject(json) ?? {};
  const { since = 0, until, reason = "damaged", ...said } = stored;
  return { ...said, reason, sinceMs: since, ...(until === undefined ? {} : { untilMs: until }) };
}

/** Verdicts of jobs that run or that no worker could start. */
const NEED_NO_WORKER: ReadonlySet<Verdict> = new Set(["finished", "runs", "waits-for-children"]);

function cancellationInWords(cancellation: Cancellation | undefined): string {
  return cancellation === undefined ? "" : `was cancelled by ${cancellation.by}: ${cancellation.reason}; it `;
}

function messageFor(
  verdict: Exclude<Verdict, "cancelled">,
  facts: Pick<Explanation, "jobId" | "state" | "keys" | "dueAtMs"> & {
    readonly fault: string;
    /** What a job waits for whose key is free. */
    readonly waits: string;
    readonly worker: ReturnType<Fleet["reportOf"]>;
  },
): string {
  const { jobId, state, keys, fault, dueAtMs, waits, worker } = facts;
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
      return state === "delayed" ? "has no key, and waits for its time" : `has no key, and ${waits}`;
    case "unusable-key":
      return `will fail: its key ${fault}`;
    case "not-judged":
      return dueAtMs === undefined
        ? `is not in a line, and ${waits}`
        : `is not in a line, and waits for its time or its retry, at ${timeText(dueAtMs)}`;
    case "waits-for-children":
      return "waits for its children, and has no key until then";
    case "runs":
      if (worker === undefined) return "is running";
      return worker.ageSeconds > GONE_SECONDS
        ? `is running, but its worker ${worker.at} has not reported for ${worker.ageSeconds} s`
        : `is running in ${worker.at}`;
    case "stalled":
      return "had started, and its worker is gone: a worker that runs moves it on within its stalledInterval";
    case "chosen":
      return `is next on its key, and ${paused === "" ? waits : `waits while ${paused}`}`;
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
  // The asking worker may not know of the key's limit, but the job's due time shows when the limit ends.
  const due = isFirst && dueAtMs !== undefined ? `, due at ${timeText(dueAtMs)}` : "";
  return `key "${key}": ${line}, no job has it${due}`;
}

/** Formats the counted starts, as in `: 100 of 100 starts in 60 s`. */
function rateInWords(position: KeyLimits): string {
  const { rate } = position;
  if (rate === undefined) return "";
  return `: ${rate.counted} of ${rate.max} starts in ${rate.duration / 1_000} s${sourceOf(position, "rate")}`;
}

function sourceOf({ policy }: KeyLimits, member: keyof KeyPolicy): string {
  return policy?.[member] === undefined ? "" : ", by its policy";
}

/** Formats a pause. A job that has failed is named, because resuming the key skips this job unless it was retried. */
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
