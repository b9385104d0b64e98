/**
 * The scheduler in one term, with one timer for all schedules. Due ticks, beginnings, ends and orders are collected in
 * one step of the register. Their effects follow when the step is confirmed.
 *
 * Guaranteed: a handler is called only for a tick that this term has claimed on a quorum. The session ends after the
 * term and its handlers have ended.
 *
 * Not guaranteed: that a handler which ignores its signal ends with the term.
 */
import type { Clock } from "@x/redlock-core";
import type { Emitter } from "@x/redlock-core/kit";
import { abortable, DAY_MS, onAbort, quote, sleep } from "@x/redlock-core/kit";
import { UnknownScheduleError } from "../errors.ts";
import { Naps } from "../kit/naps.ts";
import { Slice } from "../kit/slice.ts";
import type { LeaderTerm } from "../leader-term.ts";
import { dateOf } from "../rules/values.ts";
import { type Change, causeOf, DataSchedules } from "./data-schedules.ts";
import { type SchedulerEvents, tellSkipped } from "./events.ts";
import { Outage } from "./outage.ts";
import { Register } from "./register.ts";
import type { RegisterStore } from "./register-store.ts";
import { isDefinitionField } from "./rules/definition.ts";
import {
  isValidLine,
  NOTE,
  notedTick,
  noteOf,
  PAUSE,
  pauseOf,
  removedMsOf,
  type ScheduleState,
  stateLine,
  stateOf,
  TRIGGER,
  type Trigger,
  triggerLine,
  triggerOf,
} from "./rules/lines.ts";
import { decideOverlap, type OverlapDecision } from "./rules/overlap.ts";
import type { Plan } from "./rules/plan.ts";
import { type ClaimedTick, isCatchingUp, Runner } from "./runner.ts";
import { type NamedTick, type TickHandler, tickId } from "./tick.ts";
import { type Entry, Timetable, type Track } from "./timetable.ts";

interface SessionParts {
  readonly term: LeaderTerm;
  readonly store: RegisterStore;
  readonly clock: Clock;
  readonly random: () => number;
  /** Schedules in the code of this process, by name. */
  readonly entries: ReadonlyMap<string, Entry>;
  /** Handlers of schedules as data, by kind. */
  readonly handlers: ReadonlyMap<string, TickHandler>;
  readonly concurrency: number;
  readonly events: Emitter<SchedulerEvents>;
  /** Aborts when no more ticks may begin: when the term ends, or when the scheduler stops. */
  readonly over: AbortSignal;
}

/** Period of the search for orders and for nodes that lost their state, if no message arrives. */
const POLL_MS = 5_000;
/** A node that did not take a step receives the whole register after this time. */
const GAP_MS = 100;
/** Length of the slice whose claims make one step. */
const CLAIM_SLICE_MS = 10;
/** The greatest number of claims in one step. Each claim blocks a node for about 5 µs. */
const MOST_CLAIMS = 500;
/** A step of the wall clock is noticed within this time. */
const LONGEST_SLEEP_MS = 30_000;
/** Lifetime of a trigger. The time is far longer than a deployment, and longer than clocks differ. */
const LONGEST_TRIGGER_MS = DAY_MS;
/**
 * Started triggers are remembered longer than `LONGEST_TRIGGER_MS`, by more than leaders' clocks differ. A late copy of
 * a forgotten trigger is then too old.
 */
const KNOWN_TRIGGER_MS = LONGEST_TRIGGER_MS + 3_600_000;

/** Period of the search for removed schedules and orders that can be forgotten. */
const TIDY_MS = 3_600_000;

/** If a node refuses the leader for a newer term and the leader still leads after this time, that is reported. */
const NEWER_TERM_MS = 5_000;
/** Tolerated lead of a schedule's state over the clock. A greater lead means that a leader's clock was wrong. */
const AHEAD_TOLERANCE_MS = 1_000;
/** Greatest plausible lead. A state with a greater lead was not written by a leader. */
const LONGEST_AHEAD_MS = 366 * DAY_MS;

/** The most characters of a damaged field or line that a message shows, and the most messages that are remembered. */
const [LONGEST_SHOWN, MOST_INVALID_TOLD] = [100, 100];

