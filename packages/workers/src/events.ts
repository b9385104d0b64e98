/**
 * The events of an `ExclusiveWorker` in addition to BullMQ's, which are also published on diagnostics channels
 * (`x.workers.parked`, …).
 */
import { Channels, type LogLines, Traced } from "@x/redlock-core/kit";
import type { QueueListener, WorkerListener } from "./bullmq/public.ts";

interface AboutJob {
  readonly queue: string;
  readonly jobId: string;
  readonly keys: readonly string[];
}

export interface WorkerEvents {
  /** A fetch has parked `jobs` jobs, whose keys were busy, before it found another job or gave up. */
  parked: { readonly queue: string; readonly jobs: number };
  /** A job has received the locks of its keys. */
  locked: AboutJob & { readonly fencingToken: number; readonly waitMs: number };
  /**
   * A job has returned to `delayed`. The reason is `held` if plain code holds the lock, and `backOff` if the processor
   * has called `lock.backOff`. The reason is `unreachable` if too few lock nodes answered, or the lock was lost before
   * the job started.
   */
  yielded: AboutJob & { readonly reason: "held" | "unreachable" | "backOff"; readonly delayMs: number };
  /** A job that had yielded was brought back because its lock was released. */
  woken: AboutJob;
  /**
   * A job's processor has settled and the job's locks were released. `confirmed`: whether this worker held them until
   * the release.
   */
  released: AboutJob & { readonly fencingToken: number; readonly heldMs: number; readonly confirmed: boolean };
  /**
   * A job did not run: the line of its key was full (`backlog`), a newer job is waiting (`superseded`), or its key was
   * busy (`busy`). With `interrupted`, the job's processor has rejected because a newer job is waiting. `error` is then
   * the processor's error, unless this is the reason of the signal. `by` is the ID of the newer job or of the job that
   * has the key.
   */
  dropped: AboutJob & {
    readonly reason: "backlog" | "superseded" | "busy" | "interrupted";
    readonly by: string | undefined;
    readonly error?: unknown;
  };
  /** A job has ended with the outcome that the call of job `by` has set for it. */
  merged: AboutJob & { readonly by: string; readonly outcome: "completed" | "failed" };
  /** A running job has lost BullMQ's lock or a lock of its keys, and its signal was aborted. */
  lost: AboutJob & { readonly error: Error };
  /** A job was not started, because it was fetched too long ago and another worker may have taken it since. */
  abandoned: AboutJob & { readonly ageMs: number };
  /**
   * A key was paused: by a processor that has called `lock.backOff`, or by a call of `ExclusiveQueue.pauseKey`, even if
   * the key was already paused. `untilMs`: when the pause ends by itself, in ms since the epoch. Undefined for a pause
   * without an end. `jobId`: the job whose processor has called `lock.backOff`.
   */
  keyPaused: {
    readonly queue: string;
    readonly key: string;
    readonly reason: string;
    readonly jobId?: string;
    readonly untilMs?: number;
  };
  /**
   * A job waits because its key has reached its rate. `untilMs`: when the key's next job may start, in ms since the
   * epoch by the clock of Redis. Emitted once for each `untilMs`, by the worker that looked at the job.
   */
  keyLimited: { readonly queue: string; readonly key: string; readonly untilMs: number };
}

/**
 * The events of an `ExclusiveQueue` in addition to BullMQ's, for calls of this queue. The events are also published on
 * diagnostics channels (`x.workers.keyResumed`, …).
 */
export interface ExclusiveQueueEvents extends Pick<WorkerEvents, "keyPaused"> {
  /** A key was resumed, even if it was not paused. Not emitted for a pause that ends by itself. */
  keyResumed: { readonly queue: string; readonly key: string };
}

/** The listeners of an `ExclusiveQueue` by event: BullMQ's events and `ExclusiveQueueEvents`. */
// oxlint-disable-next-line typescript/no-explicit-any -- BullMQ's Queue computes the type of its jobs by itself
export type ExclusiveQueueListener = QueueListener<any> & {
  [Event in keyof ExclusiveQueueEvents]: (message: ExclusiveQueueEvents[Event]) => void;
};

/** The listeners of an `ExclusiveWorker` by event: BullMQ's events and `WorkerEvents`. */
export type ExclusiveWorkerListener<Data, Result, Name extends string> = WorkerListener<Data, Result, Name> & {
  [Event in keyof WorkerEvents]: (message: WorkerEvents[Event]) => void;
};

type Events = WorkerEvents & ExclusiveQueueEvents;
type EventFacts = { readonly [Name in keyof Events]: Omit<Events[Name], "queue"> };

/** Emits an event of the queue. `message` is only called if the event has a listener. */
export type EmitEvent = <Name extends keyof Events>(name: Name, message: () => EventFacts[Name]) => void;

/** The part of a worker or queue that its events need. */
interface Emitter {
  readonly name: string;
  listenerCount(name: string): number;
  emit(name: never, message: never): boolean;
}

/** Returns a function that emits events to the listeners of a worker or queue and to the channels' subscribers. */
export function eventEmitterOf(source: Emitter): EmitEvent {
  return (name, message) => {
    const isHeard = source.listenerCount(name) > 0;
    if (!isHeard && !channels.isHeard(name)) return;
    const event = { queue: source.name, ...message() } as Events[typeof name];
    channels.publish(name, () => event as never);
    if (isHeard) source.emit(name as never, event as never);
  };
}

export function aboutJob({ jobId, keys }: Omit<AboutJob, "queue">): Omit<AboutJob, "queue"> {
  return { jobId, keys };
}

/** The messages on channels. `error` also reports the errors of BullMQ. */
interface WorkerMessages extends WorkerEvents, ExclusiveQueueEvents {
  error: { readonly queue: string; readonly error: unknown };
}

const LINES: LogLines<WorkerMessages> = {
  parked: ["debug", "jobs parked, their keys are busy"],
  locked: ["debug", "job has the locks of its keys"],
  yielded: [({ reason }) => (reason === "unreachable" ? "warn" : "debug"), "job yielded, and is tried again later"],
  woken: ["debug", "job woken, the lock it waited for was released"],
  released: ["debug", "job ended, and its locks were released"],
  dropped: ["debug", "job dropped, its key was busy"],
  merged: ["debug", "job merged into the call of another job"],
  lost: ["error", "running job lost a lock"],
  abandoned: ["warn", "job abandoned, it was fetched too long ago"],
  keyPaused: [({ jobId }) => (jobId === undefined ? "info" : "debug"), "key paused"],
  keyResumed: ["info", "key resumed"],
  keyLimited: ["debug", "key has reached its rate"],
  error: ["error", "worker failed, and tries again"],
};

export const channels: Channels<WorkerMessages> = new Channels("x.workers", LINES);

/**
 * Messages of the tracing channel `x.workers:run`. The span of BullMQ's `telemetry` is active during their publication.
 */
export interface WorkerTraces {
  /**
   * One call of a processor. `parkedMs`: the time from when the job was parked, because its key was busy, to the call,
   * by the clocks of the two workers. 0 if the job was not parked.
   */
  run: AboutJob & { readonly fencingToken: number; readonly parkedMs: number };
}

export const traces: { readonly [Call in keyof WorkerTraces]: Traced<WorkerTraces[Call]> } = {
  run: new Traced("x.workers:run"),
};
