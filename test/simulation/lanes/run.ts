/** The state of a schedule that its steps share. */

import type { Job } from "bullmq";
import type { SeededRandom } from "../../../packages/testing/src/world.ts";
import type { QueueLimits } from "./limits.ts";
import type { LaneCode } from "./load.ts";
import type { StepLocks } from "./locks.ts";
import type { LaneModel, ModelJob } from "./model.ts";
import { type Release, releaseOf } from "./release.ts";
import type { LaneData, LaneSetting } from "./setting.ts";
import type { Snapshot } from "./snapshot.ts";
import { Turns } from "./turns.ts";
import type { VirtualTime } from "./virtual-time.ts";
import type { LaneWorld, Member } from "./world.ts";

/** A worker's slot, which keeps its token from job to job. */
export interface Slot {
  readonly member: Member;
  readonly token: string;
}

/** A job of a call, other than the running job. */
export interface Joined {
  readonly model: ModelJob;
  readonly job: Job<LaneData>;
  readonly place: string;
}

export interface Taken extends Slot {
  readonly job: Job<LaneData>;
  /** Token of the lock that the script acquired with the job. Undefined if the script acquired no lock. */
  readonly lockToken: string | undefined;
  /** The outcome that another job's call has set for this job, as the lane reports it. */
  readonly outcome?: string | undefined;
  /** The other jobs of this job's call. Undefined until the call has received them. */
  call?: { readonly others: readonly Joined[]; isSettled: boolean };
}

export class LaneRun {
  readonly random: SeededRandom;
  /** Draws settings that were added later, so that older seeds keep their schedules. */
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
  readonly release: Release;
  readonly log: string[] = [];
  /** Running jobs, by job ID. */
  readonly taken = new Map<string, Taken>();
  /** Jobs that processes have lost and still run. */
  readonly late: Taken[] = [];
  /** Jobs that failed for good, which an operator can retry. */
  readonly failed = new Set<ModelJob>();
  /** IDs of removed jobs, which may be used again. */
  readonly freeIds: string[] = [];
  isPaused = false;
  /** The state of the queue before the step. */
  before: Snapshot;
  handedOut = 0;
  /** Whether an operator has asked to watch the queue. */
  isToBeWatched = false;
  /** Bounds of the number of starts that exclusion would have delayed, since the queue is watched. */
  early = { least: 0, most: 0 };
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
    this.release = releaseOf(parts.code.bullmq.installedScripts());
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

  /** Picks a running job, which its worker is about to leave. */
  pickTaken(): Taken | undefined {
    if (this.taken.size === 0) return undefined;
    const taken = this.random.pick([...this.taken.values()]);
    this.taken.delete(String(taken.job.id));
    return taken;
  }

  /** Notes that a job was removed by hand, or ended by a client without keys. */
  vanish(job: ModelJob, how: string): void {
    this.note(`${job.id} is ${how}`);
    this.model.vanish(job, this.time.nowMs, this.before.holders);
  }
}
