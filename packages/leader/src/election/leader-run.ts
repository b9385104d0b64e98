/**
 * A leader runs its task in each term, and drains the task before the lock is released.
 *
 * Guaranteed: the lock is released only after the task has ended. If the task outlasts `drainTimeout`, the lock expires
 * instead. Two runs of the task never overlap, even if the first run outlasts its `run()`: the next run waits for the
 * end of the first.
 */
import { abortable, deferred, linkSignals, onAbort, sleep } from "@x/redlock-core/kit";
import { traces } from "../kit/diagnostics.ts";
import type { LeaderTerm } from "../leader-term.ts";
import { cooldownMs, hasRecovered } from "../rules/timings.ts";
import type { Standing } from "../term/standing.ts";
import type { HeldTerm } from "../term/term.ts";
import type { CandidateRun } from "./candidate-run.ts";
import { DrainLimit } from "./drain.ts";
import { DEFAULT_DRAIN_TIMEOUT_MS, type ResolvedTaskOptions } from "./options.ts";

export type LeaderTask = (term: LeaderTerm) => unknown;

interface Assignment {
  readonly task: LeaderTask;
  readonly options: ResolvedTaskOptions;
  /** Aborts when the candidate must stop for good. */
  readonly stop: AbortSignal;
}

/** State of the task of `run()`, including a task that outlasted its `run()`. */
type TaskState =
  | { readonly name: "none" }
  | { readonly name: "running"; readonly ended: Promise<void> }
  /** The task still runs although its term is over. */
  | { readonly name: "overrun"; readonly ended: Promise<void>; readonly sinceMs: number };

interface Rejection {
  readonly type: "rejected";
  readonly error: unknown;
}

type TaskEnd = { readonly type: "returned" } | Rejection;

/** The step after a run of the task. */
type Next =
  /** The task runs again, if the term continues. */
  | "restart"
  /** The term ends and the lock is released. */
  | "resign"
  /** The same, and this term is the last. */
  | "stop"
  /** The task outlasted a stop, so the lease expires while the task runs. */
  | "leave";

const NONE: TaskState = { name: "none" };

export class LeaderRun {
  readonly #standing: Standing<HeldTerm>;
  readonly #candidate: CandidateRun;
  readonly #drain: DrainLimit;
  /** Number of failures of the task in a row, over all terms. */
  #failures = 0;
  #task: TaskState = NONE;

  constructor(standing: Standing<HeldTerm>, candidate: CandidateRun) {
    this.#standing = standing;
    this.#candidate = candidate;
    this.#drain = new DrainLimit(standing.clock);
  }

  /** The time for which a task has been running without its lease, in ms. */
  get overrunMs(): number {
    return this.#task.name === "overrun" ? this.#standing.clock.monotonicMs() - this.#task.sinceMs : 0;
  }

  /** Limits the wait for work that was asked to end. The limit of a task ends with its `run()`. */
  limitDrain(timeoutMs: number): void {
    this.#drain.set(timeoutMs);
  }