/** Changes of the register, and their effects after the confirmation. */
class Step {
  readonly changes = new Map<string, string>();
  readonly confirmed: (() => void)[] = [];
  readonly expired: string[] = [];
  /** Number of triggers in this step, by schedule. Triggers begin or wait before the claims of the same step. */
  readonly taken = new Map<string, number>();
}

export class SchedulerTerm {
  readonly #parts: SessionParts;
  readonly #register: Register;
  readonly #timetable: Timetable;
  readonly #runner: Runner;
  readonly #data: DataSchedules;
  /** The change of schedules as data that orders ask for, and the time at which this process learned of it. */
  #change: (Change & { readonly heardMs: number }) | undefined;
  /** A change that a quorum has, and that is to be applied before the next step. */
  #confirmedChange: Change | undefined;
  #nextTidyMs = 0;
  /** The step that waits for its confirmation. */
  #step: Step | undefined;
  /** Notes of ticks that earlier sessions did not finish, by schedule. */
  readonly #inherited = new Map<string, string[]>();
  /** Triggers that no step contains yet, by field. */
  readonly #triggers = new Map<string, Trigger>();
  /** Times of the started triggers, by field, the oldest first. */
  readonly #begun = new Map<string, number>();
  /** Triggers that were reported because this process does not have their schedule. */
  readonly #unknown = new Set<string>();
  /** Fields of the register with a damaged line. The next step removes these fields. */
  #invalid: string[] = [];
  /** Messages about damaged lines that were reported. */
  readonly #invalidTold = new Set<string>();
  /** Whether a state ahead of the clock was reported. */
  #isAheadTold = false;
  /** Notes of ended ticks. */
  #ended: string[] = [];
  /** Triggered ticks and `at-least-once` ticks that are left to the next leader. */
  #left: ClaimedTick[] = [];
  #nextPollMs = 0;
  #polling: Promise<void> | undefined;
  readonly #naps: Naps;
  /** Steps and polls fail independently, so each has its own outage. */
  readonly #stepOutage: Outage;
  readonly #pollOutage: Outage;

  constructor(parts: SessionParts) {
    this.#parts = parts;
    this.#naps = new Naps(parts.clock);
    const failed = (error: unknown): void => parts.events.emit("error", error);
    this.#stepOutage = new Outage(failed);
    this.#pollOutage = new Outage(failed);
    this.#register = new Register({ ...parts, onDoubt: failed });
    this.#timetable = new Timetable({ ...parts, failed });
    this.#data = new DataSchedules({ code: parts.entries, handlers: parts.handlers, report: failed });
    this.#runner = new Runner({
      ...parts,
      entries: { get: (name) => this.#entryOf(name) },
      finished: (tick) => this.#end(tick),
      left: (claimed) => this.#left.push(claimed),
    });
    onAbort(parts.over, () => this.#runner.end());
  }

  /** Makes the session look at the schedules immediately. */
  nudge(): void {
    this.#naps.wake();
  }

  /** Makes the session look for orders immediately. */
  hear(): void {
    this.#nextPollMs = 0;
    this.nudge();
  }

  /** Stops a removed schedule. If the schedule is added again, its stored state is read again. */
  forget(name: string): void {
    this.#timetable.delete(name);
    this.#runner.dropWaiting(name, "removed", () => true);
    this.nudge();
  }

  /** Called when the code has added or removed a schedule, which hides a schedule as data with the same name. */
  codeChanged(name: string): void {
    if (this.#data.codeChanged(name)) this.forget(name);
    this.nudge();
  }

  /** Starts the schedules of a kind that has a handler now. */
  handled(kind: string): void {
    this.#data.handled(kind);
    this.nudge();
  }

  runningOf(name: string): number {
    return this.#runner.runsOf(name).running.size;
  }

  /** Returns the time of a schedule's next tick. Undefined if there is none, or if its calendar was not called yet. */
  nextOf(name: string): number | undefined {
    return this.#timetable.get(name)?.nextMs ?? undefined;
  }

  /** Runs the session. Resolves when the term has ended or was asked to end, and no handler runs. Never rejects. */
  async run(): Promise<void> {
    const { term, clock, over } = this.#parts;
    while (!over.aborted && term.isCurrent()) await this.#naps.nap(await this.#try(), over);
    await this.#runner.idle();
    await this.#polling;
    // At least once even after the term: the nodes accept the step until a newer term has promised.
    for (let waitMs = await this.#handOver(); waitMs > 0 && term.isCurrent(); waitMs = await this.#handOver()) {
      await sleep(clock, waitMs);
    }
  }

  /** Makes one round of work. Returns the milliseconds until the next round, even after a failure. Never rejects. */
  async #try(): Promise<number> {
    try {
      const waitMs = await this.#goOn();
      // A failed step is repeated, so success means that the step has reached a quorum.
      this.#stepOutage.ended();
      return waitMs;
    } catch (error) {
      return this.#stepOutage.failed(error);
    }
  }

