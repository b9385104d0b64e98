/**
 * Rotation: while a key waits for its turn, no other key starts more jobs than its weight.
 *
 * A key waits from the moment when the lane has looked at a job of the key, while the key has a free slot. The model
 * knows this moment. If the key was closed in the meantime, only the lane's own ring shows that the lane has looked
 * again.
 */
import { LaneViolation } from "./checks.ts";
import type { LaneModel, ModelJob } from "./model.ts";
import type { LaneSetting } from "./setting.ts";
import type { Snapshot } from "./snapshot.ts";

export class Turns {
  readonly #setting: LaneSetting;
  readonly #model: LaneModel;
  /** For each key that waits for its turn: the number of starts of every other key in the meantime. */
  readonly #waiting = new Map<string, Map<string, number>>();
  /** Starts that remain of a key's turn that began before an operator changed its policy. */
  readonly #former = new Map<string, number>();
  /** Keys that were paused or limited since the lane last looked at them. */
  readonly #closed = new Set<string>();

  constructor(setting: LaneSetting, model: LaneModel) {
    this.#setting = setting;
    this.#model = model;
  }

  /** Notes the start of a job that did not have its key yet. A job with several keys uses the turn of one key. */
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

  /** Notes a change of a key's policy. The key's next turn has as many starts as the new policy allows. */
  changes(name: string): void {
    this.#former.set(name, Math.max(this.#former.get(name) ?? 0, this.#weightOf(name)));
    for (const starts of this.#waiting.values()) starts.delete(name);
  }

  /** Notes that a job does not run. If it was its key's turn, the turn is used up. */
  dropped(job: ModelJob): void {
    for (const name of job.keys) this.#waiting.delete(name);
  }

  /** Called after each step. */
  observe(snapshot: Snapshot, nowMs: number): void {
    const { rules, severalChance } = this.#setting;
    if (rules.rotate === undefined || severalChance > 0) return;
    for (const name of this.#setting.keys) {
      if (this.#isClosed(name, nowMs) || this.#model.isWatched) this.#closed.add(name);
      else if (snapshot.ring.includes(name)) this.#closed.delete(name);
      if (!this.#isOpen(name, nowMs) || this.#closed.has(name)) this.#waiting.delete(name);
      else if (!this.#waiting.has(name) && this.#wasSeen(name, snapshot)) this.#waiting.set(name, new Map());
    }
  }

  #weightOf(name: string): number {
    return this.#model.key(name).policy?.weight ?? this.#setting.rules.rotate?.weights[name] ?? 1;
  }

  /** Reports whether a job of the key could start if no other key had jobs. */
  #isOpen(name: string, nowMs: number): boolean {
    const { owners, isExact, isRegular, healsAtMs } = this.#model.key(name);
    const hasJobs = this.#model.inPhase("ready").some(({ keys }) => keys.includes(name));
    const isRight = isExact && isRegular && healsAtMs < nowMs;
    return hasJobs && isRight && owners.size < this.#model.slotsOf(name);
  }

  #isClosed(name: string, nowMs: number): boolean {
    return this.#model.key(name).stop !== undefined || this.#model.limitedUntilMs(name) >= nowMs;
  }

  #wasSeen(name: string, { states }: Snapshot): boolean {
    return this.#model.inPhase("ready").some(({ id, keys }) => keys.includes(name) && states.get(id) === "delayed");
  }
}
