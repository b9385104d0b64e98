/** The state of the small world as a value, and a draft of it that a step changes. */
import type { Job } from "bullmq";
import type { LaneRules } from "../../../packages/workers/src/bullmq/rules/compose.ts";
import type { TakenJob } from "../../../packages/workers/src/lane/taken-job.ts";
import type { LaneData } from "../../simulation/lanes/setting.ts";
import { type Entries, RedisFacts, textOfEntries } from "./redis-state.ts";
import { type Spec, UNPAUSED } from "./spec.ts";
import type { SentCommand } from "./wire.ts";

/** Events of which a world has a limited number. Jobs are also added, fetched and completed. */
export type Event =
  /** A job fails, and is retried if it has attempts left. */
  | "fail"
  /** The processor delays its job. */
  | "delay"
  /** The processor backs off from its keys. */
  | "back off"
  | "die"
  /** A process loses its job. The command that ends the job arrives later, or the process drops the job. */
  | "freeze"
  /** The reply of a command is lost, and the client sends the command again later. */
  | "lose reply"
  /** Code without jobs acquires the lock of a key. */
  | "plain lock"
  /** The lock of a key expires although the process of its job is alive. */
  | "lose lock"
  | "pause"
  | "pause for a while"
  | "cancel"
  | "remove"
  /** An operator retries a job that failed for good. */
  | "retry by hand"
  /** The key may have two jobs at a time, or again one. */
  | "change limit";

export type Left = Partial<Readonly<Record<Event, number>>>;

export interface Bounds {
  readonly rules: Partial<LaneRules>;
  /** The keys of each job, in the order in which the jobs are added. */
  readonly jobs: readonly (readonly string[])[];
  readonly attempts: number;
  /** After how many ms a job that fails is retried. */
  readonly backoffMs: number;
  /** How many jobs may be taken at a time. */
  readonly workers: number;
  /** Whether the scripts acquire the locks of keys. */
  readonly hasLocks: boolean;
  /** How often each event may happen. */
  readonly events: Left;
}

/** How a process leaves its job. */
export type Way = "completes" | "fails" | "fails for good" | "delays itself" | "backs off";

/** The name of a lock without its prefix, and the token in it. */
export interface HeldLock {
  readonly name: string;
  readonly token: string;
  /** Whether the lock has expired, and its holder does not know. */
  readonly isLost?: boolean;
}

/** A process that has a job, that sends a command again, or that holds a lock without a job. */
export interface Process {
  readonly phase: "runs" | "asks for its lock" | "must fail" | "lost its job" | "sends again" | "plain code";
  /** BullMQ's token of the process. */
  readonly token: string;
  /** Empty if the process has no job. */
  readonly id: string;
  readonly job: Job<LaneData> | undefined;
  readonly taken: TakenJob | undefined;
  readonly lock: HeldLock | undefined;
  readonly again?: {
    readonly way: Way | "fetches";
    readonly doesFetch: boolean;
    readonly command: SentCommand;
    readonly sentMs: number;
  };
}

export interface State {
  readonly entries: Entries;
  readonly nowMs: number;
  readonly processes: readonly Process[];
  /** Requests under way that release a lock. */
  readonly releases: readonly HeldLock[];
  readonly spec: Spec;
  readonly left: Left;
}

/** A state that a step changes. */
export class Draft {
  readonly before: RedisFacts;
  readonly nowMs: number;
  passMs = 0;
  processes: readonly Process[];
  releases: readonly HeldLock[];
  spec: Spec;
  /** The result of the step, which becomes a part of its name. */
  result = "";
  violation: string | undefined;
  /** Whether a fetch has found no job. */
  isIdle = false;

  constructor({ entries, nowMs, processes, releases, spec }: State) {
    this.before = new RedisFacts(entries);
    this.nowMs = nowMs;
    this.processes = processes;
    this.releases = releases;
    this.spec = spec;
  }

  replace(old: Process, process: Process): void {
    this.processes = this.processes.map((each) => (each === old ? process : each));
  }

  remove(old: Process): void {
    this.processes = this.processes.filter((each) => each !== old);
  }
}

/** A command that is sent again contains the time of the first sending. All delays of these worlds are shorter. */
const GREATEST_AGE_MS = 500;

/**
 * Returns the text of everything that decides the next steps. Processes are interchangeable, so their tokens are
 * numbered in the order of their jobs.
 */
export function textOf({ entries, nowMs, processes, releases, spec, left }: State): string {
  const ageOf = ({ again }: Process): number => Math.min(nowMs - (again?.sentMs ?? nowMs), GREATEST_AGE_MS);
  const sorted = processes.toSorted((a, b) => (kindOf(a) < kindOf(b) ? -1 : 1));
  const tokens = new Map<string, string>();
  for (const [index, { token, lock, again }] of sorted.entries()) {
    tokens.set(token, `process ${index}`);
    if (lock !== undefined) tokens.set(lock.token, `lock ${index}`);
    if (again !== undefined && again.command.lockToken !== "") tokens.set(again.command.lockToken, `again ${index}`);
  }
  for (const [index, { token }] of releases.entries()) {
    if (!tokens.has(token)) tokens.set(token, `release ${index}`);
  }
  const jobs = Object.values(spec.jobs).map((job) => ({ ...job, dueMs: Math.max(0, job.dueMs - nowMs) }));
  const keys = Object.values(spec.keys).map((key) => ({
    ...key,
    pausedUntilMs: key.pausedUntilMs === UNPAUSED ? "no" : Math.max(0, key.pausedUntilMs - nowMs),
  }));
  const kinds = sorted.map((each) => [kindOf(each), each.lock?.name ?? "", each.lock?.isLost === true, ageOf(each)]);
  const asked = releases.map(({ name, token }) => [name, tokens.get(token)]);
  const facts = JSON.stringify([kinds, asked, jobs, keys, left]);
  const sinceMs = Math.max(0, ...processes.map(ageOf));
  return `${facts}\n${textOfEntries(entries, { nowMs, sinceMs, tokens, greatest: spec.greatest })}`;
}

function kindOf({ phase, id, job, again }: Process): string {
  const late = again === undefined ? "" : `${again.way} ${again.doesFetch}`;
  return JSON.stringify([phase, id, job?.attemptsMade, late]);
}
