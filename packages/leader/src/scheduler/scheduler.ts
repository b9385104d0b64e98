/**
 * Schedules whose ticks run only on the leader, each tick once, across failovers.
 *
 * Guaranteed, as long as the lock nodes keep their data: with `at-most-once`, the handler of a tick is called at most
 * once, whatever crashes. With `at-least-once`, each next leader runs a started tick again until the tick is recorded
 * as finished. If no leader could run a tick, the next leader catches up as `catchup` says.
 *
 * Not guaranteed: that a tick runs exactly on time, or that the effects of a handler happen once. For effects that
 * happen once, pass `tick.id` or `tick.fencingToken` to the store.
 */
import { Emitter, integer, Schema, type ShapeOf, shaped } from "@x/redlock-core/kit";
import { protocolOf, redlock } from "@x/redlock-core/protocol";
import { limitDrain } from "../election/drain.ts";
import type { LeaderElection } from "../election/election.ts";
import { DEFAULT_DRAIN_TIMEOUT_MS, STOP, type StopOptions } from "../election/options.ts";
import { ElectionBusyError, ElectionStoppedError } from "../errors.ts";
import type { Unsubscribe } from "../events/events.ts";
import type { Listeners } from "../events/listeners.ts";
import type { LeaderTerm } from "../leader-term.ts";
import { Ledger } from "../record/ledger.ts";
import { durationOrNoneMs, LEADER, name as NAME } from "../rules/values.ts";
import { CodeSchedules, type Schedule } from "./code-schedules.ts";
import { publishTicks, SCHEDULER_EVENTS, type SchedulerEvents, schedulerListeners } from "./events.ts";
import { Leading } from "./leading.ts";
import { historyLength, type ListOptions, type ScheduleInfo, ScheduleOperator } from "./operator.ts";
import { type IntervalOptions, type ScheduleOptions, zone } from "./options.ts";
import { RegisterStore } from "./register-store.ts";
import type { NextTick } from "./rules/calendar.ts";
import type { TickRecord } from "./rules/history.ts";
import { type Reconciled, type ReconcileOptions, type ScheduleDefinition, ScheduleWriter } from "./schedule-writer.ts";
import type { TickHandler } from "./tick.ts";

export interface SchedulerOptions {
  /** The election. Its leader runs the ticks. */
  readonly election: LeaderElection;
  /** Prefix that separates several schedulers of one election, of 1 to 4,096 characters. Default: none. */
  readonly keyPrefix?: string | undefined;
  /** IANA time zone of cron expressions. Default "UTC". */
  readonly timezone?: string | undefined;
  /** The greatest number of handlers that run at the same time, over all schedules of this process. Default 100. */
  readonly concurrency?: number | undefined;
  /**
   * The time that handlers may take to end after the term was asked to end, in ms. The lease is renewed for this time.
   * Default 30,000.
   */
  readonly drainTimeout?: number | undefined;
  /**
   * The number of past ticks that the lock nodes keep for each schedule. A tick's entry contains its outcome and error,
   * in up to 200 bytes. 0 to 100, default 10.
   */
  readonly history?: number | undefined;
}

const ELECTION = shaped<LeaderElection>(
  "a LeaderElection",
  (given) =>
    redlock.accepts(given["redlock"]) &&
    typeof given["name"] === "string" &&
    ["run", "health", "leader"].every((method) => typeof given[method] === "function"),
);

const OPTIONS = new Schema({
  election: ELECTION,
  keyPrefix: NAME.optional(),
  timezone: zone.default("UTC"),
  concurrency: integer({ min: 1, unit: "" }).default(100),
  drainTimeout: durationOrNoneMs.default(DEFAULT_DRAIN_TIMEOUT_MS),
  history: historyLength.default(10),
} satisfies ShapeOf<SchedulerOptions>);

export class LeaderScheduler implements AsyncDisposable {
  readonly #options: ReturnType<typeof OPTIONS.resolve>;
  /** The schedules in the code of this process. */
  readonly #code: CodeSchedules;
  readonly #wanted: ScheduleWriter;
  readonly #operator: ScheduleOperator;
  readonly #leading: Leading;
  readonly #events: Emitter<SchedulerEvents>;
  readonly #listeners: Listeners<SchedulerEvents>;
  readonly #stop = new AbortController();
  #running: Promise<void> | undefined;

