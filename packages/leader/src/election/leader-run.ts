/**
 * A leader runs its task in each term, and drains it before the term is given back.
 *
 * It is guaranteed that the task never overlaps itself, also when it outlasts its run: the next run waits for its end.
 */
import { abortable, type Deferred, deferred, linkSignals, sleep } from "@x/redlock-core/protocol";
import type { Unsubscribe } from "../events/events.ts";
import { publish } from "../kit/diagnostics.ts";
import type { HeldTerm } from "../term/term.ts";
import type { CandidateRun } from "./candidate-run.ts";
import { type DrainLimit, drainTimer } from "./drain.ts";
import { type LeaderTask, lead } from "./lead.ts";
import { DEFAULT_DRAIN_TIMEOUT_MS, type ResolvedTaskOptions } from "./run-options.ts";
import type { Standing } from "./standing.ts";

/** What the task of `run()` does, also one that outlasted its run. */
type TaskState =
  | { readonly name: "none" }
  | { readonly name: "running"; readonly term: number; readonly ended: Deferred<void>; readonly off: Unsubscribe }
  /** It runs on though its term is over. */
  | { readonly name: "overrun"; readonly term: number; readonly ended: Deferred<void>; readonly sinceMs: number };

const NONE: TaskState = { name: "none" };

export class LeaderRun {
  readonly #standing: Standing;
  readonly #candidate: CandidateRun;
  readonly #drain: DrainLimit;
  /** The failures of the task in a row, which are kept from term to term. */
  readonly #failures: { count: number } = { count: 0 };
  #task: TaskState = NONE;

  constructor(standing: Standing, candidate: CandidateRun, drain: DrainLimit) {
    this.#standing = standing;
    this.#candidate = candidate;
    this.#drain = drain;
  }

  /** The time for which a task has been running without its lease, in ms. */
  get overrunMs(): number {
    return this.#task.name === "overrun" ? this.#standing.clock.monotonicMs() - this.#task.sinceMs : 0;
  }

  /** Campaigns and leads, until `stop` or the caller's signal aborts, or a task has ended that is to be the last. */
  async run(task: LeaderTask, run: ResolvedTaskOptions, stop: AbortSignal): Promise<void> {
    const linked = linkSignals(run.signal, stop);
    const open = this.#standing.whileOpen(linked.signal);
    try {
      if (this.#task.name !== "none") await abortable(this.#task.ended.promise, open.signal);
      await this.#untilAbandonedIsOver(open.signal);
      let next: "again" | "stop" = "again";
      while (next === "again") {
        const term = await this.#candidate.campaign(open.signal);
        next = await this.#lead(term, task, run, linked.signal);
      }
    } catch (error) {
      if (!linked.signal.aborted || error !== linked.signal.reason) throw error;
    } finally {
      open.unlink();
      linked.unlink();
    }
  }

  /** Drains a term from `campaign()`, which its owner resigns. */
  async drainOwned(): Promise<void> {
    const { clock, events, term } = this.#standing;
    if (term === undefined || !term.isCurrent()) return;
    const over = deferred<"over">();
    const off = events.on("lost", () => over.resolve("over"));
    const timer = drainTimer(clock, this.#drain.times(DEFAULT_DRAIN_TIMEOUT_MS));
    timer.start();
    term.beginEnd("stopping");
    const end = await Promise.race([over.promise, timer.isOver]);
    off();
    timer.cancel();
    if (end === "over") {
      await term.finish();
      return;
    }
    term.abandon();
    events.emit("drainTimeout", { term: term.term });
  }

  async #untilAbandonedIsOver(signal: AbortSignal): Promise<void> {
    for (let { term } = this.#standing; term?.isCurrent() === true; { term } = this.#standing)
      await sleep(this.#standing.clock, term.remaining(), signal);
  }

  #lead(term: HeldTerm, task: LeaderTask, run: ResolvedTaskOptions, stop: AbortSignal): Promise<"again" | "stop"> {
    const { clock, events, options } = this.#standing;
    return lead({
      term,
      task,
      run,
      clock,
      cooldown: options.cooldown,
      stop,
      drain: this.#drain.times(run.drainTimeout),
      failures: this.#failures,
      listener: {
        taskStarted: () => {
          const off = events.on("lost", (lost) => this.#onLost(lost.term));
          this.#task = { name: "running", term: term.term, ended: deferred(), off };
        },
        taskEnded: () => this.#onEnded(),
        taskFailed: (error) => events.emit("taskError", { term: term.term, error }),
        drainTimedOut: () => events.emit("drainTimeout", { term: term.term }),
        cool: (ms) => this.#candidate.cool(ms),
      },
    });
  }

  #onLost(term: number): void {
    if (this.#task.name !== "running" || this.#task.term !== term) return;
    const { ended, off } = this.#task;
    off();
    this.#task = { name: "overrun", term, ended, sinceMs: this.#standing.clock.monotonicMs() };
    this.#tellOverrun(term);
  }

  #onEnded(): void {
    const ended = this.#task;
    if (ended.name === "none") return;
    const { overrunMs } = this;
    this.#task = NONE;
    if (ended.name === "running") ended.off();
    ended.ended.resolve();
    if (ended.name === "overrun") this.#tellOverrun(ended.term, overrunMs);
  }

  #tellOverrun(term: number, overrunMs = 0): void {
    const { events, options } = this.#standing;
    publish("x.leader.overrun", () => ({ election: options.name, id: options.id, term, overrunMs }));
    events.emit("overrun", { term, overrunMs });
  }
}
