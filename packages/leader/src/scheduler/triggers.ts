/**
 * Triggers: orders to run a schedule once. A trigger runs at most once within its lifetime, even if a copy of its order
 * arrives late.
 */
import type { Clock } from "@x/redlock-core";
import { DAY_MS, type Emitter } from "@x/redlock-core/kit";
import { UnknownScheduleError } from "../errors.ts";
import type { Claims } from "./claims.ts";
import { type SchedulerEvents, tellSkipped } from "./events.ts";
import { type Trigger, triggerLine } from "./rules/lines.ts";
import type { Step } from "./step.ts";
import type { NamedTick } from "./tick.ts";
import type { ScheduleEntry, Timetable } from "./timetable.ts";

interface TriggersParts {
  readonly clock: Clock;
  readonly events: Emitter<SchedulerEvents>;
  readonly election: string;
  readonly timetable: Timetable;
  readonly claims: Claims;
  /** Schedules that this process can run. */
  readonly entries: { get(name: string): ScheduleEntry | undefined };
}

/** Lifetime of a trigger. The time is far longer than a deployment, and longer than clocks differ. */
const LONGEST_TRIGGER_MS = DAY_MS;
/**
 * Started triggers are remembered longer than `LONGEST_TRIGGER_MS`, by more than leaders' clocks differ. A late copy of
 * a forgotten trigger is then too old.
 */
export const KNOWN_TRIGGER_MS: number = LONGEST_TRIGGER_MS + 3_600_000;

export class Triggers {
  readonly #parts: TriggersParts;
  /** Triggers that no step contains yet, by field. */
  readonly #waiting = new Map<string, Trigger>();
  /** Times of the started triggers, by field, the oldest first. */
  readonly #started = new Map<string, number>();
  /** Triggers that were reported because this process does not have their schedule. */
  readonly #reported = new Set<string>();

  constructor(parts: TriggersParts) {
    this.#parts = parts;
  }

  /** Records the triggers that the register contains. */
  restore(triggers: ReadonlyMap<string, Trigger & { readonly isTaken: boolean }>): void {
    const started: [field: string, atMs: number][] = [];
    for (const [field, trigger] of triggers) {
      if (trigger.isTaken) started.push([field, trigger.atMs]);
      else this.#waiting.set(field, trigger);
    }
    for (const [field, atMs] of started.toSorted((a, b) => a[1] - b[1])) this.#started.set(field, atMs);
  }

  /** Adds an order of a mailbox, unless it is too old. */
  addOrder({ changes, expired, confirmed }: Step, field: string, line: string, trigger: Trigger): void {
    if (this.#isTooOld(trigger)) {
      expired.push(field);
      confirmed.push(() => tellSkipped(this.#parts.events, trigger, "expired"));
    } else {
      changes.set(field, line);
      this.#waiting.set(field, trigger);
    }
  }

  /**
   * Starts triggers of schedules in this process, and drops expired triggers. Other triggers wait for a leader with
   * their schedule.
   */
  addTo(step: Step): void {
    const { events, election, timetable, claims, entries } = this.#parts;
    const { changes, confirmed } = step;
    for (const [field, trigger] of this.#waiting) {
      const track = timetable.get(trigger.name);
      if (this.#isTooOld(trigger)) {
        changes.set(field, "");
        confirmed.push(() => tellSkipped(events, trigger, "expired"));
      } else if (track !== undefined) {
        changes.set(field, triggerLine(trigger, true));
        this.#started.set(field, trigger.atMs);
        claims.addTriggered(step, track, trigger);
      } else {
        if (entries.get(trigger.name) !== undefined || this.#reported.has(field)) continue;
        this.#reported.add(field);
        events.emit("error", new UnknownScheduleError(election, trigger.name));
        continue;
      }
      this.#waiting.delete(field);
      this.#reported.delete(field);
    }
  }

  /** Forgets started triggers that no late copy can follow any more. */
  forgetOld({ changes }: Step): void {
    const nowMs = this.#parts.clock.wallMs();
    for (const [field, atMs] of this.#started) {
      if (nowMs - atMs < KNOWN_TRIGGER_MS) break;
      changes.set(field, "");
      this.#started.delete(field);
    }
  }

  #isTooOld({ atMs }: NamedTick): boolean {
    return this.#parts.clock.wallMs() - atMs > LONGEST_TRIGGER_MS;
  }
}