  /**
   * Writes the ended ticks, and the ticks that did not begin and do not count as attempts, for the next leader.
   * Resolves with 0, or with the milliseconds until the next attempt if too few nodes answered.
   */
  async #handOver(): Promise<number> {
    try {
      while (this.#step !== undefined || this.#ended.length + this.#left.length > 0) {
        if (!(await this.#write((step) => this.#addEnds(step)))) return 0;
        await this.#runner.idle();
      }
      return 0;
    } catch (error) {
      return this.#stepOutage.failed(error);
    }
  }

  /**
   * Takes office if needed, starts a poll if it is due, and writes a step. Returns the milliseconds until the next
   * round.
   */
  async #goOn(): Promise<number> {
    const { term, clock, over } = this.#parts;
    if (!this.#register.isTaken && !(await this.#takeOffice())) return await this.#untilOver();
    if (clock.monotonicMs() >= this.#nextPollMs && this.#polling === undefined) this.#pollBeside();
    await this.#prepareChange();
    if (over.aborted || !term.isCurrent()) return 0;
    if (!(await this.#write((step) => this.#compose(step)))) return await this.#untilOver();
    const change = this.#confirmedChange;
    this.#confirmedChange = undefined;
    if (change !== undefined) await this.#applyChange(change);
    if (!this.#isLoaded || !term.isCurrent()) return 0;
    if (this.#register.hasGap) this.#nextPollMs = Math.min(this.#nextPollMs, clock.monotonicMs() + GAP_MS);
    const untilPollMs = this.#polling === undefined ? this.#nextPollMs - clock.monotonicMs() : LONGEST_SLEEP_MS;
    return Math.max(0, Math.ceil(Math.min(LONGEST_SLEEP_MS, untilPollMs, this.#timetable.untilTickMs())));
  }

  /**
   * Confirms the current step, or the next step from `compose`. Resolves with false if a newer term was seen.
   * @throws QuorumUnreachableError
   */
  async #write(compose: (step: Step) => void): Promise<boolean> {
    if (this.#step === undefined) {
      const step = new Step();
      compose(step);
      if (step.changes.size > 0 || this.#register.isDue) this.#register.begin(step.changes, step.expired);
      this.#step = step;
    }
    if (!(await this.#register.confirm())) return false;
    const { confirmed } = this.#step;
    this.#step = undefined;
    // Pauses must apply before the effects of the step, which may start ticks.
    this.#hearPauses();
    for (const each of confirmed) each();
    return true;
  }

  /** Reads the register. Resolves with false if a newer term was seen. @throws QuorumUnreachableError */
  async #takeOffice(): Promise<boolean> {
    const { clock } = this.#parts;
    if (!(await this.#register.take(new Slice(clock)))) return false;
    const begun: [field: string, atMs: number][] = [];
    const slice = new Slice(clock);
    for (const [field, line] of this.#register.fields) {
      if (slice.isOver) await slice.another();
      if (!isValidLine(field, line)) {
        this.#invalid.push(field);
        this.#reportInvalid("register", field, line);
      } else if (field.startsWith(NOTE)) {
        const { name } = notedTick(field);
        this.#inherited.set(name, [...(this.#inherited.get(name) ?? []), field]);
      } else if (field.startsWith(TRIGGER)) {
        const trigger = triggerOf(field, line);
        if (trigger === undefined) continue;
        if (trigger.isTaken) begun.push([field, trigger.atMs]);
        else this.#triggers.set(field, trigger);
      }
    }
    for (const [field, atMs] of begun.toSorted((a, b) => a[1] - b[1])) this.#begun.set(field, atMs);
    await this.#applyChange(await this.#data.prepare(this.#register.fields, [], slice));
    return true;
  }

  /** Prepares the change that the orders for schedules as data ask for, unless it is prepared already. */
  async #prepareChange(): Promise<void> {
    const { clock } = this.#parts;
    const orders = this.#register.orders.filter(
      ([field, line]) => isDefinitionField(field) && isValidLine(field, line),
    );
    if (causeOf(orders) === (this.#change?.cause ?? "")) return;
    const change = await this.#data.prepare(this.#register.fields, orders, new Slice(clock));
    this.#change = { ...change, heardMs: Math.floor(clock.wallMs()) };
    this.#timetable.limit(change.untilMs);
  }

  #compose(step: Step): void {
    for (const field of this.#invalid.splice(0)) step.changes.set(field, "");
    this.#addOrders(step);
    this.#addTracks(step);
    this.#addTriggers(step);
    this.#addEnds(step);
    this.#addClaims(step);
    this.#addChange(step);
    this.#tidy(step);
  }

  /** Adds the orders of the mailboxes. */
  #addOrders({ changes, expired, confirmed }: Step): void {
    this.#hearPauses();
    for (const [field, line] of this.#register.orders) {
      const trigger = field.startsWith(TRIGGER) ? triggerOf(field, line) : undefined;
      if (!isValidLine(field, line)) {
        expired.push(field);
        this.#reportInvalid("mailbox", field, line);
      } else if (isDefinitionField(field)) {
        // A change of definitions waits until the ticks that were due before it are claimed: see addChange.
      } else if (trigger === undefined) changes.set(field, line);
      else if (this.#isTooOld(trigger)) {
        expired.push(field);
        confirmed.push(() => tellSkipped(this.#parts.events, trigger, "expired"));
      } else {
        changes.set(field, line);
        this.#triggers.set(field, trigger);
      }
    }
  }

  /** Adds new schedules with their stored state and unfinished ticks, up to the limits of a slice and a step. */
  #addTracks(step: Step): void {
    const { entries, clock } = this.#parts;
    if (this.#isLoaded) return;
    const nowMs = Math.floor(clock.wallMs());
    const slice = new Slice(clock);
    for (const [name, entry] of chain(entries, this.#data.active)) {
      if (this.#timetable.get(name) !== undefined) continue;
      if (slice.isOver || step.changes.size >= MOST_CLAIMS) return;
      const stored = this.#storedState(name, nowMs);
      // Ticks before the time at which a schedule as data was added, or its times were changed, are not its own.
      const sinceMs = entry.definition?.sinceMs;
      const accountedMs = Math.max(stored?.accountedMs ?? sinceMs ?? nowMs, sinceMs ?? 0);
      const track = this.#timetable.add(entry, { lastMs: 0, missed: 0, ...stored, accountedMs });
      track.untilMs = this.#change?.untilMs.get(name) ?? Number.POSITIVE_INFINITY;
      if (stored === undefined || stored.removedMs !== undefined) step.changes.set(name, stateLine(track));
      this.#setPause(track);
      const ticks = (this.#inherited.get(name) ?? []).map(notedTick);
      for (const tick of ticks.toSorted((a, b) => a.atMs - b.atMs)) this.#runAgain(step, track, tick);
      this.#inherited.delete(name);
    }
  }

  /** Returns the stored state of a schedule. Undefined if there is none, or if the stored state is damaged. */
  #storedState(name: string, nowMs: number): ScheduleState | undefined {
    const line = this.#register.fields.get(name);
    const state = stateOf(line);
    const aheadMs = (state?.accountedMs ?? nowMs) - nowMs;
    if (aheadMs > LONGEST_AHEAD_MS) {
      this.#reportInvalid("register", name, line ?? "");
      return undefined;
    }
    if (aheadMs > AHEAD_TOLERANCE_MS && !this.#isAheadTold) {
      this.#isAheadTold = true;
      const until = dateOf(state?.accountedMs ?? nowMs).toISOString();
      const cause = "an earlier leader's clock was ahead, or this process's clock is behind";
      const what = `the ticks of ${quote(name)} until ${until} were already run or left out, and do not run again`;
      this.#parts.events.emit("error", new Error(`${what}: ${cause} (by ${aheadMs} ms; other schedules may be alike)`));
    }
    return state;
  }

  /** Reports a damaged line once. A poll may find the line again before a step has removed it. */
  #reportInvalid(where: "register" | "mailbox", field: string, line: string): void {
    const [name, value] = [field, line].map((text) => JSON.stringify(text.slice(0, LONGEST_SHOWN)));
    const message = `${name} of the ${where} of schedules contains ${value}, which is not valid: it is removed`;
    if (this.#invalidTold.has(message)) return;
    if (this.#invalidTold.size >= MOST_INVALID_TOLD) this.#invalidTold.clear();
    this.#invalidTold.add(message);
    this.#parts.events.emit("error", new Error(message));
  }

  #runAgain({ changes, confirmed }: Step, track: Track, tick: NamedTick): void {
    const { delivery, maxAttempts } = track.entry.options;
    const attempt = Number(this.#register.fields.get(noteOf(tick))) + 1;
    if (delivery === "at-least-once" && attempt <= maxAttempts) {
      changes.set(noteOf(tick), String(attempt));
      const claimed = this.#claimed(track, { atMs: tick.atMs, isCatchup: true, isBacklog: true, attempt });
      confirmed.push(() => this.#launch(claimed, "queue", track.isPaused));
    } else {
      changes.set(noteOf(tick), "");
      confirmed.push(() => tellSkipped(this.#parts.events, tick, "attempts"));
    }
  }

  /**
   * Starts triggers of schedules in this process, and drops expired triggers. Other triggers wait for a leader with
   * their schedule.
   */
  #addTriggers({ changes, confirmed, taken }: Step): void {
    const { events, term } = this.#parts;
    for (const [field, trigger] of this.#triggers) {
      const track = this.#timetable.get(trigger.name);
      if (this.#isTooOld(trigger)) {
        changes.set(field, "");
        confirmed.push(() => tellSkipped(this.#parts.events, trigger, "expired"));
      } else if (track !== undefined) {
        const { atMs, id } = trigger;
        changes.set(field, triggerLine(trigger, true));
        this.#begun.set(field, atMs);
        taken.set(trigger.name, (taken.get(trigger.name) ?? 0) + 1);
        const claimed = this.#claimed(track, { atMs, isCatchup: false, isBacklog: false, attempt: 1 }, id);
        confirmed.push(() => this.#launch({ ...claimed, delivery: "at-most-once", trigger }, "queue", false));
      } else {
        if (this.#entryOf(trigger.name) !== undefined || this.#unknown.has(field)) continue;
        this.#unknown.add(field);
        events.emit("error", new UnknownScheduleError(term.election, trigger.name));
        continue;
      }
      this.#triggers.delete(field);
      this.#unknown.delete(field);
    }
  }

  /** Adds the ended ticks, and the ticks that are left to the next leader. */
  #addEnds({ changes }: Step): void {
    const { clock } = this.#parts;
    for (const note of this.#ended.splice(0)) changes.set(note, "");
    for (const claimed of this.#left.splice(0)) {
      if (claimed.trigger === undefined) changes.set(noteOf(claimed), String(claimed.attempt - 1));
      else changes.set(TRIGGER + claimed.trigger.id, triggerLine(claimed.trigger, false));
    }
    for (const [field, atMs] of this.#begun) {
      if (clock.wallMs() - atMs < KNOWN_TRIGGER_MS) break;
      changes.set(field, "");
      this.#begun.delete(field);
    }
  }

  /** Claims due ticks, up to the limits of a slice and a step. */
  #addClaims(step: Step): void {
    const { clock } = this.#parts;
    const nowMs = clock.wallMs();
    const slice = new Slice(clock, CLAIM_SLICE_MS);
    for (const track of this.#timetable.dueAt(nowMs)) {
      const plan = this.#timetable.planAt(nowMs, track, slice);
      if (plan !== undefined) this.#claim(step, track, plan);
      if (slice.isOver || step.changes.size >= MOST_CLAIMS) break;
    }
  }

  /**
   * Adds the change of schedules as data. Ticks that were due before this process learned of the change are claimed by
   * the old definitions first.
   */
  #addChange({ changes, expired, confirmed }: Step): void {
    const change = this.#change;
    if (change === undefined || !this.#isLoaded || !this.#timetable.isSettledAt(change.heardMs)) return;
    this.#change = undefined;
    for (const [field, line] of change.lines) changes.set(field, line);
    expired.push(...change.outdated);
    for (const name of change.removed) {
      const state = stateOf(changes.get(name) ?? this.#register.fields.get(name));
      if (state !== undefined) changes.set(name, stateLine({ ...state, removedMs: change.heardMs }));
      if (this.#register.fields.has(PAUSE + name)) changes.set(PAUSE + name, "");
      for (const note of this.#inherited.get(name) ?? []) changes.set(note, "");
      this.#inherited.delete(name);
    }
    confirmed.push(() => {
      this.#confirmedChange = change;
    });
  }

  /** Applies a change that a quorum has. */
  async #applyChange(change: Change): Promise<void> {
    const slice = new Slice(this.#parts.clock);
    const { changed, ended } = await this.#data.apply(change, slice);
    this.#parts.store.cover(this.#data.longestWindowMs);
    for (const name of ended) this.forget(name);
    for (const { name, definition } of changed) {
      if (slice.isOver) await slice.another();
      const track = this.#timetable.get(name);
      if (track === undefined) continue;
      this.#timetable.advance(track, definition.sinceMs);
      track.untilMs = Number.POSITIVE_INFINITY;
      this.#setPause(track);
    }
  }

  /** Forgets schedules as data that were removed long ago, and orders that no late copy can follow any more. */
  #tidy({ changes, confirmed }: Step): void {
    const { clock, store, events } = this.#parts;
    if (this.#change !== undefined || !this.#isLoaded || clock.monotonicMs() < this.#nextTidyMs) return;
    this.#nextTidyMs = clock.monotonicMs() + TIDY_MS;
    const nowMs = clock.wallMs();
    const { fields } = this.#register;
    for (const [field, line] of this.#data.folded(fields, nowMs) ?? []) changes.set(field, line);
    const forgotten: string[] = [];
    for (const [field, line] of fields) {
      if (field.includes(":") || changes.has(field) || forgotten.length >= MOST_CLAIMS) continue;
      if (nowMs - (removedMsOf(line) ?? nowMs) > KNOWN_TRIGGER_MS) forgotten.push(field);
    }
    for (const name of forgotten) changes.set(name, "");
    if (forgotten.length === 0) return;
    confirmed.push(() => {
      store.forget(forgotten).catch((error: unknown) => events.emit("error", error));
    });
  }

  #claim({ changes, confirmed, taken }: Step, track: Track, plan: Plan): void {
    const { options, name } = track.entry;
    const runs = this.#runner.runsOf(name);
    const ahead = runs.queue.length + (taken.get(name) ?? 0);
    const starting = runs.running.size === 0 ? Math.min(1, ahead) : 0;
    const occupancy = { running: runs.running.size + starting, queued: ahead - starting };
    const isLate = plan.fire.length > 1 || plan.fire.some((tick) => tick.isCatchup);
    const isBacklog = options.catchup === "all" && (isLate || isCatchingUp(runs));
    if (plan.missed > 0) {
      track.missed += plan.missed;
      confirmed.push(() => this.#parts.events.emit("ticksMissed", { schedule: name, count: plan.missed }));
    }
    for (const tick of plan.fire) {
      const decision = track.isPaused
        ? "skip"
        : decideOverlap(options.overlap, occupancy, { isPart: isBacklog, mostQueued: options.maxCatchup });
      if (decision === "skip") {
        const reason = track.isPaused ? "paused" : "overlap";
        confirmed.push(() => tellSkipped(this.#parts.events, { name, atMs: tick.atMs }, reason));
        continue;
      }
      occupancy[decision === "run" ? "running" : "queued"] += 1;
      const claimed = this.#claimed(track, { ...tick, isBacklog, attempt: 1 });
      track.lastMs = tick.atMs;
      if (options.delivery === "at-least-once") changes.set(noteOf(claimed), String(claimed.attempt));
      confirmed.push(() => this.#launch(claimed, decision, track.isPaused || tick.atMs <= this.#resumedMs(track)));
    }
    if (plan.accountedMs > track.accountedMs) changes.set(name, stateLine({ ...track, accountedMs: plan.accountedMs }));
    this.#timetable.advance(track, plan.accountedMs);
  }

  #launch(claimed: ClaimedTick, decision: OverlapDecision, isPaused: boolean): void {
    if (!isPaused) return this.#runner.launch(claimed, decision);
    tellSkipped(this.#parts.events, claimed, "paused");
    if (claimed.delivery === "at-least-once") this.#end(claimed);
  }

  /** Records that no leader may run a tick again. The next step contains all ticks that ended until then. */
  #end(tick: NamedTick): void {
    this.#ended.push(noteOf(tick));
    this.nudge();
  }

  /** Polls all nodes, including slow ones, while steps continue. Wakes the session after the answers. Never rejects. */
  #pollBeside(): void {
    this.#nextPollMs = this.#parts.clock.monotonicMs() + POLL_MS;
    this.#polling = this.#register
      .poll()
      .then(
        () => {
          this.#pollOutage.ended();
          this.#hearPauses();
        },
        (error: unknown) => {
          this.#pollOutage.failed(error);
        },
      )
      .finally(() => {
        this.#polling = undefined;
        this.nudge();
      });
  }

  #hearPauses(): void {
    for (const [field] of this.#register.orders) {
      const track = field.startsWith(PAUSE) ? this.#timetable.get(field.slice(PAUSE.length)) : undefined;
      if (track !== undefined) this.#setPause(track);
    }
  }

  /** Applies the stored pause to a schedule. Ticks before the end of a pause count as dealt with. */
  #setPause(track: Track): void {
    const { name, options } = track.entry;
    track.isPaused = pauseOf(this.#register.newest(PAUSE + name))?.isPaused ?? options.paused;
    if (track.isPaused) this.#runner.dropWaiting(name, "paused", (claimed) => claimed.trigger === undefined);
    else if (this.#resumedMs(track) > track.accountedMs) this.#timetable.advance(track, this.#resumedMs(track));
  }

  /** Returns the end of the last pause. 0 if the end is in the future, because another clock was ahead. */
  #resumedMs({ entry }: Track): number {
    const { resumedMs } = pauseOf(this.#register.newest(PAUSE + entry.name)) ?? { resumedMs: 0 };
    return resumedMs <= this.#parts.clock.wallMs() ? resumedMs : 0;
  }

  #isTooOld({ atMs }: NamedTick): boolean {
    return this.#parts.clock.wallMs() - atMs > LONGEST_TRIGGER_MS;
  }

  /** Whether each schedule has a track. Removed schedules have none, so the counts can be compared. */
  get #isLoaded(): boolean {
    return this.#timetable.size === this.#parts.entries.size + this.#data.active.size;
  }

  /** Returns a schedule that this process can run. */
  #entryOf(name: string): Entry | undefined {
    return this.#parts.entries.get(name) ?? this.#data.active.get(name);
  }

  #claimed(
    track: Track,
    tick: Pick<ClaimedTick, "atMs" | "isCatchup" | "isBacklog" | "attempt">,
    suffix = "",
  ): ClaimedTick {
    return {
      track,
      name: track.entry.name,
      ...tick,
      id: tickId(track.entry.name, tick.atMs, suffix),
      delivery: track.entry.options.delivery,
      trigger: undefined,
      lastMs: track.lastMs,
    };
  }

  /**
   * Waits for the end of a term that a newer term has replaced. The deadline ends the term at the latest. If renewals
   * keep moving the deadline, there cannot be a newer leader. The node's value is then wrong, and is reported.
   */
  async #untilOver(): Promise<number> {
    const { clock, events, over, term } = this.#parts;
    const ended = new Promise<void>((resolve) => (over.aborted ? resolve() : onAbort(over, resolve)));
    await abortable(sleep(clock, NEWER_TERM_MS), over).catch(() => undefined);
    if (!over.aborted && term.isCurrent()) {
      const what = `a lock node has promised the schedules to term ${this.#register.newerTerm}, but term ${term.term} leads`;
      events.emit("error", new Error(`${what}: no tick runs in this term (the register's :promised is wrong)`));
    }
    await ended;
    return 0;
  }
}

function* chain<Item>(...lists: readonly Iterable<Item>[]): Generator<Item> {
  for (const list of lists) yield* list;
}
