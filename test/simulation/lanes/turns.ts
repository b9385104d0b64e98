/**
 * Rotation: while a key waits for its turn, no other key starts more jobs than its weight.
 *
 * A key waits as soon as the lane has looked at a job of it, and while it has a free slot. It is told by the model; only
 * of one that was closed meanwhile does the lane's own ring say when it has looked again.
 */
import { LaneViolation } from "./checks.ts";
import type { LaneModel, ModelJob } from "./model.ts";
import type { LaneSetting } from "./setting.ts";
import type { Snapshot } from "./snapshot.ts";

export class Turns {
  readonly #setting: LaneSetting;
  readonly #model: LaneModel;
  /** Of each key that waits for its turn: the starts of the others meanwhile. */
  readonly #waiting = new Map<string, Map<string, number>>();
  /** Starts that the turn of a key may still have, if it began before operators said something else of the key. */
  readonly #former = new Map<string, number>();
  /** Keys that were paused or limited since the lane looked at them. */
  readonly #closed = new Set<string>();

  constructor(setting: LaneSetting, model: LaneModel) {
    this.#setting = setting;
    this.#model = model;
  }

  /** A job starts that had not its key yet. A job of several keys uses the turn of one of them. */
  began(job: ModelJob): void {
    const [name = ""] = job.keys;
    this.#waiting.delete(name);
    const left = this.#former.get(name) ?? 0;
    if (left > 0) {
      this.#former.set(name, left - 1);
      return;
    }
    for (const [other, starts] of this.#waiting) {
      const count = (starts.get(name) ?? 0) + 1;
      starts.set(name, count);
      if (count <= this.#weightOf(name)) continue;
      throw new LaneViolation("rotation", `${name} starts ${count} jobs while ${other} waits for its turn`);
    }
  }

  /** Operators say something else of the key: its next turn has as many starts as that says. */
  changes(name: string): void {
    this.#former.set(name, Math.max(this.#former.get(name) ?? 0, this.#weightOf(name)));
    for (const starts of this.#waiting.values()) starts.delete(name);
  }

  /** A job does not run: if it was its turn, that is used up. */
  dropped(job: ModelJob): void {
    for (const name of job.keys) this.#waiting.delete(name);
  }

  /** After each step. */
  observe(snapshot: Snapshot, nowMs: number): void {
    const { rules, severalChance } = this.#setting;
    if (rules.rotate === undefined || severalChance > 0) return;
    for (const name of this.#setting.keys) {
      if (this.#isClosed(name, nowMs)) this.#closed.add(name);
      else if (snapshot.ring.includes(name)) this.#closed.delete(name);
      if (!this.#isOpen(name, nowMs) || this.#closed.has(name)) this.#waiting.delete(name);
      else if (!this.#waiting.has(name) && this.#wasSeen(name, snapshot)) this.#waiting.set(name, new Map());
    }
  }

  #weightOf(name: string): number {
    return this.#model.key(name).policy?.weight ?? this.#setting.rules.rotate?.weights[name] ?? 1;
  }

  /** Could a job of the key start, but for the others? */
  #isOpen(name: string, nowMs: number): boolean {
    const { owners, isExact, isRegular, healsAtMs } = this.#model.key(name);
    const hasJobs = this.#model.inPhase("ready").some(({ keys }) => keys.includes(name));
    const isRight = isExact && isRegular && healsAtMs < nowMs;
    return hasJobs && isRight && owners.size < this.#model.slotsOf(name);
  }

  #isClosed(name: string, nowMs: number): boolean {
    return this.#model.key(name).stop !== undefined || this.#model.limitedUntilMs(name) >= nowMs;
  }

  #wasSeen(name: string, { places }: Snapshot): boolean {
    return this.#model.inPhase("ready").some(({ id, keys }) => keys.includes(name) && places.get(id) === "delayed");
  }
}
