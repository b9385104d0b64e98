/**
 * These are the events of an `ExclusiveWorker` beside BullMQ's own, which are also published on channels
 * (`x.workers.parked`, …).
 */
import { Channels, type Known, Traced } from "@x/redlock-core/protocol";
import type { WorkerListener } from "./bullmq/public.ts";

interface AboutJob {
  readonly queue: string;
  readonly jobId: string;
  readonly keys: readonly string[];
}

export interface WorkerEvents {
  /** One fetch parked jobs, whose keys were busy, on its way to another job. */
  parked: { readonly queue: string; readonly jobs: number };
  /** A job got the locks of its keys. */
  locked: AboutJob & { readonly fencingToken: number; readonly waitMs: number };
  /**
   * A job went back to `delayed` because plain code has its lock, because too few nodes answered, or because its
   * processor called `lock.backOff`.
   */
  yielded: AboutJob & { readonly reason: "held" | "unreachable" | "backOff"; readonly delayMs: number };
  /** A job that had yielded was brought back because its lock was released. */
  woken: AboutJob;
  /** A job's processor ended and its locks were released. `confirmed` is true if they were ours until then. */
  released: AboutJob & { readonly fencingToken: number; readonly heldMs: number; readonly confirmed: boolean };
  /**
   * A job did not run: too many wait for its key (`backlog`), a newer one waits (`superseded`), or its key was busy
   * (`busy`). Or it ran, and rejected because a newer one waits (`interrupted`). `error` is what it rejected with, if
   * that was not the reason of its signal. `by` is the job for which it gave way, or that has the key.
   */
  dropped: AboutJob & {
    readonly reason: "backlog" | "superseded" | "busy" | "interrupted";
    readonly by: string | undefined;
    readonly error?: unknown;
  };
  /** A job ended as the call of job `by`, which had it in its batch, has said. */
  merged: AboutJob & { readonly by: string; readonly outcome: "completed" | "failed" };
  /** A running job lost BullMQ's lock or a lock of its keys; its signal was aborted. */
  lost: AboutJob & { readonly error: Error };
  /** A job was not started, because its fetch was too long ago and another worker may have it. */
  stale: AboutJob & { readonly ageMs: number };
  /**
   * An operator paused a key by this worker, or a processor called `lock.backOff`. A pause that ends by itself has
   * `untilMs`, in ms since the epoch.
   */
  keyPaused: {
    readonly queue: string;
    readonly key: string;
    readonly reason: string;
    readonly untilMs?: number;
  };
  /** An operator resumed a key by this worker. It is not told of a pause that ended by itself. */
  keyResumed: { readonly queue: string; readonly key: string };
  /**
   * A job waits because as many of its key have started as its rate allows. `untilMs` is when the next one may, in
   * ms since the epoch by the clock of Redis. It is told once for each such time, by the worker that looked at the job.
   */
  keyLimited: { readonly queue: string; readonly key: string; readonly untilMs: number };
}

/** The listeners of an `ExclusiveWorker`, by the event: BullMQ's, and those of `WorkerEvents`. */
export type ExclusiveWorkerListener<Data, Result, Name extends string> = WorkerListener<Data, Result, Name> & {
  [Event in keyof WorkerEvents]: (message: WorkerEvents[Event]) => void;
};

/** What an event says beside the queue. */
type Facts = { readonly [Name in keyof WorkerEvents]: Omit<WorkerEvents[Name], "queue"> };

/** Tells one event of the queue. `message` is only called if somebody listens. */
export type EmitEvent = <Name extends keyof WorkerEvents>(name: Name, message: () => Facts[Name]) => void;

/** What tells the listeners of a worker. */
interface Emitter {
  readonly name: string;
  listenerCount(name: string): number;
  emit(name: never, message: never): boolean;
}

/** Tells the listeners of a worker, and those of the channels. */
export function eventEmitterOf(worker: Emitter): EmitEvent {
  return (name, message) => {
    const isHeard = worker.listenerCount(name) > 0;
    if (!isHeard && !channels.isHeard(name)) return;
    const event = { queue: worker.name, ...message() } as WorkerEvents[typeof name];
    channels.publish(name, () => event);
    if (isHeard) worker.emit(name as never, event as never);
  };
}

export function aboutJob({ jobId, keys }: Omit<AboutJob, "queue">): Omit<AboutJob, "queue"> {
  return { jobId, keys };
}

const NAMES: Known<WorkerEvents> = {
  parked: true,
  locked: true,
  yielded: true,
  woken: true,
  released: true,
  dropped: true,
  merged: true,
  lost: true,
  stale: true,
  keyPaused: true,
  keyResumed: true,
  keyLimited: true,
};

export const channels: Channels<WorkerEvents> = new Channels("x.workers", NAMES);

/** What the messages of the tracing channel `x.workers:run` have. The span of BullMQ's `telemetry` is active then. */
export interface WorkerTraces {
  /**
   * The processor, from its call to its end. `parkedMs` is from when the job was parked, because its key was busy, to
   * that call, by the clocks of the two workers. It is 0 if its keys were free.
   */
  run: AboutJob & { readonly fencingToken: number; readonly parkedMs: number };
}

export const traces: { readonly [Call in keyof WorkerTraces]: Traced<WorkerTraces[Call]> } = {
  run: new Traced("x.workers:run"),
};
