/**
 * Calls the handlers of one term. A claimed tick waits for earlier ticks and for a slot, then runs.
 *
 * Guaranteed: a handler is called only while the term is current by the clock. After the request to end, no tick waits.
 * If a claim is confirmed later, its tick begins only if it can begin immediately, because no other leader will run the
 * tick.
 *
 * Not guaranteed: that a handler which ignores its signal ends.
 */
import type { Clock } from "@x/redlock-core";
import { type Emitter, linkSignals } from "@x/redlock-core/kit";
import PQueue from "p-queue";
import { traces } from "../kit/diagnostics.ts";
import type { LeaderTerm } from "../leader-term.ts";
import { dateOf } from "../rules/values.ts";
import { aboutTick, type SchedulerEvents, type SkipReason, tellSkipped } from "./events.ts";
import { dataOf } from "./rules/definition.ts";
import type { Trigger } from "./rules/lines.ts";
import type { OverlapDecision } from "./rules/overlap.ts";
import type { NamedTick, Tick } from "./tick.ts";
import type { ScheduleEntry, Track } from "./timetable.ts";

/** A tick that this term has claimed, so that no other leader runs it. */
export interface ClaimedTick extends NamedTick {
  readonly track: Track;
  readonly id: string;
  readonly isCatchup: boolean;
  /** Whether the tick is caught up, or fell due during a catch-up: see overlap.ts. */
  readonly isBacklog: boolean;
  readonly attempt: number;
  readonly delivery: "at-most-once" | "at-least-once";
  /** The order of a `trigger()`, whose tick runs even while the schedule is paused. Undefined for a scheduled tick. */
  readonly trigger: Trigger | undefined;
  readonly lastMs: number;
}

/** A tick that waits for no earlier tick. The run waits for a slot, then calls the handler. */
interface TickRun {
  /** The tick. A later tick may replace it until the handler is called. */
  claimed: ClaimedTick;
  /** Asks the handler to end. Undefined until the handler is called. */
  cancel: ((reason: unknown) => void) | undefined;
}

/** Runs of one schedule's name. */
interface Runs {
  readonly running: Set<TickRun>;
  /** Ticks that begin after the running ticks have ended. */
  readonly queue: ClaimedTick[];
}

interface RunnerParts {
  readonly events: Emitter<SchedulerEvents>;
  readonly term: LeaderTerm;
  readonly clock: Clock;
  readonly concurrency: number;
  /** Schedules that were not removed, by name. */
  readonly entries: { get(name: string): ScheduleEntry | undefined };
  /** Called with each tick that the next leader must not run again. */
  readonly finished: (tick: NamedTick) => void;
  /** Called with each tick that has not begun and that the next leader runs instead. */
  readonly left: (claimed: ClaimedTick) => void;
}

export class Runner {
  readonly #parts: RunnerParts;
  /** Running and waiting ticks, by name. Contains only names with such ticks. */
  readonly #runs = new Map<string, Runs>();
  /** Runs at most `concurrency` handlers at a time, in the order of their arrival. */
  readonly #slots: PQueue;
  #isEnding = false;

  constructor(parts: RunnerParts) {
    this.#parts = parts;
    this.#slots = new PQueue({ concurrency: parts.concurrency });
  }

  /** Returns the runs of a name. A schedule that is removed and added again keeps the runs that have not ended. */
  runsOf(name: string): Runs {
    return this.#runs.get(name) ?? { running: new Set(), queue: [] };
  }

  launch(claimed: ClaimedTick, decision: OverlapDecision): void {
    const { running, queue } = this.runsOf(claimed.name);
    if (this.#isEnding && !this.#canBegin(claimed, decision)) return this.#drop(claimed, "term-over");
    if (decision === "replace") this.#replace(claimed);
    else if (decision === "run" || running.size === 0) this.#start(claimed);
    else queue.push(claimed);
  }

  /** Drops the waiting ticks for which `isMeant` returns true: they are skipped, or left to the next leader. */
  dropWaiting(name: string, reason: SkipReason, isMeant: (claimed: ClaimedTick) => boolean): void {
    const { running, queue } = this.runsOf(name);
    for (const run of running) {
      if (run.cancel !== undefined || !isMeant(run.claimed)) continue;
      running.delete(run);
      this.#drop(run.claimed, reason);
    }
    const dropped = queue.filter(isMeant);
    // The queue must be final before listeners are called, because a listener may drop further ticks.
    queue.splice(0, queue.length, ...queue.filter((claimed) => !isMeant(claimed)));
    for (const claimed of dropped) this.#drop(claimed, reason);
    this.#startNext(name);
  }

  /** Drops all waiting ticks. Later ticks begin only if they can begin immediately. */
  end(): void {
    this.#isEnding = true;
    for (const name of this.#runs.keys()) this.dropWaiting(name, "term-over", () => true);
  }

  /** Resolves when no handler runs or waits. Never rejects. */
  idle(): Promise<void> {
    return this.#slots.onIdle();
  }

  /**
   * A tick that waits for a slot is replaced within its run. With a new run at the end of the line, a tick that is due
   * often would never begin.
   */
  #replace(claimed: ClaimedTick): void {
    const { running, queue } = this.runsOf(claimed.name);
    const kept = [...running].find((run) => run.cancel === undefined);
    this.dropWaiting(claimed.name, "overlap", () => true);
    for (const run of running) run.cancel?.(new DOMException(`a later tick of "${claimed.name}" is due`, "AbortError"));
    if (running.size > 0) queue.push(claimed);
    else if (kept === undefined) this.#start(claimed);
    else {
      kept.claimed = claimed;
      this.#enter(kept);
    }
  }

  #canBegin({ name, delivery }: ClaimedTick, decision: OverlapDecision): boolean {
    const isNext = decision === "run" || this.runsOf(name).running.size === 0;
    return isNext && delivery === "at-most-once" && this.#slots.pending < this.#parts.concurrency;
  }

