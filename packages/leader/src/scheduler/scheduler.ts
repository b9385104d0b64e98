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
  boolean,
  callback,
  DAY_MS,
  deferred,
  Emitter,
  integer,
  protocolOf,
  quote,
  redlock,
  Schema,
  type ShapeOf,
  shaped,
  text,
} from "@x/redlock-core/protocol";
import type { LeaderElection } from "../election/election.ts";
import { DEFAULT_DRAIN_TIMEOUT_MS, STOP, type StopOptions } from "../election/run-options.ts";
import { ElectionBusyError, ElectionStoppedError, UnknownScheduleError } from "../errors.ts";
import type { Unsubscribe } from "../events/events.ts";
import { durationOrNoneMs, name as NAME } from "../kit/checks.ts";
import { dateOf } from "../kit/date.ts";
import { Slice } from "../kit/slice.ts";
import { Ledger } from "../record/ledger.ts";
import type { LeaderInfo } from "../record/record.ts";
import type { LeaderTerm } from "../term/term.ts";
import { boundedCalendar, type Calendar, cronCalendar, everyCalendar, type NextTick, ownCalendar } from "./calendar.ts";
import type { Entry } from "./entry.ts";
import { SCHEDULER_EVENTS, type SchedulerEvents } from "./events.ts";
import { newestIn, pastOf, recordOf, type TickRecord } from "./history.ts";
import { isLater, NOTE, notedTick, PAUSE, pauseLine, pauseOf, REQUEST, requestLine, stateOf } from "./lines.ts";
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
import { publishTicks } from "./report.ts";
import { Session } from "./session.ts";
import { newestOf, Store } from "./store.ts";
import type { TickHandler } from "./tick.ts";

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
   * So many ticks of each schedule are kept on the lock nodes, with what became of them and what a handler rejected
   * with. They take up to 200 bytes each. 0 to 100, default 10.
   */
  readonly history?: number | undefined;
}

/** A schedule that was added. */
export interface Schedule {
  readonly name: string;
  /** The first tick after `after`, or null. */
  next(after: Date): Date | null;
  /**
   * Takes it out of this scheduler: what runs goes on, and what waits for its turn is skipped. What is stored of it
   * stays. To ticks that pass until it is added again, here or in a later leader, `catchup` applies. Added again, it
   * takes what still runs for its own.
   */
  remove(): void;
}

export interface ScheduleInfo {
  readonly name: string;
  /** Of a schedule that this process does not have: as its last leader saw it, if it writes a history. */
  readonly next: Date | null;
  /** The last tick that ran, or was about to. */
  readonly last: Date | null;
  /** What became of the newest tick in its history; null: there is none. */
  readonly lastTick: TickRecord | null;
  /** What became of its last ticks, the newest first, as many as `list` was asked for and the nodes keep. */
  readonly history: readonly TickRecord[];
  /** Ticks given up so far. */
  readonly missed: number;
  readonly paused: boolean;
  /**
   * How many runs are under way, or wait for a place. If this process leads, they are its own, also those of a schedule
   * of this name that was removed. Else they are those with `at-least-once`, which are recorded on the nodes.
   */
  readonly running: number;
  /** Who runs the ticks now. */
  readonly owner: LeaderInfo | null;
}

