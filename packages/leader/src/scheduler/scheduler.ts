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
import {
  callback,
  deferred,
  Emitter,
  inTime,
  integer,
  linkSignals,
  quote,
  Schema,
  type ShapeOf,
  shaped,
  text,
  whenAborted,
} from "@x/redlock-core/kit";
import { protocolOf, redlock } from "@x/redlock-core/protocol";
import { limitDrain } from "../election/drain.ts";
import type { LeaderElection } from "../election/election.ts";
import { DEFAULT_DRAIN_TIMEOUT_MS, STOP, type StopOptions } from "../election/options.ts";
import { ElectionBusyError, ElectionStoppedError } from "../errors.ts";
import type { Unsubscribe } from "../events/events.ts";
import { Listeners } from "../events/listeners.ts";
import { keepAlive } from "../kit/keep-alive.ts";
import type { LeaderTerm } from "../leader-term.ts";
import { Ledger } from "../record/ledger.ts";
import { dateOf, durationOrNoneMs, LEADER, name as NAME } from "../rules/values.ts";
import { publishTicks, SCHEDULER_EVENTS, type SchedulerEvents } from "./events.ts";
import { historyLength, type ListOptions, type ScheduleInfo, ScheduleOperator } from "./operator.ts";
import {
  checkJitter,
  type IntervalOptions,
  moment,
  type ResolvedScheduleOptions,
  resolveIntervalOptions,
  resolveScheduleOptions,
  type ScheduleOptions,
  scheduleName,
  zone,
} from "./options.ts";
import { Recorder } from "./recorder.ts";
import { RegisterStore } from "./register-store.ts";
import {
  boundedCalendar,
  type Calendar,
  cronCalendar,
  everyCalendar,
  type NextTick,
  ownCalendar,
} from "./rules/calendar.ts";
import type { TickRecord } from "./rules/history.ts";
import {
  KIND,
  type Reconciled,
  type ReconcileOptions,
  type ScheduleDefinition,
  ScheduleWriter,
} from "./schedule-writer.ts";
import { SchedulerTerm } from "./scheduler-term.ts";
import type { TickHandler } from "./tick.ts";
import type { Entry } from "./timetable.ts";

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

/** A schedule of a scheduler. */
export interface Schedule {
  readonly name: string;
  /** Returns the first tick after `after`. Null if there is none. */
  next(after: Date): Date | null;
  /**
   * Removes the schedule from this scheduler. Running handlers continue, and waiting ticks are skipped. The stored
   * state remains. The schedule may be added again, here or in a later leader. `catchup` then applies to the ticks in
   * between, and handlers that still run count as runs of the new schedule.
   */
  remove(): void;
}

const ELECTION = shaped<LeaderElection>(
  "a LeaderElection",
  (given) =>
    redlock.accepts(given["redlock"]) &&
    typeof given["name"] === "string" &&
    ["run", "health", "leader"].every((method) => typeof given[method] === "function"),
);

const TERM = shaped<LeaderTerm>(
  "a LeaderTerm",
  ({ election, isCurrent, signal }) =>
    typeof election === "string" && typeof isCurrent === "function" && signal instanceof AbortSignal,
);

const OPTIONS = new Schema({
  election: ELECTION,
  keyPrefix: NAME.optional(),
  timezone: zone.default("UTC"),
  concurrency: integer({ min: 1, unit: "" }).default(100),
  drainTimeout: durationOrNoneMs.default(DEFAULT_DRAIN_TIMEOUT_MS),
  history: historyLength.default(10),
} satisfies ShapeOf<SchedulerOptions>);

const HANDLER = callback<TickHandler>();
const NEXT = callback<NextTick>();
const PERIOD = integer({ min: 1 });
const EXPRESSION = text({ min: 1 });

/** Key prefixes of the schedulers that lead in a term. Each register has one writer. */
const ledTerms = new WeakMap<LeaderTerm, Set<string>>();

