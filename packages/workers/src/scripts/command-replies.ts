/** The replies of the scripts in commands.lua.ts, parsed into objects. */
import { ReplyShape } from "./rules/reply-shape.ts";

/** The first element of a reply that is the lane's and not BullMQ's. */
export const TAGS = {
  /** Nothing was taken, and the fetch is to be repeated. See `REPEAT`. */
  again: "LANE_AGAIN",
  /** Nothing was taken: keys of jobs have to be computed first. The jobs follow. */
  ask: "LANE_ASK",
  /** The reply is wrapped. See `WRAPPED`. */
  wrapped: "LANE_REPLY",
  /** An end in a batch has failed. The message follows. */
  error: "LANE_ERROR",
  /** Nothing was done: the job was cancelled, and must fail. The refusal of the job follows. */
  cancelled: "LANE_CANCELLED",
  /** Nothing was done: the workers have other rules than the caller. The rules follow. */
  rules: "LANE_RULES",
} as const;

/** Facts of a job that was taken, after BullMQ's own four elements: the job's fields, its ID and two numbers. */
const JOB_REPLY: ReplyShape<
  "pin" | "parked" | "fencingToken" | "unknown" | "lockPlace" | "isFollowed" | "slots" | "outcome" | "parkedAt"
> = new ReplyShape(
  ["pin", "parked", "fencingToken", "unknown", "lockPlace", "isFollowed", "slots", "outcome", "parkedAt"],
  5,
);

/** The positions of these facts in Lua. */
export const REPLY: (typeof JOB_REPLY)["at"] = JOB_REPLY.at;

/** Elements behind the tag of a fetch that is to be repeated. */
const REPEAT: ReplyShape<"parked" | "fault"> = new ReplyShape(["parked", "fault"], 2);

/** Elements behind the tag of a wrapped reply. */
const WRAPPED: ReplyShape<"reply" | "isLockKept" | "fault" | "limited"> = new ReplyShape(
  ["reply", "isLockKept", "fault", "limited"],
  2,
);

/** A fetch that took no job and has to be repeated. */
export type RepeatedFetch =
  /** Jobs were parked. `fault`: why a job could not be judged and was set aside. */
  | { readonly kind: "again"; readonly parked: number; readonly fault: string | undefined }
  /** The keys of these jobs have to be computed before. */
  | { readonly kind: "ask"; readonly jobs: readonly UnknownKeyJob[] };

/** A job whose keys only JavaScript can find. */
export interface UnknownKeyJob {
  readonly id: string;
  readonly name: string;
  readonly data: string;
  readonly timestamp: number;
  readonly priority: number;
  readonly parentKey: string | undefined;
}

/** The reply of a command, without the lane's wrapping. */
export interface CommandReply {
  /** The reply inside: BullMQ's own, with a job's facts behind it, or one to fetch again. */
  readonly reply: unknown;
  /** Whether the command was to release a lock and did not. */
  readonly isLockKept: boolean;
  /** Why a step after BullMQ's part of the command failed. */
  readonly fault: string | undefined;
  /** Keys whose jobs wait because of the key's rate, each with the end of the wait, in ms since the epoch. */
  readonly limited: ReadonlyMap<string, number>;
}

const NO_JOBS: readonly UnknownKeyJob[] = [];
const NONE_LIMITED: ReadonlyMap<string, number> = new Map();

/** The facts of a job that a script has taken for this worker. */
export class JobReply {
  readonly jobId: string;
  /** The job's keys as one text: its pin. */
  readonly pinText: string;
  /** The number of jobs that were parked before this job was found. */
  readonly parked: number;
  /** The fencing token of the lock of the job's key. Undefined if the script did not acquire the lock. */
  readonly fencingToken: number | undefined;
  /** Waiting jobs whose keys have to be computed. */
  readonly unknown: readonly UnknownKeyJob[];
  /** The job's place in line for its locks. Undefined if it did not wait for them. */
  readonly place: number | undefined;
  /** Whether the end of this job is likely to bring the next job of its one key. */
  readonly isFollowed: boolean;
  /** The number of the job's slot of each of its keys. Undefined if all are the first. */
  readonly slots: readonly number[] | undefined;
  /** The outcome that another job's processor call has set. Undefined if the job is to run. */
  readonly outcome: string | undefined;
  /** When the job was parked, in ms since the epoch. Undefined if it was not. */
  readonly parkedSinceMs: number | undefined;

