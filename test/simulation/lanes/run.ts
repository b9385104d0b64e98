/** One schedule under way: what the steps share. */

import type { Job } from "bullmq";
import type { SeededRandom } from "../../../packages/testing/src/world.ts";
import type { QueueLimits } from "./limits.ts";
import type { LaneCode } from "./load.ts";
import type { StepLocks } from "./locks.ts";
import type { LaneModel, ModelJob } from "./model.ts";
import type { LaneData, LaneSetting } from "./setting.ts";
import type { Snapshot } from "./snapshot.ts";
import { Turns } from "./turns.ts";
import type { VirtualTime } from "./virtual-time.ts";
import type { LaneWorld, Member } from "./world.ts";

/** A worker's slot: it keeps its token from job to job. */
export interface Slot {
  readonly member: Member;
  readonly token: string;
}

/** A job of a call that is not the one that runs. */
export interface Joined {
  readonly model: ModelJob;
  readonly job: Job<LaneData>;
  readonly place: string;
}

export interface Taken extends Slot {
  readonly job: Job<LaneData>;
  /** Token of the lock that the script acquired with the job. Undefined if it acquired none. */
  readonly lockToken: string | undefined;
  /** What the call of another job has made of it, as it was told. */
  readonly outcome?: string | undefined;
  /** The others of its call, once it was given them. */
  call?: { readonly others: readonly Joined[]; isSettled: boolean };
}

export class LaneRun {
  readonly random: SeededRandom;
  /** Draws what was added later, so that a seed stays what it is without. */
  readonly policies: SeededRandom;
  readonly world: LaneWorld;
  readonly code: LaneCode;
  readonly time: VirtualTime;
  readonly setting: LaneSetting;
  readonly members: readonly Member[];
  readonly model: LaneModel;
  readonly locks: StepLocks;
  readonly limits: QueueLimits;
  readonly turns: Turns;
  readonly log: string[] = [];
  /** Jobs that run, by id. */
  readonly taken = new Map<string, Taken>();
  /** What processes that have lost their job still hold for theirs. */
  readonly late: Taken[] = [];
  /** Jobs that failed for good, and can be retried by hand. */
  readonly failed = new Set<ModelJob>();
  /** Ids of jobs that were removed: they may be used again. */
  readonly freeIds: string[] = [];
  isPaused = false;
  /** Before the step. */
  before: Snapshot;
  handedOut = 0;
  #tokens = 0;
  #ids = 0;

  constructor(
    parts: Pick<
      LaneRun,
      "random" | "policies" | "world" | "code" | "time" | "setting" | "members" | "model" | "locks" | "limits"
    > & {
      readonly before: Snapshot;
    },
  ) {
    this.random = parts.random;
    this.policies = parts.policies;
    this.world = parts.world;
    this.code = parts.code;
    this.time = parts.time;
    this.setting = parts.setting;
    this.members = parts.members;
    this.model = parts.model;
    this.locks = parts.locks;
    this.limits = parts.limits;
    this.turns = new Turns(parts.setting, parts.model);
    this.before = parts.before;
  }

  note(text: string): void {
    this.log.push(`${String(this.time.nowMs).slice(-7)} ${text}`);
  }

  newSlot(): Slot {
    this.#tokens += 1;
    return { member: this.random.pick(this.members), token: `token-${this.#tokens}` };
  }

  newId(): string {
    if (this.freeIds.length > 0 && this.random.chance(this.setting.sameIdChance)) return this.freeIds.pop() ?? "";
    this.#ids += 1;
    return `job-${this.#ids}`;
  }

  pickKeys(): string[] {
    const { random } = this;
    const { keys, severalChance } = this.setting;
    if (!random.chance(severalChance)) return [random.pick(keys)];
    const several = keys.filter(() => random.chance(0.6));
    return several.length === 0 ? [random.pick(keys)] : random.chance(0.5) ? several : several.toReversed();
  }

  /** A job that runs, to be left. */
  pickTaken(): Taken | undefined {
    if (this.taken.size === 0) return undefined;
    const taken = this.random.pick([...this.taken.values()]);
    this.taken.delete(String(taken.job.id));
    return taken;
  }

  /** Removed by hand, or ended by somebody who knows no keys. */
  vanish(job: ModelJob, how: string): void {
    this.note(`${job.id} is ${how}`);
    this.model.vanish(job, this.time.nowMs, this.before.holders);
  }
}
