/**
 * The scheduler in one term, with one timer for all schedules. Due ticks, beginnings, ends and orders are collected in
 * one step of the register. Their effects follow when the step is confirmed.
 *
 * Guaranteed: a handler is called only for a tick that this term has claimed on a quorum. `run()` ends
 * after the term and its handlers have ended.
 *
 * Not guaranteed: that a handler which ignores its signal ends with the term.
 */
import type { Clock } from "@x/redlock-core";
import type { Emitter } from "@x/redlock-core/kit";
import { abortable, onAbort, sleep } from "@x/redlock-core/kit";
import { Naps } from "../kit/naps.ts";
import { Slice } from "../kit/slice.ts";
import type { LeaderTerm } from "../leader-term.ts";
import { Claims } from "./claims.ts";
import { DamagedLines } from "./damaged-lines.ts";
import { DataChanges } from "./data-changes.ts";
import { DataSchedules } from "./data-schedules.ts";
import type { SchedulerEvents } from "./events.ts";
import { Loading } from "./loading.ts";
import { Outage } from "./outage.ts";
import { Pauses } from "./pauses.ts";
import { Polls } from "./polls.ts";
import { Register } from "./register.ts";
import type { RegisterStore } from "./register-store.ts";
import { isDefinitionField } from "./rules/definition.ts";
import { isValidLine, NOTE, TRIGGER, triggerOf } from "./rules/lines.ts";
import { Runner } from "./runner.ts";
import { Step } from "./step.ts";
import type { TickHandler } from "./tick.ts";
import { type ScheduleEntry, Timetable } from "./timetable.ts";
import { Triggers } from "./triggers.ts";

interface SchedulerTermParts {
  readonly term: LeaderTerm;
  readonly store: RegisterStore;
  readonly clock: Clock;
  readonly random: () => number;
  /** Schedules in the code of this process, by name. */
  readonly entries: ReadonlyMap<string, ScheduleEntry>;
  /** Handlers of schedules as data, by kind. */
  readonly handlers: ReadonlyMap<string, TickHandler>;
  readonly concurrency: number;
  readonly events: Emitter<SchedulerEvents>;
  /** Aborts when no more ticks may begin: when the term ends, or when the scheduler stops. */
  readonly over: AbortSignal;
}

/** A step of the wall clock is noticed within this time. */
const LONGEST_SLEEP_MS = 30_000;
/** If a node refuses the leader for a newer term and the leader still leads after this time, that is reported. */
const NEWER_TERM_MS = 5_000;

export class SchedulerTerm {
  readonly #parts: SchedulerTermParts;
  readonly #register: Register;
  readonly #timetable: Timetable;
  readonly #runner: Runner;
  readonly #data: DataSchedules;
  readonly #damaged: DamagedLines;
  readonly #pauses: Pauses;
  readonly #claims: Claims;
  readonly #triggers: Triggers;
  readonly #loading: Loading;
  readonly #changes: DataChanges;
  readonly #polls: Polls;
  readonly #naps: Naps;
  /** Steps and polls fail independently, so each has its own outage. */
  readonly #stepOutage: Outage;
  /** The step that waits for its confirmation. */
  #step: Step | undefined;