  /** Campaigns and leads until `stop` or the caller's signal aborts, or until a task ends with the policy `stop`. */
  async run(task: LeaderTask, options: ResolvedTaskOptions, stop: AbortSignal): Promise<void> {
    const linked = linkSignals(options.signal, stop);
    const open = this.#standing.whileOpen(linked.signal);
    try {
      if (this.#task.name !== "none") await abortable(this.#task.ended, open.signal);
      await this.#untilAbandonedIsOver(open.signal);
      let isLast = false;
      while (!isLast) {
        const term = await this.#candidate.campaign(open.signal);
        isLast = await this.#lead(term, { task, options, stop: linked.signal });
      }
    } catch (error) {
      if (!linked.signal.aborted || error !== linked.signal.reason) throw error;
    } finally {
      this.#drain.set(undefined);
      open.unlink();
      linked.unlink();
    }
  }

  /** Asks the owner of a term from `campaign()` to end, and waits until the owner resigns. */
  async drainOwned(): Promise<void> {
    const { events, term } = this.#standing;
    if (term === undefined || !term.isCurrent()) return;
    const ended = deferred<"over" | "timeout">();
    const off = events.on("ended", () => ended.resolve("over"));
    const cancel = this.#drain.start(DEFAULT_DRAIN_TIMEOUT_MS, () => ended.resolve("timeout"));
    term.beginEnd("stopping");
    const end = await ended.promise;
    off();
    cancel();
    if (end === "over") await term.finish();
    else this.#abandon(term);
  }

  async #untilAbandonedIsOver(signal: AbortSignal): Promise<void> {
    for (let { term } = this.#standing; term?.isCurrent() === true; { term } = this.#standing)
      await sleep(this.#standing.clock, term.remaining(), signal);
  }

  /**
   * Leads for one term. Resolves after the task has ended, or after a stop whose drain timed out. True for the last
   * term.
   */
  async #lead(term: HeldTerm, work: Assignment): Promise<boolean> {
    const { cooldown } = this.#standing.options;
    const { stop } = work;
    const end = (): void => term.beginEnd("stopping");
    term.adopt();
    if (stop.aborted) end();
    const untie = onAbort(stop, end);
    try {
      let next: Next = "restart";
      while (next === "restart" && term.isCurrent() && term.status !== "ending") next = await this.#perform(term, work);
      if (term.status === "ending" && term.reason !== "resigned")
        this.#candidate.cool(cooldownMs(cooldown, this.#failures));
      if (next !== "leave") await term.finish();
      return next === "stop" || stop.aborted;
    } finally {
      untie();
    }
  }

  async #perform(term: HeldTerm, work: Assignment): Promise<Next> {
    const { clock, events, options } = this.#standing;
    const startedMs = clock.monotonicMs();
    const settled = this.#start(term, work.task);
    const end = await this.#endOrTimeout(term, work, settled);
    if (end === "timeout") return await this.#outlasted(term, work, settled);
    if (end.type === "returned" || hasRecovered(options.cooldown, clock.monotonicMs() - startedMs)) this.#failures = 0;
    if (isFailure(term, end)) {
      this.#failures += 1;
      events.emit("taskFailed", { term: term.term, error: end.error });
    }
    if (!term.isCurrent() || term.status === "ending") return "resign";
    const isReturn = end.type === "returned";
    const policy = isReturn ? work.options.onTaskEnd : work.options.onTaskError;
    if (policy === "restart") {
      await sleep(clock, cooldownMs(options.cooldown, this.#failures), term.signal).catch(() => undefined);
      return "restart";
    }
    if (policy === "hold") await new Promise<void>((resolve) => onAbort(term.signal, resolve));
    term.beginEnd(isReturn ? "task-ended" : "task-failed");
    return policy === "stop" ? "stop" : "resign";
  }

  /** Runs the task, and resolves with its outcome. Never rejects. */
  async #start(term: HeldTerm, task: LeaderTask): Promise<TaskEnd> {
    const { clock, events } = this.#standing;
    const { election, id: candidate, fencingToken } = term;
    const ended = deferred<void>();
    this.#task = { name: "running", ended: ended.promise };
    const off = events.on("ended", () => {
      if (this.#task.name !== "running") return;
      this.#task = { name: "overrun", ended: ended.promise, sinceMs: clock.monotonicMs() };
      this.#tellOverrun(term, 0);
    });
    try {
      const facts = { election, candidate, term: term.term, fencingToken };
      await (traces.term.isHeard ? traces.term.run(facts, async () => await task(term)) : task(term));
      return { type: "returned" };
    } catch (error) {
      return { type: "rejected", error };
    } finally {
      off();
      ended.resolve();
      this.#onEnded(term);
    }
  }

  /**
   * Waits for the task. Resolves with `timeout` if the task runs for `drainTimeout` after a stop, or after it was asked
   * to end while the lease is held.
   */
  async #endOrTimeout(
    term: HeldTerm,
    { options, stop }: Assignment,
    settled: Promise<TaskEnd>,
  ): Promise<TaskEnd | "timeout"> {
    const late = deferred<"timeout">();
    let cancel: (() => void) | undefined;
    const startTimer = (): void => {
      if (term.status === "ending" || stop.aborted)
        cancel ??= this.#drain.start(options.drainTimeout, () => late.resolve("timeout"));
    };
    startTimer();
    const undo = [onAbort(term.signal, startTimer), onAbort(stop, startTimer)];
    try {
      return await Promise.race([settled, late.promise]);
    } finally {
      for (const each of undo) each();
      cancel?.();
    }
  }

  async #outlasted(term: HeldTerm, { stop }: Assignment, settled: Promise<TaskEnd>): Promise<Next> {
    this.#abandon(term);
    const end = await abortable(settled, stop).catch(() => undefined);
    if (end === undefined) return "leave";
    if (isFailure(term, end)) this.#standing.events.emit("taskFailed", { term: term.term, error: end.error });
    return "resign";
  }

  #abandon(term: HeldTerm): void {
    term.abandon();
    this.#standing.events.emit("drainTimedOut", { term: term.term });
  }

  #onEnded(term: HeldTerm): void {
    const { overrunMs } = this;
    const { name } = this.#task;
    this.#task = NONE;
    if (name === "overrun") this.#tellOverrun(term, overrunMs);
  }

  #tellOverrun({ term }: HeldTerm, overrunMs: number): void {
    this.#standing.events.emit("overrun", { term, overrunMs });
  }
}

/**
 * Reports whether the task failed. After an abort, a task that rejects with its signal's reason or with an `AbortError`
 * has not failed.
 */
function isFailure({ signal }: HeldTerm, end: TaskEnd): end is Rejection {
  if (end.type === "returned") return false;
  const { error } = end;
  return !signal.aborted || (error !== signal.reason && !(error instanceof Error && error.name === "AbortError"));
}
