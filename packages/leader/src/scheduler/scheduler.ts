/**
 * Schedules whose ticks run on the leader only, once each, across failovers.
 *
 * Guaranteed, as long as the lock nodes keep their data: with `at-most-once` the handler of a tick is called at most
 * once, whatever crashes. With `at-least-once` a tick that a leader started is run again by the next one, until it is
 * recorded as finished. A tick that nobody could run is caught up by the next leader as `catchup` says.
 *
 * Not guaranteed: that a tick runs at its very moment, or that the effects of a handler happen once. For that, give
 * `tick.id` or `tick.fencingToken` to whatever it writes to.
 */
import {
  callback,
  DAY_MS,
  deferred,
  Emitter,
  inTime,
  integer,
  linkSignals,
  protocolOf,
  quote,
  redlock,
  Schema,
  type ShapeOf,
  shaped,
  text,
  whenAborted,
} from "@x/redlock-core/protocol";
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
import { historyLength, type ListOptions, Operator, type ScheduleInfo } from "./operator.ts";
import {
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
import {
  boundedCalendar,
  type Calendar,
  cronCalendar,
  everyCalendar,
  type NextTick,
  ownCalendar,
} from "./rules/calendar.ts";
import type { TickRecord } from "./rules/history.ts";
import { Session } from "./session.ts";
import { Store } from "./store.ts";
import type { TickHandler } from "./tick.ts";
import type { Entry } from "./timetable.ts";

export interface SchedulerOptions {
  /** Whose leader runs the ticks. */
  readonly election: LeaderElection;
  /** Tells several schedulers of one election apart. Default "". */
  readonly keyPrefix?: string | undefined;
  /** IANA zone of cron expressions. Default "UTC". */
  readonly timezone?: string | undefined;
  /** Handlers that run at once, over all schedules of this process. Default 100. */
  readonly concurrency?: number | undefined;
  /**
   * How long handlers may take to end after the term was asked to, in ms. The lease is renewed meanwhile. Default
   * 30,000.
   */
  readonly drainTimeout?: number | undefined;
  /**
   * The number of ticks of each schedule that are kept on the lock nodes. Each has what became of it and what its
   * handler rejected with, in up to 200 bytes. 0 to 100, default 10.
   */
  readonly history?: number | undefined;
}

/** A schedule that was added. */
export interface Schedule {
  readonly name: string;
  /** The first tick after `after`, or null. */
  next(after: Date): Date | null;
  /**
   * Takes it out of this scheduler: what runs goes on, and what waits is skipped. What is stored of it stays. To ticks
   * that pass until it is added again, here or in a later leader, `catchup` applies. Added again, it takes what still
   * runs for its own.
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

/** The key prefixes of the schedulers that lead in a term: each register has one writer. */
const ledTerms = new WeakMap<LeaderTerm, Set<string>>();

export class LeaderScheduler implements AsyncDisposable {
  readonly #options: ReturnType<typeof OPTIONS.resolve>;
  readonly #ledger: Ledger;
  /** One object for all schedules without options, of which there may be ten thousand. */
  readonly #defaults: ResolvedScheduleOptions;
  readonly #entries = new Map<string, Entry>();
  readonly #events: Emitter<SchedulerEvents>;
  readonly #listeners: Listeners<SchedulerEvents>;
  readonly #stop = new AbortController();
  readonly #operator: Operator;
  #running: Promise<void> | undefined;
  #leading: { readonly session: Session; readonly ended: Promise<void> } | undefined;
  /** What is still written of a term that has ended. */
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
      isLogged: false,
      failures: {
        tickError: ({ tick, error }) => ({
          text: `the handler of ${quote(tick.schedule)} failed`,
          error,
          hasStack: true,
        }),
        error: (error) => ({ text: "a request failed, or a listener threw", error }),
      },
    });
    this.#operator = new Operator({
      election,
      entries: this.#entries,
      kept: history,
      store: () => this.#store(),
      runningOf: (name) => this.#leading?.session.runningOf(name),
      report: (error) => this.#report(error),
    });
    publishTicks(this.#events, { election: election.name, id: election.id });
  }

  /**
   * Runs `handler` at each time of a cron expression in `timezone`. It has 5 fields, or 6 with seconds first, or is
   * `@hourly`, `@daily`, `@weekly`, `@monthly` or `@yearly`.
   *
   * An hour field with `*` or `?` follows real time when the zone changes its clocks. One that names its hours fires
   * each time of the repeated hour once. Those of the skipped hour fire when it ends (on the same day), as one tick.
   * @throws TypeError, RangeError at once for a bad expression, one that never fires, a bad zone or option, or a taken
   * name
   */
  cron(name: string, expression: string, handler: TickHandler, options?: ScheduleOptions): Schedule {
    const resolved = this.#resolve(options);
    const calendar = cronCalendar(EXPRESSION.of("expression", expression), resolved.timezone);
    return this.#add(name, calendar, handler, resolved);
  }

  /**
   * Runs `handler` every `ms`, counted from the Unix epoch plus `offset`: a failover keeps the phase.
   * @throws TypeError, RangeError at once, also for a `jitter` that is longer than the period
   */
  every(name: string, ms: number, handler: TickHandler, options: IntervalOptions = {}): Schedule {
    const { offset, options: resolved } = resolveIntervalOptions(options, this.#options.timezone);
    const periodMs = PERIOD.of("ms", ms);
    if (resolved.jitter > periodMs)
      throw new RangeError(`jitter must be at most the period of ${periodMs} ms, got ${resolved.jitter}`);
    return this.#add(name, everyCalendar(periodMs, offset), handler, resolved);
  }

  /** Runs `handler` by a calendar of your own, which is asked once at once. @throws what it throws then */
  add(name: string, next: NextTick, handler: TickHandler, options?: ScheduleOptions): Schedule {
    scheduleName.of("name", name);
    NEXT.of("next", next);
    const resolved = this.#resolve(options);
    const calendar = ownCalendar(name, next);
    calendar.next(protocolOf(this.#options.election.redlock).clock.wallMs());
    return this.#add(name, calendar, handler, resolved);
  }

  /**
   * Has the leader run a schedule now, also a paused one. The tick's id is its own. A leader that does not have the
   * schedule, as while a new version is deployed, reports that (`error`). The order then waits for one that has it,
   * and is dropped after a day.
   * @throws UnknownScheduleError if neither this process nor the lock nodes know it, QuorumUnreachableError
   */
  async trigger(name: string): Promise<void> {
    await this.#operator.trigger(name);
  }

  /**
   * Lets no leader claim a tick of this schedule until it is resumed. Ticks that pass are not caught up, also not by a
   * leader that was not there meanwhile. What was claimed and waits is skipped when the leader hears of the pause:
   * after a round trip, or after 5 s if the message is lost. What runs goes on, and `trigger` works. Of two calls, also
   * of `resume`, the later one counts, whatever the clocks of their processes say.
   * @throws as `trigger`
   */
  async pause(name: string): Promise<void> {
    await this.#operator.setPaused(name, true);
  }

  /** Ends a pause. @throws as `trigger` */
  async resume(name: string): Promise<void> {
    await this.#operator.setPaused(name, false);
  }

  /** Resolves with this scheduler's schedules as the nodes know them, in any process. @throws QuorumUnreachableError */
  async list(options: ListOptions = {}): Promise<readonly ScheduleInfo[]> {
    return await this.#operator.list(options);
  }

  /**
   * What became of the last ticks of a schedule, the newest first, from any process. It is as long as the option
   * `history` of the leader and of this scheduler allow. What a leader did in its last second before it died may be
   * missing.
   * @throws UnknownScheduleError, QuorumUnreachableError as `trigger`
   */
  async history(name: string): Promise<readonly TickRecord[]> {
    return await this.#operator.history(name);
  }

  /**
   * Takes part in the election from now on, with `election.run()`. Use `lead` instead if the election runs a task of
   * yours.
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
   * Runs ticks for as long as `term` lasts: `election.run((term) => scheduler.lead(term))`. It resolves when no handler
   * runs any more.
   *
   * It keeps the process alive until then, but no longer than `drainTimeout` after the term or this scheduler is asked
   * to end.
   * @throws RangeError for a term of another election, or one that another scheduler with this `keyPrefix` leads
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
    const session = new Session({
      term,
      store: this.#store(),
      clock,
      random: () => random.fraction(),
      entries: this.#entries,
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
   * Ends the ticks here. Resolves when the handlers have ended, or `drainTimeout` (default: that of the constructor)
   * has passed. Ticks that wait are skipped. Those with `at-least-once`, and what was triggered, are left to the next
   * leader.
   *
   * A term from `start()` is asked to end, so that `tick.signal` aborts, and then released. At `drainTimeout` it is
   * left to run out, as by `election.stop()`. One that was given to `lead()` stays its owner's, and the handlers run to
   * their end.
   *
   * Called again it may shorten the time. It never rejects. Do not await it in a handler, since it waits for that
   * handler.
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
    this.#leading?.session.nudge();
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
      },
    };
  }

  /** Waits for the handlers in a term that another owns, or that was left to run out. */
  #handlersEnded(timeoutMs: number = this.#options.drainTimeout): Promise<void> {
    const { clock } = protocolOf(this.#options.election.redlock);
    const ended = this.#leading?.ended ?? Promise.resolve();
    return inTime(clock, ended, { timeoutMs, otherwise: "a handler goes on", keepAlive: true }).catch(() => undefined);
  }

  #recorderOf(term: number, session: Session): Recorder | undefined {
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

  /** State is kept for longer than the longest window, so that it is there when it is needed. */
  #store(): Store {
    const longestWindowMs = Math.max(0, ...[...this.#entries.values()].map((entry) => entry.options.catchupWindow));
    return new Store(this.#ledger, this.#prefix, 30 * DAY_MS + 2 * longestWindowMs);
  }

  #report(error: unknown): void {
    this.#events.emit("error", error);
  }
}
