/**
 * A change of the schedules as data passes through three states: an order asks for it, a step contains it, a quorum has
 * the step. The change is applied only then, so that no other leader knows older schedules.
 */
import type { Clock } from "@x/redlock-core";
import { Slice } from "../kit/slice.ts";
import type { Claims } from "./claims.ts";
import { causeOf, type DataSchedules, type DefinitionChange } from "./data-schedules.ts";
import type { Pauses } from "./pauses.ts";
import type { Register } from "./register.ts";
import type { RegisterStore } from "./register-store.ts";
import { isDefinitionField } from "./rules/definition.ts";
import { isValidLine, PAUSE, removedMsOf, stateLine, stateOf } from "./rules/lines.ts";
import { MOST_CLAIMS, type Step } from "./step.ts";
import type { Timetable } from "./timetable.ts";
import { KNOWN_TRIGGER_MS } from "./triggers.ts";

interface DataChangesParts {
  readonly clock: Clock;
  readonly store: RegisterStore;
  readonly register: Register;
  readonly timetable: Timetable;
  readonly data: DataSchedules;
  readonly claims: Claims;
  readonly pauses: Pauses;
  readonly report: (error: unknown) => void;
  /** Stops a schedule that ends. */
  readonly forget: (name: string) => void;
}

/** Period of the search for removed schedules and orders that can be forgotten. */
const TIDY_MS = 3_600_000;

export class DataChanges {
  readonly #parts: DataChangesParts;
  /** The change that orders ask for, and the time at which this process learned of it. */
  #change: (DefinitionChange & { readonly heardMs: number }) | undefined;
  /** A change that a quorum has, and that is to be applied before the next step. */
  #confirmed: DefinitionChange | undefined;
  #nextTidyMs = 0;

  constructor(parts: DataChangesParts) {
    this.#parts = parts;
  }

  /** Applies the definitions that the register contains. */
  async restore(slice: Slice): Promise<void> {
    const { data, register } = this.#parts;
    await this.#apply(await data.prepare(register.fields, [], slice));
  }

  /** Prepares the change that orders ask for, unless it is prepared already. */
  async prepare(): Promise<void> {
    const { clock, register, data, timetable } = this.#parts;
    const orders = register.orders.filter(([field, line]) => isDefinitionField(field) && isValidLine(field, line));
    if (causeOf(orders) === (this.#change?.cause ?? "")) return;
    const change = await data.prepare(register.fields, orders, new Slice(clock));
    this.#change = { ...change, heardMs: Math.floor(clock.wallMs()) };
    timetable.limit(change.untilMs);
  }

  /** Returns the time at which the prepared change ends a schedule or changes its times. Undefined if it does not. */
  untilMsOf(name: string): number | undefined {
    return this.#change?.untilMs.get(name);
  }

  /**
   * Adds the change to a step. Ticks that were due before this process learned of the change are claimed by the old
   * definitions first.
   */
  addTo(step: Step): void {
    const { register, timetable, claims } = this.#parts;
    const change = this.#change;
    if (change === undefined || !timetable.isSettledAt(change.heardMs)) return;
    this.#change = undefined;
    const { changes, expired, confirmed } = step;
    for (const [field, line] of change.lines) changes.set(field, line);
    expired.push(...change.outdated);
    for (const name of change.removed) {
      const state = stateOf(changes.get(name) ?? register.fields.get(name));
      if (state !== undefined) changes.set(name, stateLine({ ...state, removedMs: change.heardMs }));
      if (register.fields.has(PAUSE + name)) changes.set(PAUSE + name, "");
      claims.dropUnfinished(step, name);
    }
    confirmed.push(() => {
      this.#confirmed = change;
    });
  }

  /** Applies the change that a quorum has, if there is one. */
  async applyConfirmed(): Promise<void> {
    const change = this.#confirmed;
    this.#confirmed = undefined;
    if (change !== undefined) await this.#apply(change);
  }

  /** Forgets schedules that were removed long ago, and orders that no late copy can follow any more. */
  tidy({ changes, confirmed }: Step): void {
    const { clock, store, register, data, report } = this.#parts;
    if (this.#change !== undefined || clock.monotonicMs() < this.#nextTidyMs) return;
    this.#nextTidyMs = clock.monotonicMs() + TIDY_MS;
    const nowMs = clock.wallMs();
    const { fields } = register;
    for (const [field, line] of data.folded(fields, nowMs) ?? []) changes.set(field, line);
    const forgotten: string[] = [];
    for (const [field, line] of fields) {
      if (field.includes(":") || changes.has(field) || forgotten.length >= MOST_CLAIMS) continue;
      if (nowMs - (removedMsOf(line) ?? nowMs) > KNOWN_TRIGGER_MS) forgotten.push(field);
    }
    for (const name of forgotten) changes.set(name, "");
    if (forgotten.length > 0) confirmed.push(() => void store.forget(forgotten).catch(report));
  }

  async #apply(change: DefinitionChange): Promise<void> {
    const { clock, store, timetable, data, pauses, forget } = this.#parts;
    const slice = new Slice(clock);
    const { changed, ended } = await data.apply(change, slice);
    store.cover(data.longestWindowMs);
    for (const name of ended) forget(name);
    for (const { name, definition } of changed) {
      if (slice.isOver) await slice.another();
      const track = timetable.get(name);
      if (track === undefined) continue;
      timetable.advance(track, definition.sinceMs);
      track.untilMs = Number.POSITIVE_INFINITY;
      pauses.applyTo(track);
    }
  }
}
