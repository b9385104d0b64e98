/**
 * The schedules as data in one term: the definitions that the register contains, and a change of them that orders ask
 * for. A change is prepared in slices, and applied in slices when its step is confirmed.
 */
import { quote } from "@x/redlock-core/kit";
import type { Slice } from "../kit/slice.ts";
import { definitionsIn } from "./known.ts";
import type { ResolvedScheduleOptions } from "./options.ts";
import {
  DEFINITION,
  type Definition,
  definitionText,
  isDefinitionField,
  orderOf,
  SET,
  setLine,
  setOf,
  timesOf,
} from "./rules/definition.ts";
import type { TickHandler } from "./tick.ts";
import type { ScheduleEntry } from "./timetable.ts";

export interface DataEntry extends ScheduleEntry {
  readonly definition: Definition;
}

type Lines = Iterable<readonly [field: string, line: string]>;

/** A change of the definitions. */
export interface DefinitionChange {
  /** The orders that cause the change. The same orders need no other change. */
  readonly cause: string;
  /** Added schedules, and schedules with other values. */
  readonly entries: readonly DataEntry[];
  readonly removed: readonly string[];
  /** Removed schedules, schedules with other times, and the time of the change. Ticks up to this time are due. */
  readonly untilMs: ReadonlyMap<string, number>;
  /** Lines of the register. The line "" removes its field. */
  readonly lines: ReadonlyMap<string, string>;
  /** Orders without effect, because the set is newer. */
  readonly outdated: readonly string[];
}

interface DataSchedulesParts {
  /** Schedules in the code of this process, which hide schedules as data with the same names. */
  readonly code: ReadonlyMap<string, ScheduleEntry>;
  readonly handlers: ReadonlyMap<string, TickHandler>;
  readonly report: (error: Error) => void;
}

/** Orders are remembered for this time, longer than a late copy of an order is under way, and than clocks differ. */
const KNOWN_ORDER_MS = 25 * 3_600_000;

export class DataSchedules {
  readonly #parts: DataSchedulesParts;
  /** The definitions in force, by name. */
  readonly #all = new Map<string, DataEntry>();
  /** Schedules that this process can run, by name. */
  readonly #active = new Map<string, DataEntry>();
  /** Options that several schedules share, by their JSON. */
  readonly #options = new Map<string, ResolvedScheduleOptions>();
  /** Kinds and names that were reported. */
  readonly #reported = new Set<string>();

  /** The longest `catchupWindow` of any schedule as data so far. */
  longestWindowMs = 0;

  constructor(parts: DataSchedulesParts) {
    this.#parts = parts;
  }

  get active(): ReadonlyMap<string, DataEntry> {
    return this.#active;
  }

  has(name: string): boolean {
    return this.#all.has(name);
  }