export interface ListOptions {
  /** Also the schedules that this process does not have, of which the nodes keep something. Default false. */
  readonly all?: boolean | undefined;
  /**
   * So many of the last ticks of each schedule are told, too, as far as they are kept. It takes one more request per
   * node for each hundred schedules. 0 to 100, default 0.
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

const TERM = shaped<LeaderTerm>(
  "a LeaderTerm",
  ({ election, isCurrent, signal }) =>
    typeof election === "string" && typeof isCurrent === "function" && signal instanceof AbortSignal,
);

const historyLength = integer({ min: 0, max: 100, unit: "" });

const OPTIONS = new Schema({
  election: ELECTION,
  keyPrefix: NAME.optional(),
  timezone: zone.default("UTC"),
  concurrency: integer({ min: 1, unit: "" }).default(100),
  drainTimeout: durationOrNoneMs.default(DEFAULT_DRAIN_TIMEOUT_MS),
  history: historyLength.default(10),
} satisfies ShapeOf<SchedulerOptions>);

const LIST = new Schema({
  all: boolean.default(false),
  history: historyLength.default(0),
} satisfies ShapeOf<ListOptions>);

const HANDLER = callback<TickHandler>();
const NEXT = callback<NextTick>();
const PERIOD = integer({ min: 1 });
const EXPRESSION = text({ min: 1 });

/** The key prefixes of the schedulers that lead in a term: each register has one writer. */
const ledTerms = new WeakMap<LeaderTerm, Set<string>>();

export class LeaderScheduler implements AsyncDisposable {
  readonly #election: LeaderElection;
  readonly #ledger: Ledger;
  readonly #keyPrefix: string;
  readonly #timezone: string;
  readonly #concurrency: number;
  readonly #drainTimeout: number;
  readonly #history: number;
  /** One object for all schedules without options, of which there may be ten thousand. */
  readonly #defaults: ResolvedScheduleOptions;
  readonly #entries = new Map<string, Entry>();
  readonly #events: Emitter<SchedulerEvents>;
  readonly #stop = new AbortController();
  #session: Session | undefined;
  #running: Promise<void> | undefined;
  #leading: Promise<void> | undefined;
  /** What is still written of a term that has ended. */
  #recording: Promise<void> | undefined;
  #requestCount = 0;

