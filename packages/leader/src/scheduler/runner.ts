/**
 * Calls the handlers of one term: a tick that was claimed waits for those before it and for a place, then runs.
 *
 * Guaranteed: a handler is called only while the term is current by the clock. When the end has come, nothing waits any
 * more. Of the ticks whose claim is answered later, those begin that can at once, since no other leader will run them.
 *
 * Not guaranteed: that a handler which ignores its signal ends.
 */
import type { Clock } from "@x/redlock-core";
import { type Emitter, linkSignals } from "@x/redlock-core/protocol";
import PQueue from "p-queue";
import { traces } from "../kit/diagnostics.ts";
import { dateOf } from "../kit/values.ts";
import type { LeaderTerm } from "../term/term.ts";
import { aboutTick, type SchedulerEvents, type SkipReason, tellSkipped } from "./events.ts";
import type { Request } from "./lines.ts";
import type { OverlapDecision } from "./overlap.ts";
import type { NamedTick, Tick } from "./tick.ts";
import type { Entry, Track } from "./timetable.ts";

/** One run of a handler. */
export interface Job {
  readonly track: Track;
  readonly name: string;
  readonly atMs: number;
  readonly id: string;
  readonly isCatchup: boolean;
  /** It is caught up, or fell due while others were: see overlap.ts. */
  readonly isBacklog: boolean;
  readonly attempt: number;
  readonly delivery: "at-most-once" | "at-least-once";
  /** The order of a `trigger()`, which runs also while the schedule is paused. */
  readonly request: Request | undefined;
  readonly lastMs: number;
}

/** A job that has a place among the handlers, or is in line for one. */
interface Turn {
  /** The job of this turn. Until its handler is called, another may take its place. */
  job: Job;
  /** Asks the handler to end. It is undefined until that is called. */
  cancel: ((reason: unknown) => void) | undefined;
}

/** What runs of one name. */
interface Runs {
  readonly running: Set<Turn>;
  /** These begin when those that run have ended. */
  readonly queue: Job[];
}

interface RunnerParts {
  readonly events: Emitter<SchedulerEvents>;
  readonly term: LeaderTerm;
  readonly clock: Clock;
  readonly concurrency: number;
  /** The schedules that have not been removed. */
  readonly entries: ReadonlyMap<string, Entry>;
  /** Is called with each tick that the next leader must not run again. */
  readonly finished: (tick: NamedTick) => void;
  /** Is called with each tick that has not begun and that the next leader is to run instead. */
  readonly left: (job: Job) => void;
}

export class Runner {
  readonly #parts: RunnerParts;
  /** What runs or waits, by name. A name of which nothing does is not there. */
  readonly #runs = new Map<string, Runs>();
  /** Runs at most `concurrency` handlers at a time, first come first served. */
  readonly #places: PQueue;
  #isEnding = false;

  constructor(parts: RunnerParts) {
    this.#parts = parts;
    this.#places = new PQueue({ concurrency: parts.concurrency });
  }

  /** A schedule that is added again has those of the one that was removed. */
  runsOf(name: string): Runs {
    return this.#runs.get(name) ?? { running: new Set(), queue: [] };
  }

  launch(job: Job, decision: OverlapDecision): void {
    const { running, queue } = this.runsOf(job.name);
    if (this.#isEnding && !this.#canBegin(job, decision)) return this.#drop(job, "term-over");
    if (decision === "replace") this.#replace(job);
    else if (decision === "run" || running.size === 0) this.#start(job);
    else queue.push(job);
  }

  /** Leaves out those ticks that `isMeant` names, of all that wait for others or for a place. */
  dropWaiting(name: string, reason: SkipReason, isMeant: (job: Job) => boolean): void {
    const { running, queue } = this.runsOf(name);
    for (const turn of running) {
      if (turn.cancel !== undefined || !isMeant(turn.job)) continue;
      running.delete(turn);
      this.#drop(turn.job, reason);
    }
    for (const job of queue.splice(0)) {
      if (isMeant(job)) this.#drop(job, reason);
      else queue.push(job);
    }
    this.#startNext(name);
  }

  /** No handler is to be called any more. */
  end(): void {
    this.#isEnding = true;
    for (const name of this.#runs.keys()) this.dropWaiting(name, "term-over", () => true);
  }

  /** Resolves when no handler runs, and none waits. Never rejects. */
  idle(): Promise<void> {
    return this.#places.onIdle();
  }

  /**
   * A tick that waits for a place leaves it to the later one. At the end of the line, ticks that are due often would
   * never begin.
   */
  #replace(job: Job): void {
    const { running, queue } = this.runsOf(job.name);
    const kept = [...running].find((turn) => turn.cancel === undefined);
    this.dropWaiting(job.name, "overlap", () => true);
    for (const turn of running) turn.cancel?.(new DOMException(`a later tick of "${job.name}" is due`, "AbortError"));
    if (running.size > 0) queue.push(job);
    else if (kept === undefined) this.#start(job);
    else {
      kept.job = job;
      this.#enter(kept);
    }
  }

  #canBegin({ name, delivery }: Job, decision: OverlapDecision): boolean {
    const isNext = decision === "run" || this.runsOf(name).running.size === 0;
    return isNext && delivery === "at-most-once" && this.#places.pending < this.#parts.concurrency;
  }