  constructor(parts: SchedulerTermParts) {
    this.#parts = parts;
    const { clock, events, store, entries: code, handlers, term } = parts;
    const report = (error: unknown): void => events.emit("error", error);
    const data = new DataSchedules({ code, handlers, report });
    const entries = { get: (name: string): ScheduleEntry | undefined => code.get(name) ?? data.active.get(name) };
    const register = new Register({ store, term, onDoubt: report });
    const timetable = new Timetable({ ...parts, failed: report });
    const runner = new Runner({
      ...parts,
      entries,
      finished: (tick) => claims.end(tick),
      left: (claimed) => claims.leave(claimed),
    });
    const damaged = new DamagedLines(report);
    const pauses = new Pauses({ clock, register, timetable, runner });
    const claims = new Claims({ clock, events, register, timetable, runner, pauses, onEnd: () => this.nudge() });
    const triggers = new Triggers({ clock, events, election: term.election, timetable, claims, entries });
    const shared = { clock, store, register, timetable, data, claims, pauses, damaged, report };
    const changes = new DataChanges({ ...shared, forget: (name) => this.forget(name) });
    const loading = new Loading({ ...shared, entries: code, untilMsOf: (name) => changes.untilMsOf(name) });
    const polls = new Polls({
      ...shared,
      onOrders: () => pauses.applyOrders(),
      onEnd: () => this.nudge(),
    });
    this.#naps = new Naps(clock);
    this.#stepOutage = new Outage(report);
    [this.#register, this.#timetable, this.#runner, this.#data] = [register, timetable, runner, data];
    [this.#damaged, this.#pauses, this.#claims, this.#triggers] = [damaged, pauses, claims, triggers];
    [this.#loading, this.#changes, this.#polls] = [loading, changes, polls];
    onAbort(parts.over, () => runner.end());
  }

  /** Looks at the schedules immediately. */
  nudge(): void {
    this.#naps.wake();
  }

  /** Looks for orders immediately. */
  hear(): void {
    this.#polls.hurry();
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

  /** Runs the schedules. Resolves when the term has ended or was asked to end, and no handler runs. Never rejects. */
  async run(): Promise<void> {
    const { term, clock, over } = this.#parts;
    while (!over.aborted && term.isCurrent()) await this.#naps.nap(await this.#try(), over);
    await this.#runner.idle();
    await this.#polls.settled();
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
      while (this.#step !== undefined || this.#claims.hasEnds) {
        if (!(await this.#write((step) => this.#claims.addEnds(step)))) return 0;
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
    const { term, over } = this.#parts;
    if (!this.#register.isTaken && !(await this.#takeOffice())) return await this.#untilOver();
    this.#polls.startIfDue();
    await this.#changes.prepare();
    if (over.aborted || !term.isCurrent()) return 0;
    if (!(await this.#write((step) => this.#compose(step)))) return await this.#untilOver();
    await this.#changes.applyConfirmed();
    if (!this.#loading.isDone || !term.isCurrent()) return 0;
    const waitMs = Math.min(LONGEST_SLEEP_MS, this.#polls.untilNextMs(), this.#timetable.untilTickMs());
    return Math.max(0, Math.ceil(waitMs));
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
    this.#pauses.applyOrders();
    for (const each of confirmed) each();
    return true;
  }

  /** Reads the register. Resolves with false if a newer term was seen. @throws QuorumUnreachableError */
  async #takeOffice(): Promise<boolean> {
    const { clock } = this.#parts;
    if (!(await this.#register.take(new Slice(clock)))) return false;
    const triggers = new Map<string, NonNullable<ReturnType<typeof triggerOf>>>();
    const slice = new Slice(clock);
    for (const [field, line] of this.#register.fields) {
      if (slice.isOver) await slice.another();
      const trigger = field.startsWith(TRIGGER) ? triggerOf(field, line) : undefined;
      if (!isValidLine(field, line)) this.#damaged.remove(field, line);
      else if (field.startsWith(NOTE)) this.#claims.inherit(field);
      else if (trigger !== undefined) triggers.set(field, trigger);
    }
    this.#triggers.restore(triggers);
    await this.#changes.restore(slice);
    return true;
  }

  #compose(step: Step): void {
    this.#damaged.addTo(step);
    this.#addOrders(step);
    this.#loading.addTo(step);
    this.#triggers.addTo(step);
    this.#claims.addEnds(step);
    this.#triggers.forgetOld(step);
    this.#claims.addDue(step);
    if (!this.#loading.isDone) return;
    this.#changes.addTo(step);
    this.#changes.tidy(step);
  }

  /** Adds the orders of the mailboxes. */
  #addOrders(step: Step): void {
    this.#pauses.applyOrders();
    for (const [field, line] of this.#register.orders) {
      const trigger = field.startsWith(TRIGGER) ? triggerOf(field, line) : undefined;
      if (!isValidLine(field, line)) {
        step.expired.push(field);
        this.#damaged.report("mailbox", field, line);
      } else if (isDefinitionField(field)) {
        // A change of definitions waits until the ticks that were due before it are claimed: see data-changes.ts.
      } else if (trigger === undefined) step.changes.set(field, line);
      else this.#triggers.addOrder(step, field, line, trigger);
    }
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