export class LeaderScheduler implements AsyncDisposable {
  readonly #options: ReturnType<typeof OPTIONS.resolve>;
  readonly #ledger: Ledger;
  /** Options that all schedules without own options share, because ten thousand schedules may exist. */
  readonly #defaults: ResolvedScheduleOptions;
  readonly #entries = new Map<string, Entry>();
  /** Handlers of schedules as data, by kind. */
  readonly #handlers = new Map<string, TickHandler>();
  readonly #wanted: ScheduleWriter;
  readonly #events: Emitter<SchedulerEvents>;
  readonly #listeners: Listeners<SchedulerEvents>;
  readonly #stop = new AbortController();
  readonly #operator: ScheduleOperator;
  #running: Promise<void> | undefined;
  #leading: { readonly session: SchedulerTerm; readonly ended: Promise<void> } | undefined;
  /** Writes of the last term's history. Undefined if there was no term. */
  #recording: Promise<void> | undefined;

  /** @throws TypeError, RangeError naming option, rule and value */
  constructor(options: SchedulerOptions) {
    this.#options = OPTIONS.resolve(options);
    const { election, timezone, history } = this.#options;
    this.#defaults = resolveScheduleOptions({}, timezone);
    this.#ledger = new Ledger(election.redlock, election.name, LEADER + election.name);
    this.#events = new Emitter<SchedulerEvents>(SCHEDULER_EVENTS);
    this.#listeners = new Listeners({
      events: this.#events,
      subject: `scheduler of election ${quote(election.name)}`,
      failures: {
        tickFailed: ({ tick, error }) => ({
          text: `the handler of ${quote(tick.schedule)} failed`,
          error,
          hasStack: true,
        }),
        error: (error) => ({ text: "a request failed, or a listener threw", error }),
      },
    });
    this.#operator = new ScheduleOperator({
      election,
      entries: this.#entries,
      kept: history,
      store: () => this.#store(),
      runningOf: (name) => this.#leading?.session.runningOf(name),
      report: (error) => this.#report(error),
    });
    this.#wanted = new ScheduleWriter({ election, timezone, entries: this.#entries, store: () => this.#store() });
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
    const resolved = this.#resolve(options);
    const calendar = cronCalendar(EXPRESSION.of("expression", expression), resolved.timezone);
    return this.#add(name, calendar, handler, resolved);
  }

  /**
   * Runs `handler` every `ms`, counted from the Unix epoch plus `offset`, so a failover keeps the phase.
   * @throws TypeError, RangeError for a wrong option, including a `jitter` longer than the period
   */
  every(name: string, ms: number, handler: TickHandler, options: IntervalOptions = {}): Schedule {
    const { offset, options: resolved } = resolveIntervalOptions(options, this.#options.timezone);
    const periodMs = PERIOD.of("ms", ms);
    checkJitter(resolved.jitter, periodMs);
    return this.#add(name, everyCalendar(periodMs, offset), handler, resolved);
  }

  /**
   * Runs `handler` at each time that `next` returns. `next` is called once immediately.
   * @throws the error of `next`, TypeError, RangeError for a wrong option or a used name
   */
  add(name: string, next: NextTick, handler: TickHandler, options?: ScheduleOptions): Schedule {
    scheduleName.of("name", name);
    NEXT.of("next", next);
    const resolved = this.#resolve(options);
    const calendar = ownCalendar(name, next);
    calendar.next(protocolOf(this.#options.election.redlock).clock.wallMs());
    return this.#add(name, calendar, handler, resolved);
  }

  /**
   * Registers the handler of the schedules as data of one kind: see `reconcile`. A leader without a handler leaves the
   * ticks of this kind to a later leader, and reports that (`error`).
   * @throws TypeError, RangeError for a kind that already has a handler
   */
  handle(kind: string, handler: TickHandler): void {
    KIND.of("kind", kind);
    HANDLER.of("handler", handler);
    if (this.#handlers.has(kind)) throw new RangeError(`kind must be new to this scheduler, got ${quote(kind)}`);
    this.#handlers.set(kind, handler);
    this.#leading?.session.handled(kind);
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
    TERM.of("term", term);
    const { election, concurrency, drainTimeout } = this.#options;
    if (term.election !== election.name)
      throw new RangeError(`term must be of election "${election.name}", got "${term.election}"`);
    if (this.#leading !== undefined)
      throw new RangeError("term must be the only one that this scheduler leads, got a second one");
    const prefixes = ledTerms.get(term) ?? new Set();
    if (prefixes.has(this.#prefix))
      throw new RangeError("term must be led by one scheduler at a time with this keyPrefix, got a second one");
    ledTerms.set(term, prefixes.add(this.#prefix));
    const { clock, random } = protocolOf(election.redlock);
    const over = linkSignals(term.signal, this.#stop.signal);
    const session = new SchedulerTerm({
      term,
      store: this.#store(),
      clock,
      random: () => random.fraction(),
      entries: this.#entries,
      handlers: this.#handlers,
      concurrency,
      events: this.#events,
      over: over.signal,
    });
    const recorder = this.#recorderOf(term.term, session);
    const ended = deferred<void>();
    this.#leading = { session, ended: ended.promise };
    const listening = this.#ledger.listen((news) => {
      if (news === "schedules") session.hear();
    });
    listening.catch((error: unknown) => this.#report(error));
    const letGo = keepAlive(clock);
    let disarm = (): void => undefined;
    whenAborted(over.signal, () => {
      disarm = clock.schedule(drainTimeout, letGo);
    });
    try {
      await session.run();
    } finally {
      this.#recording = recorder?.end();
      await listening.then((stop) => stop()).catch(() => undefined);
      prefixes.delete(this.#prefix);
      this.#leading = undefined;
      over.unlink();
      disarm();
      letGo();
      ended.resolve();
    }
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
    await (this.#running ?? this.#handlersEnded(drainTimeout));
    await this.#recording;
  }

  on<Name extends keyof SchedulerEvents>(name: Name, listener: (payload: SchedulerEvents[Name]) => void): Unsubscribe {
    return this.#listeners.on(name, listener);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  #resolve(options: ScheduleOptions | undefined): ResolvedScheduleOptions {
    return options === undefined ? this.#defaults : resolveScheduleOptions(options, this.#options.timezone);
  }

  #add(name: string, calendar: Calendar, handler: TickHandler, options: ResolvedScheduleOptions): Schedule {
    const checked = scheduleName.of("name", name);
    HANDLER.of("handler", handler);
    if (this.#entries.has(checked)) throw new RangeError(`name must be new to this scheduler, got ${quote(checked)}`);
    const bounded = boundedCalendar(calendar, options.startMs, options.endMs);
    const entry: Entry = { name: checked, calendar: bounded, handler, options };
    this.#entries.set(checked, entry);
    this.#leading?.session.codeChanged(checked);
    return {
      name: checked,
      next: (after) => {
        const nextMs = bounded.next(moment.of("after", after).getTime());
        return nextMs === null ? null : dateOf(nextMs);
      },
      remove: () => {
        if (this.#entries.get(checked) !== entry) return;
        this.#entries.delete(checked);
        this.#leading?.session.forget(checked);
        this.#leading?.session.codeChanged(checked);
      },
    };
  }

  /** Waits for the handlers in a term that belongs to another owner or whose lease expires. */
  #handlersEnded(timeoutMs: number = this.#options.drainTimeout): Promise<void> {
    const { clock } = protocolOf(this.#options.election.redlock);
    const ended = this.#leading?.ended ?? Promise.resolve();
    return inTime(clock, ended, { timeoutMs, otherwise: "a handler goes on", keepAlive: true }).catch(() => undefined);
  }

  #recorderOf(term: number, session: SchedulerTerm): Recorder | undefined {
    const { election, history: kept } = this.#options;
    if (kept === 0) return undefined;
    return new Recorder({
      term,
      store: this.#store(),
      clock: protocolOf(election.redlock).clock,
      events: this.#events,
      kept,
      nextOf: (name) => session.nextOf(name),
    });
  }

  get #prefix(): string {
    const { keyPrefix } = this.#options;
    return keyPrefix === undefined ? "" : `${keyPrefix}:`;
  }

  /** The stored state lives longer than the longest catch-up window. */
  #store(): RegisterStore {
    const longestWindowMs = Math.max(0, ...[...this.#entries.values()].map((entry) => entry.options.catchupWindow));
    return new RegisterStore(this.#ledger, this.#prefix, longestWindowMs);
  }

  #report(error: unknown): void {
    this.#events.emit("error", error);
  }
}