  /** The next leader runs what the end of the term has kept from its turn, if it is at-least-once, or was triggered. */
  #drop(job: Job, reason: SkipReason): void {
    const isLeft = job.delivery === "at-least-once" || job.request !== undefined;
    if (reason === "term-over" && isLeft) return this.#parts.left(job);
    tellSkipped(this.#parts.events, job, reason);
    if (job.delivery === "at-least-once") this.#parts.finished(job);
  }

  #start(job: Job): void {
    const turn: Turn = { job, cancel: undefined };
    this.#enter(turn);
    void this.#places.add(() => this.#execute(turn));
  }

  #enter(turn: Turn): void {
    const { name } = turn.job;
    const runs = this.runsOf(name);
    runs.running.add(turn);
    this.#runs.set(name, runs);
  }

  /** Never rejects. */
  async #execute(turn: Turn): Promise<void> {
    const { term, entries } = this.#parts;
    const { job } = turn;
    const { track } = job;
    // The first who asks after a freeze ends the term, and so drops what waits.
    const isCurrent = term.isCurrent();
    const { running } = this.runsOf(job.name);
    if (!running.has(turn)) return;
    if (!isCurrent) this.#drop(job, "term-over");
    else if (entries.get(job.name) !== track.entry) this.#drop(job, "removed");
    else if (track.isPaused && job.request === undefined) this.#drop(job, "paused");
    else await this.#callHandler(turn);
    running.delete(turn);
    this.#startNext(job.name);
  }

  #startNext(name: string): void {
    const { running, queue } = this.runsOf(name);
    if (running.size > 0) return;
    const next = queue.shift();
    if (next === undefined) this.#runs.delete(name);
    else this.#start(next);
  }

  async #callHandler(turn: Turn): Promise<void> {
    const { job } = turn;
    const { term, clock, events } = this.#parts;
    const { handler, options } = job.track.entry;
    const linked = linkSignals(term.signal);
    turn.cancel = (reason) => linked.abort(reason);
    const cancelTimeout =
      options.timeout === undefined
        ? (): void => undefined
        : clock.schedule(options.timeout, () =>
            linked.abort(new DOMException(`tick ${job.id} took longer than ${options.timeout} ms`, "TimeoutError")),
          );
    const tick = this.#tick(job, linked.signal);
    const startedMs = clock.monotonicMs();
    events.emit("tick", tick);
    try {
      // Listeners ran since the last check. Between this one and the call nothing does.
      if (!term.isCurrent()) return this.#drop(job, "term-over");
      await (traces.tick.isHeard ? traces.tick.run(aboutTick(tick), async () => await handler(tick)) : handler(tick));
      this.#ended(job);
      events.emit("tickDone", { tick, tookMs: clock.monotonicMs() - startedMs });
    } catch (error) {
      // One that gave up because of the end of the term is left to the next leader.
      if (!term.signal.aborted || linked.signal.reason !== term.signal.reason) this.#ended(job);
      events.emit("tickError", { tick, tookMs: clock.monotonicMs() - startedMs, error });
    } finally {
      cancelTimeout();
      linked.unlink();
    }
  }

  #tick(job: Job, signal: AbortSignal): Tick {
    const { term, clock } = this.#parts;
    return Object.freeze({
      schedule: job.name,
      scheduledAt: dateOf(job.atMs),
      firedAt: dateOf(Math.floor(clock.wallMs())),
      id: job.id,
      catchup: job.isCatchup,
      attempt: job.attempt,
      ...(job.lastMs === 0 ? {} : { lastRunAt: dateOf(job.lastMs) }),
      term,
      fencingToken: term.fencingToken,
      signal,
    });
  }

  #ended(job: Job): void {
    if (job.delivery === "at-least-once") this.#parts.finished(job);
  }
}

/** Whether a backlog runs or waits. With `catchup: "all"` a tick that falls due meanwhile is caught up, too. */
export function isCatchingUp(runs: Runs): boolean {
  return [...Array.from(runs.running, (turn) => turn.job), ...runs.queue].some((job) => job.isBacklog);
}