  /** @throws TypeError, RangeError naming option, rule and value */
  constructor(options: SchedulerOptions) {
    const { election, keyPrefix, timezone, concurrency, drainTimeout, history } = OPTIONS.resolve(options);
    this.#election = election;
    this.#keyPrefix = keyPrefix === undefined ? "" : `${keyPrefix}:`;
    this.#timezone = timezone;
    this.#concurrency = concurrency;
    this.#drainTimeout = drainTimeout;
    this.#history = history;
    this.#defaults = resolveScheduleOptions({}, timezone);
    this.#ledger = new Ledger(election.redlock, election.name, `leader:${election.name}`);
    this.#events = new Emitter<SchedulerEvents>(SCHEDULER_EVENTS);
    publishTicks(this.#events, election.name);
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
    const { offset, options: resolved } = resolveIntervalOptions(options, this.#timezone);
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
    calendar.next(protocolOf(this.#election.redlock).clock.wallMs());
    return this.#add(name, calendar, handler, resolved);
  }

  /**
   * Has the leader run a schedule now, also a paused one. The tick's id is its own. A leader that does not have the
   * schedule, as while a new version is deployed, reports that (`error`). The request then waits for one that has it,
   * and is dropped after a day.
   * @throws UnknownScheduleError if neither this process nor the lock nodes know it, QuorumUnreachableError
   */
  async trigger(name: string): Promise<void> {
    await this.#known(name);
    const { clock, random } = protocolOf(this.#election.redlock);
    const atMs = Math.floor(clock.wallMs());
    this.#requestCount += 1;
    // The time also, because a test may have its `Redlock` draw the same each time.
    const parts = [atMs, Math.floor(random.fraction() * 2 ** 40), this.#requestCount];
    const id = parts.map((part) => part.toString(36)).join("");
    await this.#store().order(REQUEST + id, requestLine({ name, atMs }, false), this.#ledger.quorum);
  }

  /**
   * No leader claims a tick of this schedule until it is resumed. Ticks that pass are not caught up, also not by a
   * leader that was not there meanwhile. What was claimed and waits is skipped when the leader hears of the pause:
   * after a round trip, or after 5 s if the message is lost. What runs goes on, and `trigger` works. Of two calls, also
   * of `resume`, the later one counts, whatever the clocks of their processes say.
   * @throws as `trigger`
   */
  async pause(name: string): Promise<void> {
    await this.#setPaused(name, true);
  }

  /** The opposite of `pause`. @throws as `trigger` */
  async resume(name: string): Promise<void> {
    await this.#setPaused(name, false);
  }

  /** The schedules of this scheduler as the nodes know them, from any process. @throws QuorumUnreachableError */
  async list(options: ListOptions = {}): Promise<readonly ScheduleInfo[]> {
    const { all, history } = LIST.resolve(options);
    const toldCount = Math.min(history, this.#history);
    const { clock } = protocolOf(this.#election.redlock);
    const store = this.#store();
    const [answers, newest, owner] = await Promise.all([
      store.look(),
      // Histories have the newest, too. Their names are known once the register is read.
      this.#history > 0 && toldCount === 0 ? store.newestOfAll() : [],
      this.#election.leader(),
    ]);
    const slice = new Slice(clock);
    const lines = new Map<string, string>();
    const running = new Map<string, number>();
    // The newest version, and what is in the mailboxes.
    for (const list of [newestOf(answers).fields, ...answers.map(({ mail }) => mail)]) {
      for (const [field, line] of list) {
        if (slice.isOver) await slice.another();
        if (isLater(line, lines.get(field))) lines.set(field, line);
        if (!field.startsWith(NOTE)) continue;
        const { name } = notedTick(field);
        running.set(name, (running.get(name) ?? 0) + 1);
      }
    }
    const stored = all ? [...lines.keys()].filter((field) => !field.includes(":")) : [];
    const names = [...new Set([...this.#entries.keys(), ...stored])];
    const histories = toldCount > 0 ? await store.historiesOf(names) : [];
    const ticks = new Map<string, readonly string[]>(names.map((name, at) => [name, histories[at] ?? []]));
    for (const text of newest) {
      for (const [name, line] of newestIn(text)) {
        if (slice.isOver) await slice.another();
        ticks.set(name, [...(ticks.get(name) ?? []), line]);
      }
    }
    const nowMs = clock.wallMs();
    const infos: ScheduleInfo[] = [];
    for (const name of names) {
      if (slice.isOver) await slice.another();
      const entry = this.#entries.get(name);
      const { accountedMs = 0, lastMs = 0, missed = 0 } = stateOf(lines.get(name)) ?? {};
      const { nextMs: seenMs = null, happenings } = pastOf(ticks.get(name) ?? []);
      const told = happenings.slice(0, Math.max(1, toldCount)).map((each) => recordOf(name, each, owner?.term));
      const nextMs = entry === undefined ? seenMs : this.#nextOf(entry, Math.max(nowMs, accountedMs));
      infos.push({
        name,
        next: nextMs === null ? null : dateOf(nextMs),
        last: lastMs === 0 ? null : dateOf(lastMs),
        lastTick: told[0] ?? null,
        history: told.slice(0, toldCount),
        missed,
        paused: pauseOf(lines.get(PAUSE + name))?.isPaused ?? entry?.options.paused ?? false,
        running: this.#session?.runningOf(name) ?? running.get(name) ?? 0,
        owner,
      });
    }
    return infos;
  }

  /**
   * What became of the last ticks of a schedule, the newest first, from any process. It is as long as the option
   * `history` of the leader and of this scheduler allow. What a leader did in its last second before it died may be
   * missing.
   * @throws UnknownScheduleError, QuorumUnreachableError as `trigger`
   */
  async history(name: string): Promise<readonly TickRecord[]> {
    text().of("name", name);
    const [[texts = []], owner] = await Promise.all([this.#store().historiesOf([name]), this.#election.leader()]);
    const { happenings } = pastOf(texts);
    // What has a history is known. To look a name up is to read the whole register.
    if (happenings.length === 0) await this.#known(name);
    return happenings.slice(0, this.#history).map((happening) => recordOf(name, happening, owner?.term));
  }

  /**
   * Takes part in the election from now on, with `election.run()`. Use `lead` instead if the election runs a task of
   * yours.
   * @throws ElectionBusyError, ElectionStoppedError
   */
  start(): void {
    if (this.#stop.signal.aborted) throw new ElectionStoppedError(this.#election.name);
    if (this.#running !== undefined) return;
    const { running, state } = this.#election.health();
    if (state === "stopped") throw new ElectionStoppedError(this.#election.name);
    if (running || state !== "idle") throw new ElectionBusyError(this.#election.name, running ? "running" : state);
    this.#running = this.#election
      .run((term) => this.lead(term), { signal: this.#stop.signal, drainTimeout: this.#drainTimeout })
      .catch((error: unknown) => this.#report(error))
      .finally(() => {
        this.#running = undefined;
      });
  }

  /**
   * Runs ticks for as long as `term` lasts: `election.run((term) => scheduler.lead(term))`. It resolves when no handler
   * runs any more.
   * @throws RangeError for a term of another election, or one that another scheduler with this `keyPrefix` leads
   */
  async lead(term: LeaderTerm): Promise<void> {
    TERM.of("term", term);
    if (term.election !== this.#election.name)
      throw new RangeError(`term must be of election "${this.#election.name}", got "${term.election}"`);
    if (this.#session !== undefined)
      throw new RangeError("term must be the only one that this scheduler leads, got a second one");
    const prefixes = ledTerms.get(term) ?? new Set();
    if (prefixes.has(this.#keyPrefix))
      throw new RangeError("term must be led by one scheduler at a time with this keyPrefix, got a second one");
    ledTerms.set(term, prefixes.add(this.#keyPrefix));
    const { clock, random } = protocolOf(this.#election.redlock);
    const session = new Session({
      term,
      store: this.#store(),
      clock,
      random: () => random.fraction(),
      entries: this.#entries,
      concurrency: this.#concurrency,
      events: this.#events,
      stop: this.#stop.signal,
    });
    this.#session = session;
    const recorder = this.#recorderOf(term.term, session);
    const ended = deferred<void>();
    this.#leading = ended.promise;
    const listening = this.#ledger.listen((news) => {
      if (news === "schedules") session.hear();
    });
    listening.catch((error: unknown) => this.#report(error));
    try {
      await session.run();
    } finally {
      this.#recording = recorder?.end();
      await listening.then((stop) => stop()).catch(() => undefined);
      prefixes.delete(this.#keyPrefix);
      this.#session = undefined;
      this.#leading = undefined;
      ended.resolve();
    }
  }

  /**
   * Ends the ticks here. Resolves when the handlers have ended, or `drainTimeout` (default: that of the constructor)
   * has passed. Ticks that wait for their turn are skipped. Those with `at-least-once`, and what was triggered, are
   * left to the next leader.
   *
   * A term from `start()` is asked to end, so that `tick.signal` aborts, and then released. At the constructor's
   * `drainTimeout` it is left to run out. One that was given to `lead()` stays its owner's, and the handlers run to
   * their end.
   *
   * Called again it may shorten the time. It never rejects. Do not await it in a handler, since it waits for that
   * handler.
   */
  async stop(options: StopOptions = {}): Promise<void> {
    const { drainTimeout = this.#drainTimeout } = STOP.resolve(options);
    this.#stop.abort(new ElectionStoppedError(this.#election.name));
    const late = deferred<void>();
    const { clock } = protocolOf(this.#election.redlock);
    // A term from start() ends at its own time: that of the constructor.
    const isOwn = this.#running !== undefined && drainTimeout >= this.#drainTimeout;
    const cancel = isOwn ? undefined : clock.schedule(drainTimeout, () => late.resolve(), { keepAlive: true });
    await Promise.race([this.#running ?? this.#leading, late.promise]);
    cancel?.();
    await this.#recording;
  }

  on<Name extends keyof SchedulerEvents>(name: Name, listener: (payload: SchedulerEvents[Name]) => void): Unsubscribe {
    return this.#events.on(name, listener);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  #resolve(options: ScheduleOptions | undefined): ResolvedScheduleOptions {
    return options === undefined ? this.#defaults : resolveScheduleOptions(options, this.#timezone);
  }

  #add(name: string, calendar: Calendar, handler: TickHandler, options: ResolvedScheduleOptions): Schedule {
    const checked = scheduleName.of("name", name);
    HANDLER.of("handler", handler);
    if (this.#entries.has(checked)) throw new RangeError(`name must be new to this scheduler, got ${quote(checked)}`);
    const bounded = boundedCalendar(calendar, options.startMs, options.endMs);
    const entry: Entry = { name: checked, calendar: bounded, handler, options };
    this.#entries.set(checked, entry);
    this.#session?.nudge();
    return {
      name: checked,
      next: (after) => {
        const nextMs = bounded.next(moment.of("after", after).getTime());
        return nextMs === null ? null : dateOf(nextMs);
      },
      remove: () => {
        if (this.#entries.get(checked) !== entry) return;
        this.#entries.delete(checked);
        this.#session?.forget(checked);
      },
    };
  }

  /**
   * The order wins over every one that a node which answers in time knows, whatever clock gave that its version. Of two
   * at once one wins, the same on all nodes. An order to resume what is not paused ends no pause.
   */
  async #setPaused(name: string, isPaused: boolean): Promise<void> {
    const isPausedAtFirst = (await this.#known(name))?.options.paused ?? false;
    const nowMs = Math.floor(protocolOf(this.#election.redlock).clock.wallMs());
    const store = this.#store();
    const field = PAUSE + name;
    const tell = async (line: string): Promise<string> => {
      const lines = await store.order(field, line, this.#ledger.nodeCount);
      return lines.reduce((best, each) => (isLater(each, best) ? each : best));
    };
    let known = await tell("");
    const { isPaused: wasPaused = isPausedAtFirst, resumedMs = 0 } = pauseOf(known) ?? {};
    const pause = { isPaused, resumedMs: wasPaused && !isPaused ? nowMs : resumedMs };
    for (;;) {
      const line = pauseLine({ ...pause, version: Math.max(nowMs, (pauseOf(known)?.version ?? 0) + 1) });
      known = await tell(line);
      if (known === line) return;
    }
  }

  #nextOf(entry: Entry, afterMs: number): number | null {
    try {
      return entry.calendar.next(afterMs);
    } catch (error) {
      this.#report(error);
      return null;
    }
  }

  /** Resolves with undefined for a schedule that only the nodes know. */
  async #known(name: string): Promise<Entry | undefined> {
    const entry = this.#entries.get(text().of("name", name));
    if (entry !== undefined) return entry;
    for (const [field] of newestOf(await this.#store().look()).fields) if (field === name) return undefined;
    throw new UnknownScheduleError(this.#election.name, name);
  }

  #recorderOf(term: number, session: Session): Recorder | undefined {
    if (this.#history === 0) return undefined;
    return new Recorder({
      term,
      store: this.#store(),
      clock: protocolOf(this.#election.redlock).clock,
      events: this.#events,
      kept: this.#history,
      nextOf: (name) => session.nextOf(name),
    });
  }

  /** State is kept for longer than the longest window, so that it is there when it is needed. */
  #store(): Store {
    const longestWindowMs = Math.max(0, ...[...this.#entries.values()].map((entry) => entry.options.catchupWindow));
    return new Store(this.#ledger, this.#keyPrefix, 30 * DAY_MS + 2 * longestWindowMs);
  }

  #report(error: unknown): void {
    this.#events.emit("error", error);
  }
}