  /** Returns the change that turns the definitions in force into the definitions of these lines and orders. */
  async prepare(fields: ReadonlyMap<string, string>, orders: Lines, slice: Slice): Promise<DefinitionChange> {
    const given = [...orders];
    const stored = new Map<string, string>();
    for (const [field, line] of fields) {
      if (slice.isOver) await slice.another();
      if (isDefinitionField(field)) stored.set(field, line);
    }
    const lines = new Map<string, string>();
    const outdated: string[] = [];
    const set = given.find(([field]) => field === SET);
    if (set !== undefined) lines.set(...set);
    const setVersion = setOf(set?.[1] ?? stored.get(SET) ?? "")?.version ?? 0;
    for (const [field, line] of given) {
      if (field === SET) continue;
      if ((orderOf(line)?.version ?? 0) > setVersion) lines.set(field, line);
      else outdated.push(field);
    }
    if (set !== undefined) {
      for (const [field, line] of stored)
        if (field !== SET && !lines.has(field) && (orderOf(line)?.version ?? 0) <= setVersion) lines.set(field, "");
    }
    for (const [field, line] of lines) stored.set(field, line);
    const { definitions, wrong } = await definitionsIn(stored, slice);
    for (const text of wrong)
      this.#reportOnce(`a schedule as data is damaged and has no effect: ${text.slice(0, 100)}`);
    const entries: DataEntry[] = [];
    const untilMs = new Map<string, number>();
    for (const definition of definitions.values()) {
      if (slice.isOver) await slice.another();
      const old = this.#all.get(definition.name)?.definition;
      if (old?.json === definition.json && old.sinceMs === definition.sinceMs) continue;
      if (old !== undefined && old.sinceMs !== definition.sinceMs) untilMs.set(definition.name, definition.sinceMs);
      const entry = this.#entryOf(definition);
      if (entry !== undefined) entries.push(entry);
    }
    const removed = [...this.#all.keys()].filter((name) => !definitions.has(name));
    // Versions are times, unless several calls have the same time.
    for (const name of removed)
      untilMs.set(name, Math.max(setVersion, orderOf(stored.get(DEFINITION + name) ?? "")?.version ?? 0));
    return { cause: causeOf(given), entries, removed, untilMs, lines, outdated };
  }

  /**
   * Applies a change in slices. Returns the active schedules that have other values, and the names of the schedules
   * that end.
   */
  async apply(
    { entries, removed }: DefinitionChange,
    slice: Slice,
  ): Promise<{ readonly changed: readonly DataEntry[]; readonly ended: readonly string[] }> {
    const changed: DataEntry[] = [];
    const ended: string[] = [];
    for (const name of removed) {
      if (slice.isOver) await slice.another();
      this.#all.delete(name);
      if (this.#active.delete(name)) ended.push(name);
    }
    for (const entry of entries) {
      if (slice.isOver) await slice.another();
      const { name } = entry;
      const known = this.#all.get(name);
      // Ticks that wait refer to the entry, so an entry is changed rather than replaced.
      const kept = known === undefined ? entry : Object.assign(known, entry);
      this.#all.set(name, kept);
      const wasActive = this.#active.has(name);
      const isActive = this.#update(name);
      if (wasActive && isActive) changed.push(kept);
      else if (wasActive) ended.push(name);
    }
    return { changed, ended };
  }

  /** Adds the schedules of a kind that has a handler now. */
  handled(kind: string): void {
    for (const [name, { definition }] of this.#all) if (definition.kind === kind) this.#update(name);
  }

  /** Called when the code of this process has added or removed a schedule. Returns whether a schedule as data ends. */
  codeChanged(name: string): boolean {
    const wasActive = this.#active.has(name);
    return !this.#update(name) && wasActive;
  }

  /**
   * Returns the lines that replace the set and the older orders by one set, so that removed schedules are forgotten.
   * Undefined if no order is old enough.
   */
  folded(fields: ReadonlyMap<string, string>, nowMs: number): ReadonlyMap<string, string> | undefined {
    const lines = new Map<string, string>();
    let version = 0;
    for (const [field, line] of fields) {
      const order = field.startsWith(DEFINITION) ? orderOf(line) : undefined;
      if (order === undefined || nowMs - order.version < KNOWN_ORDER_MS) continue;
      lines.set(field, "");
      version = Math.max(version, order.version);
    }
    if (version === 0) return undefined;
    const revision = setOf(fields.get(SET) ?? "")?.revision ?? 0;
    const texts = Array.from(this.#all.values(), ({ definition }) => definitionText(definition));
    return lines.set(SET, setLine({ revision, version, texts }, "folded"));
  }

  /** Makes a schedule active if this process can run it. Returns whether the schedule is active. */
  #update(name: string): boolean {
    const { code, handlers } = this.#parts;
    const entry = this.#all.get(name);
    const isHidden = entry !== undefined && code.has(name);
    const isActive = entry !== undefined && !isHidden && handlers.has(entry.definition.kind);
    if (isActive) this.#active.set(name, entry);
    else this.#active.delete(name);
    if (isHidden)
      this.#reportOnce(`${quote(name)} is in the code of this process: its stored schedule has no effect here`);
    else if (entry !== undefined && !isActive) {
      const kind = quote(entry.definition.kind);
      this.#reportOnce(
        `this process has no handler for schedules of kind ${kind}: they wait for a leader that has one`,
      );
    }
    return isActive;
  }

  #entryOf(definition: Definition): DataEntry | undefined {
    const { handlers } = this.#parts;
    const { name, kind } = definition;
    try {
      const { calendar, options } = timesOf(definition, this.#options);
      this.longestWindowMs = Math.max(this.longestWindowMs, options.catchupWindow);
      return { name, definition, calendar, options, handler: (tick) => handlers.get(kind)?.(tick) };
    } catch (error) {
      this.#reportOnce(`schedule ${quote(name)} has a value that this process does not know: ${String(error)}`);
      return undefined;
    }
  }

  #reportOnce(message: string): void {
    if (this.#reported.has(message)) return;
    this.#reported.add(message);
    this.#parts.report(new Error(message));
  }
}

/** Returns the orders for definitions as a short text. Equal orders have equal texts. */
export function causeOf(orders: Lines): string {
  return Array.from(orders, ([field, line]) => `${field} ${line.slice(0, 60)}`).join("\n");
}