  /**
   * Skips a tick. A triggered or `at-least-once` tick that the end of the term stopped is left to the next leader
   * instead.
   */
  #drop(claimed: ClaimedTick, reason: SkipReason): void {
    const isLeft = claimed.delivery === "at-least-once" || claimed.trigger !== undefined;
    if (reason === "term-over" && isLeft) return this.#parts.left(claimed);
    tellSkipped(this.#parts.events, claimed, reason);
    this.#ended(claimed);
  }

  #start(claimed: ClaimedTick): void {
    const run: TickRun = { claimed, cancel: undefined };
    this.#enter(run);
    void this.#slots.add(() => this.#execute(run));
  }

  #enter(run: TickRun): void {
    const { name } = run.claimed;
    const runs = this.runsOf(name);
    runs.running.add(run);
    this.#runs.set(name, runs);
  }

  /** Never rejects. */
  async #execute(run: TickRun): Promise<void> {
    const { term, entries } = this.#parts;
    const { claimed } = run;
    const { track } = claimed;
    // After a freeze, this call may end the term and so drop all waiting ticks.
    const isCurrent = term.isCurrent();
    const { running } = this.runsOf(claimed.name);
    if (!running.has(run)) return;
    if (!isCurrent) this.#drop(claimed, "term-over");
    else if (entries.get(claimed.name) !== track.entry) this.#drop(claimed, "removed");
    else if (track.isPaused && claimed.trigger === undefined) this.#drop(claimed, "paused");
    else await this.#callHandler(run);
    running.delete(run);
    this.#startNext(claimed.name);
  }

  #startNext(name: string): void {
    const { running, queue } = this.runsOf(name);
    if (running.size > 0) return;
    const next = queue.shift();
    if (next === undefined) this.#runs.delete(name);
    else this.#start(next);
  }

  async #callHandler(run: TickRun): Promise<void> {
    const { claimed } = run;
    const { term, clock, events } = this.#parts;
    const { handler, options } = claimed.track.entry;
    const linked = linkSignals(term.signal);
    run.cancel = (reason) => linked.abort(reason);
    const cancelTimeout =
      options.maxRunTime === undefined
        ? (): void => undefined
        : clock.schedule(options.maxRunTime, () =>
            linked.abort(
              new DOMException(`tick ${claimed.id} took longer than ${options.maxRunTime} ms`, "TimeoutError"),
            ),
          );
    const tick = this.#tick(claimed, linked.signal);
    const startedMs = clock.monotonicMs();
    events.emit("tickStarted", tick);
    try {
      // Listeners ran since the last check. No other code runs between this check and the call of the handler.
      if (!term.isCurrent()) return this.#drop(claimed, "term-over");
      await (traces.tick.isHeard ? traces.tick.run(aboutTick(tick), async () => await handler(tick)) : handler(tick));
      this.#ended(claimed);
      events.emit("tickCompleted", { tick, tookMs: clock.monotonicMs() - startedMs });
    } catch (error) {
      // A handler that stopped because of the term's end leaves its tick to the next leader.
      if (!term.signal.aborted || linked.signal.reason !== term.signal.reason) this.#ended(claimed);
      events.emit("tickFailed", { tick, tookMs: clock.monotonicMs() - startedMs, error });
    } finally {
      cancelTimeout();
      linked.unlink();
    }
  }

  #tick(claimed: ClaimedTick, signal: AbortSignal): Tick {
    const { term, clock } = this.#parts;
    const { definition } = claimed.track.entry;
    return Object.freeze({
      schedule: claimed.name,
      scheduledAt: dateOf(claimed.atMs),
      firedAt: dateOf(Math.floor(clock.wallMs())),
      id: claimed.id,
      catchup: claimed.isCatchup,
      attempt: claimed.attempt,
      ...(claimed.lastMs === 0 ? {} : { lastRunAt: dateOf(claimed.lastMs) }),
      data: definition === undefined ? undefined : dataOf(definition),
      term,
      fencingToken: term.fencingToken,
      signal,
    });
  }

  #ended(claimed: ClaimedTick): void {
    if (claimed.delivery === "at-least-once") this.#parts.finished(claimed);
  }
}

/** Reports whether a backlog runs or waits. With `catchup: "all"`, a tick that falls due in this time also joins it. */
export function isCatchingUp(runs: Runs): boolean {
  return [...Array.from(runs.running, (run) => run.claimed), ...runs.queue].some((claimed) => claimed.isBacklog);
}
