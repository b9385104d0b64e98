/**
 * A term with a task is drained before it is released, and the task never runs twice at once.
 *
 * The lock is released only after the task has ended. If the task outlasts `drainTimeout`, the lock is never released;
 * it runs out. The function resolves only after the task has ended, or after a stop whose drain timed out. It never
 * rejects.
 */
import type { Clock } from "@x/redlock-core";
import { deferred, onAbort, sleep } from "@x/redlock-core/protocol";
import type { TermLossReason } from "../errors.ts";
import { type LeaderTraces, traces } from "../kit/diagnostics.ts";
import type { HeldTerm, LeaderTerm } from "../term/term.ts";
import { type Cooldown, cooldownMs, hasRecovered } from "../timings.ts";
import { type DrainTimes, drainTimer } from "./drain.ts";
import type { ResolvedTaskOptions } from "./run-options.ts";

export type LeaderTask = (term: LeaderTerm) => unknown;

interface LeadParts {
  readonly term: HeldTerm;
  readonly task: LeaderTask;
  readonly run: ResolvedTaskOptions;
  readonly clock: Clock;
  readonly cooldown: Cooldown;
  /** This signal aborts when the candidate is to stop for good. */
  readonly stop: AbortSignal;
  readonly drain: DrainTimes;
  /** The failures of the task in a row, which are kept from term to term. */
  readonly failures: { count: number };
  readonly listener: LeadListener;
}

interface LeadListener {
  taskStarted(): void;
  taskEnded(): void;
  taskFailed(error: unknown): void;
  drainTimedOut(): void;
  /** Keeps the candidate out for so long before its next campaign. */
  cool(ms: number): void;
}

type TaskEnd = { readonly type: "returned" } | { readonly type: "rejected"; readonly error: unknown };

export async function lead(parts: LeadParts): Promise<"again" | "stop"> {
  const { term, stop } = parts;
  term.adopt();
  if (stop.aborted) term.beginEnd("stopping");
  const untie = onAbort(stop, () => term.beginEnd("stopping"));
  try {
    while (term.isCurrent() && !term.isEnding) {
      const settled = start(parts);
      const startedMs = parts.clock.monotonicMs();
      const end = await endOrTimeout(parts, settled);
      if (end === "timeout") return await outlasted(parts, settled);
      const next = await afterTask(parts, end, parts.clock.monotonicMs() - startedMs);
      if (next !== "restart") return next;
    }
    await term.finish();
    return stop.aborted ? "stop" : "again";
  } finally {
    untie();
  }
}

/** Runs the task, and resolves with how it ended. The promise never rejects. */
async function start({ term, task, listener }: LeadParts): Promise<TaskEnd> {
  listener.taskStarted();
  try {
    await (traces.term.isHeard ? traces.term.run(factsOf(term), async () => await task(term)) : task(term));
    return { type: "returned" };
  } catch (error) {
    return { type: "rejected", error };
  } finally {
    listener.taskEnded();
  }
}

function factsOf({ election, id, term, fencingToken }: LeaderTerm): LeaderTraces["term"] {
  return { election, id, term, fencingToken };
}

/**
 * Waits for the task. It waits no longer than `drainTimeout` after the task was asked to end while the lease is held,
 * or after a stop.
 */
async function endOrTimeout(parts: LeadParts, settled: Promise<TaskEnd>): Promise<TaskEnd | "timeout"> {
  const { term, stop, clock } = parts;
  const timer = drainTimer(clock, parts.drain);
  const startTimer = (): void => {
    if (term.isEnding || stop.aborted) timer.start();
  };
  startTimer();
  const undo = [onAbort(term.signal, startTimer), onAbort(stop, startTimer)];
  try {
    return await Promise.race([settled, timer.isOver]);
  } finally {
    for (const each of undo) each();
    timer.cancel();
  }
}

async function outlasted(parts: LeadParts, settled: Promise<TaskEnd>): Promise<"again" | "stop"> {
  const { term, stop, listener } = parts;
  listener.drainTimedOut();
  term.abandon();
  if (!stop.aborted) {
    const stopped = deferred<void>();
    const untie = onAbort(stop, () => stopped.resolve());
    const hasEnded = await Promise.race([settled, stopped.promise]);
    untie();
    if (hasEnded !== undefined) {
      if (hasEnded.type === "rejected" && !isAbortOf(hasEnded.error, term)) listener.taskFailed(hasEnded.error);
      await term.finish();
    }
  }
  return stop.aborted ? "stop" : "again";
}

async function afterTask(parts: LeadParts, end: TaskEnd, ranMs: number): Promise<"again" | "stop" | "restart"> {
  const { term, run, stop, listener, failures, cooldown } = parts;
  const isFailure = end.type === "rejected" && !isAbortOf(end.error, term);
  if (hasRecovered(cooldown, ranMs)) failures.count = 0;
  if (isFailure) {
    failures.count += 1;
    listener.taskFailed(end.error);
  } else if (end.type === "returned") failures.count = 0;
  if (term.isCurrent() && !term.isEnding) {
    const policy = end.type === "rejected" ? run.onTaskError : run.onTaskEnd;
    if (policy === "restart") {
      await sleep(parts.clock, cooldownMs(cooldown, failures.count), term.signal).catch(() => undefined);
      if (!term.signal.aborted) return "restart";
    } else if (policy === "hold") await untilAborted(term.signal);
    else {
      const reason: TermLossReason = end.type === "rejected" ? "task-failed" : "task-ended";
      term.beginEnd(reason);
      listener.cool(cooldownMs(cooldown, failures.count));
      await term.finish();
      return policy === "stop" ? "stop" : "again";
    }
  }
  if (term.isEnding && term.reason !== "resigned") listener.cool(cooldownMs(cooldown, failures.count));
  await term.finish();
  return stop.aborted ? "stop" : "again";
}

/**
 * Tells whether a task did what it was asked to: it rejected with its signal's reason, or with an `AbortError` after
 * the abort.
 */
function isAbortOf(error: unknown, term: HeldTerm): boolean {
  if (!term.signal.aborted) return false;
  return error === term.signal.reason || (error instanceof Error && error.name === "AbortError");
}

function untilAborted(signal: AbortSignal): Promise<void> {
  const aborted = deferred<void>();
  if (signal.aborted) aborted.resolve();
  else onAbort(signal, () => aborted.resolve());
  return aborted.promise;
}