  constructor(raw: readonly unknown[]) {
    const unknown = JOB_REPLY.valueIn(raw, "unknown");
    const isFollowed = JOB_REPLY.valueIn(raw, "isFollowed");
    this.jobId = String(raw[1]);
    this.pinText = String(JOB_REPLY.valueIn(raw, "pin"));
    this.parked = Number(JOB_REPLY.valueIn(raw, "parked") ?? 0);
    this.fencingToken = numberOf(JOB_REPLY.valueIn(raw, "fencingToken"));
    this.unknown = Array.isArray(unknown) ? parseUnknownJobs(unknown) : NO_JOBS;
    this.place = numberOf(JOB_REPLY.valueIn(raw, "lockPlace"));
    this.isFollowed = isFollowed === 1 || isFollowed === true;
    this.slots = textOf(JOB_REPLY.valueIn(raw, "slots"))?.split(",").map(Number);
    this.outcome = textOf(JOB_REPLY.valueIn(raw, "outcome"));
    this.parkedSinceMs = numberOf(JOB_REPLY.valueIn(raw, "parkedAt"));
  }
}

/** Reports whether a reply contains the facts of a job, for `JobReply`. */
export function bringsJob(reply: unknown): reply is readonly unknown[] {
  return Array.isArray(reply) && Array.isArray(reply[0]);
}

/** Returns how a fetch is to be repeated. Undefined if the reply is BullMQ's own. */
export function parseRepeatedFetch(reply: unknown): RepeatedFetch | undefined {
  if (!Array.isArray(reply)) return undefined;
  const [tag, jobs] = reply as readonly unknown[];
  if (tag === TAGS.ask) return { kind: "ask", jobs: parseUnknownJobs(jobs) };
  if (tag !== TAGS.again) return undefined;
  const parked = Number(REPEAT.valueIn(reply, "parked"));
  return { kind: "again", parked, fault: textOf(REPEAT.valueIn(reply, "fault")) };
}

/** Returns the cancellation, as a pin, because of which a command was refused. Undefined if the command has run. */
export function parseRefusedCommand(reply: unknown): string | undefined {
  const [tag, refusal] = Array.isArray(reply) ? (reply as readonly unknown[]) : [];
  return tag === TAGS.cancelled ? String(refusal) : undefined;
}

/** Returns the replies to many ends, from the reply of `eachEnd`. A failed end has an `Error` instead. */
export function parseEnds(raw: unknown): readonly unknown[] {
  const replies = JSON.parse(String(raw)) as readonly unknown[];
  return replies.map((reply) =>
    Array.isArray(reply) && reply[0] === TAGS.error ? new Error(String(reply[1])) : reply,
  );
}

/** Takes the reply of a command out of the lane's wrapping. */
export function unwrapReply(raw: unknown): CommandReply {
  if (Array.isArray(raw) && raw[0] === TAGS.wrapped) {
    return {
      reply: WRAPPED.valueIn(raw, "reply"),
      isLockKept: WRAPPED.valueIn(raw, "isLockKept") === 1,
      fault: textOf(WRAPPED.valueIn(raw, "fault")),
      limited: parseLimited(WRAPPED.valueIn(raw, "limited")),
    };
  }
  const isRefused = typeof raw === "number" && raw < 0;
  return { reply: raw, isLockKept: isRefused, fault: undefined, limited: NONE_LIMITED };
}

/** Returns the jobs of a reply. A missing fact is null in a plain reply, and false in JSON. */
export function parseUnknownJobs(raw: unknown): UnknownKeyJob[] {
  const jobs = raw as readonly (readonly (string | null | false)[])[];
  return jobs.map(([id, name, data, timestamp, priority, parentKey]) => ({
    id: String(id),
    name: name || "",
    data: data || "",
    timestamp: Number(timestamp || 0),
    priority: Number(priority || 0),
    parentKey: parentKey || undefined,
  }));
}

function parseLimited(raw: unknown): ReadonlyMap<string, number> {
  if (!Array.isArray(raw)) return NONE_LIMITED;
  const limited = new Map<string, number>();
  for (let i = 0; i + 1 < raw.length; i += 2) limited.set(String(raw[i]), Number(raw[i + 1]));
  return limited;
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" ? value : undefined;
}

/** Scripts reply large numbers as text. */
function numberOf(value: unknown): number | undefined {
  return typeof value === "string" ? Number(value) : undefined;
}