  /** @throws TypeError, RangeError naming option, rule and value */
  constructor(options: SchedulerOptions) {
    this.#options = OPTIONS.resolve(options);
    const { election, timezone, history, keyPrefix } = this.#options;
    const prefix = keyPrefix === undefined ? "" : `${keyPrefix}:`;
    const ledger = new Ledger(election.redlock, election.name, LEADER + election.name);
    const code = new CodeSchedules({
      clock: protocolOf(election.redlock).clock,
      timezone,
      onAdded: (name) => this.#leading.session?.codeChanged(name),
      onRemoved: (name) => {
        this.#leading.session?.forget(name);
        this.#leading.session?.codeChanged(name);
      },
      onHandler: (kind) => this.#leading.session?.handled(kind),
    });
    // The stored state lives longer than the longest catch-up window.
    const store = (): RegisterStore => new RegisterStore(ledger, prefix, code.longestWindowMs);
    this.#events = new Emitter<SchedulerEvents>(SCHEDULER_EVENTS);
    this.#listeners = schedulerListeners(this.#events, election.name);
    const { entries } = code;
    this.#code = code;
    this.#operator = new ScheduleOperator({
      election,
      entries,
      kept: history,
      store,
      runningOf: (name) => this.#leading.session?.runningOf(name),
      report: (error) => this.#report(error),
    });
    this.#wanted = new ScheduleWriter({ election, timezone, entries, store });
    this.#leading = new Leading({
      ...this.#options,
      kept: history,
      prefix,
      code,
      ledger,
      events: this.#events,
      stopped: this.#stop.signal,
      store,
    });
    publishTicks(this.#events, { election: election.name, candidate: election.id });
  }

  /**
   * Runs `handler` at each time of a cron expression in `timezone`. The expression has 5 fields, or 6 with seconds
   * first, or is `@hourly`, `@daily`, `@weekly`, `@monthly` or `@yearly`.
   *
   * An hour field with `*` or `?` follows real time when the zone changes its clocks. An hour field with named hours
   * fires each time of the repeated hour once. Times in the skipped hour fire as one tick when the hour ends (on the
   * same day).
   * @throws TypeError, RangeError for a wrong expression, zone or option, an expression that never fires, or a used
   * name
   */
  cron(name: string, expression: string, handler: TickHandler, options?: ScheduleOptions): Schedule {
    return this.#code.cron(name, expression, handler, options);
  }

  /**
   * Runs `handler` every `ms`, counted from the Unix epoch plus `offset`, so a failover keeps the phase.
   * @throws TypeError, RangeError for a wrong option, including a `jitter` longer than the period
   */
  every(name: string, ms: number, handler: TickHandler, options: IntervalOptions = {}): Schedule {
    return this.#code.every(name, ms, handler, options);
  }

  /**
   * Runs `handler` at each time that `next` returns. `next` is called once immediately.
   * @throws the error of `next`, TypeError, RangeError for a wrong option or a used name
   */
  add(name: string, next: NextTick, handler: TickHandler, options?: ScheduleOptions): Schedule {
    return this.#code.own(name, next, handler, options);
  }

  /**
   * Registers the handler of the schedules as data of one kind: see `reconcile`. A leader without a handler leaves the
   * ticks of this kind to a later leader, and reports that (`error`).
   * @throws TypeError, RangeError for a kind that already has a handler
   */
  handle(kind: string, handler: TickHandler): void {
    this.#code.handle(kind, handler);
  }

  /**
   * Makes `wanted` the whole set of schedules as data, for instance the rows of a table. Can be called in any process,
   * even while nobody leads. Resolves when a quorum of lock nodes has the set. The leader follows after a round trip,
   * and every later leader has the set.
   *
   * The set is written as a whole or not at all. The set of the later call wins, unless `revision` decides. Schedules
   * in code are not affected. An unchanged schedule keeps its state, even if its data or options change. If its times
   * change, ticks count from the time of the call.
   * @throws TypeError, RangeError naming the schedule, rule and value, before anything is sent; QuorumUnreachableError
   */
  async reconcile(wanted: readonly ScheduleDefinition[], options: ReconcileOptions = {}): Promise<Reconciled> {
    return await this.#wanted.reconcile(wanted, options);
  }

  /**
   * Adds one schedule as data, or replaces the one of this name. Resolves when a quorum of lock nodes has the schedule.
   * The later of two calls of `upsert`, `remove` and `reconcile` wins.
   * @throws as `reconcile`
   */
  async upsert(name: string, definition: Omit<ScheduleDefinition, "name">): Promise<"added" | "changed" | "unchanged"> {
    return await this.#wanted.upsert(name, definition);
  }

  /**
   * Removes one schedule as data, with its pause. Waiting ticks are skipped, and running handlers continue. Resolves
   * with false if there is no such schedule.
   * @throws RangeError for a schedule in the code of this process, QuorumUnreachableError
   */
  async remove(name: string): Promise<boolean> {
    return await this.#wanted.remove(name);
  }

  /**
   * Returns the next `count` ticks of a schedule, in any process. `count` is 1 to 1,000. The list is shorter if the
   * schedule ends.
   * @throws UnknownScheduleError for a schedule that is neither stored nor in the code of this process,
   * QuorumUnreachableError
   */
  async preview(name: string, count: number): Promise<readonly Date[]> {
    return await this.#wanted.preview(name, count);
  }

  /**
   * Makes the leader run a schedule now, even a paused one. The tick has its own ID. If the leader does not have the
   * schedule, for instance during a deployment, the leader emits an `error` event. The order then waits for a leader
   * with the schedule, and expires after a day.
   * @throws UnknownScheduleError if neither this process nor the lock nodes know it, QuorumUnreachableError
   */
  async trigger(name: string): Promise<void> {
    await this.#operator.trigger(name);
  }

  /**
   * Pauses a schedule until it is resumed: no leader claims a tick. Ticks of this time are not caught up, not even by a
   * later leader. Waiting ticks are skipped when the leader receives the order: after a round trip, or after 5 s if the
   * message is lost. Running handlers continue, and `trigger` works. The later of two calls of `pause` or `resume`
   * wins, whatever the clocks of their processes show.
   * @throws as `trigger`
   */
  async pause(name: string): Promise<void> {
    await this.#operator.setPaused(name, true);
  }

  /** Ends a pause. @throws as `trigger` */
  async resume(name: string): Promise<void> {
    await this.#operator.setPaused(name, false);
  }

  /** Lists this scheduler's schedules with their state on the nodes, in any process. @throws QuorumUnreachableError */
  async list(options: ListOptions = {}): Promise<readonly ScheduleInfo[]> {
    return await this.#operator.list(options);
  }

  /**
   * Returns the outcomes of a schedule's last ticks, the newest first, in any process. The length is limited by the
   * option `history` of the leader and of this scheduler. Outcomes of the last second before a leader died may be
   * missing.
   * @throws UnknownScheduleError, QuorumUnreachableError as `trigger`
   */
  async history(name: string): Promise<readonly TickRecord[]> {
    return await this.#operator.history(name);
  }

  /**
   * Takes part in the election, with `election.run()`. Use `lead` instead if the election runs a task of the user.
   * @throws ElectionBusyError, ElectionStoppedError
   */
  start(): void {
    const { election, drainTimeout } = this.#options;
    if (this.#stop.signal.aborted) throw new ElectionStoppedError(election.name);
    if (this.#running !== undefined) return;
    const { running, state } = election.health();
    if (state === "stopped") throw new ElectionStoppedError(election.name);
    if (running || state !== "idle") throw new ElectionBusyError(election.name, running ? "running" : state);
    this.#running = election
      .run((term) => this.lead(term), { signal: this.#stop.signal, drainTimeout })
      .catch((error: unknown) => this.#report(error))
      .finally(() => {
        this.#running = undefined;
      });
  }

  /**
   * Runs ticks for as long as `term` lasts: `election.run((term) => scheduler.lead(term))`. Resolves when no handler
   * runs any more.
   *
   * The call keeps the process alive until then, but no longer than `drainTimeout` after the term or this scheduler is
   * asked to end.
   * @throws RangeError for a term of another election, for a term that another scheduler with this `keyPrefix` leads,
   * or if this scheduler already leads a term
   */
  async lead(term: LeaderTerm): Promise<void> {
    await this.#leading.lead(term);
  }

  /**
   * Ends the ticks in this process. Resolves when the handlers have ended, or after `drainTimeout` (default: the
   * constructor's option). Waiting ticks are skipped. Triggered ticks and `at-least-once` ticks are left to the next
   * leader.
   *
   * A term from `start()` is asked to end, so that `tick.signal` aborts, and then released. If handlers outlast
   * `drainTimeout`, its lease expires instead, as with `election.stop()`. A term that was passed to `lead()` still
   * belongs to its owner, and the handlers run to their end.
   *
   * A second call may shorten the time. Never rejects. Do not await the call in a handler, because the call waits for
   * the handler.
   */
  async stop(options: StopOptions = {}): Promise<void> {
    const { election } = this.#options;
    const { drainTimeout } = STOP.resolve(options);
    if (this.#running !== undefined && drainTimeout !== undefined) limitDrain(election, drainTimeout);
    this.#stop.abort(new ElectionStoppedError(election.name));
    await (this.#running ?? this.#leading.handlersEnded(drainTimeout));
    await this.#leading.recordingEnded();
  }

  on<Name extends keyof SchedulerEvents>(name: Name, listener: (payload: SchedulerEvents[Name]) => void): Unsubscribe {
    return this.#listeners.on(name, listener);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  #report(error: unknown): void {
    this.#events.emit("error", error);
  }
}
