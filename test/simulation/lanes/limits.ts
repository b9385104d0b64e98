/** BullMQ's own limits: how many jobs of the queue start in a period, and how many run at a time. */
import type { Queue } from "bullmq";
import type { Redis } from "ioredis";
import { LaneViolation } from "./checks.ts";
import { PREFIX } from "./names.ts";
import type { LaneSetting } from "./setting.ts";

/** Period of the limiter, longer than any schedule takes. A new period begins when the schedule begins one. */
const PERIOD_MS = 600_000;

export class QueueLimits {
  readonly #redis: Redis;
  readonly #queue: Queue;
  #starts: number;
  #running: number;
  /** Starts that the limiter has counted in this period. */
  #counted = 0;

  constructor(redis: Redis, queue: Queue, { starts, running }: Pick<LaneSetting, "starts" | "running">) {
    this.#redis = redis;
    this.#queue = queue;
    this.#starts = starts;
    this.#running = running;
  }

  async apply(): Promise<void> {
    if (this.#starts < Number.POSITIVE_INFINITY) await this.#queue.setGlobalRateLimit(this.#starts, PERIOD_MS);
    await this.nextPeriod();
    if (this.#running < Number.POSITIVE_INFINITY) await this.#queue.setGlobalConcurrency(this.#running);
  }

  async lift(): Promise<void> {
    this.#starts = Number.POSITIVE_INFINITY;
    this.#running = Number.POSITIVE_INFINITY;
    await this.#queue.removeGlobalRateLimit();
    await this.#queue.removeGlobalConcurrency();
    await this.#redis.del(`${PREFIX}limiter`);
  }

  async nextPeriod(): Promise<void> {
    if (this.#starts === Number.POSITIVE_INFINITY) return;
    this.#counted = 0;
    await this.#redis.set(`${PREFIX}limiter`, this.#counted, "PX", PERIOD_MS);
  }

  get isLimited(): boolean {
    return Math.min(this.#starts, this.#running) < Number.POSITIVE_INFINITY;
  }

  /** Reports whether no further job may start while `running` jobs run. */
  isReached(running: number): boolean {
    return running >= this.#running || this.#counted >= this.#starts;
  }

  /**
   * Checks a job that was handed out. `isFree`: whether BullMQ does not count the job, because BullMQ ends it without
   * running it.
   */
  checkStart(id: string, running: number, isFree: boolean): void {
    if (this.isReached(running))
      throw new LaneViolation("queue limits", `${id} was handed out beyond what the queue allows`);
    if (this.#starts < Number.POSITIVE_INFINITY && !isFree) this.#counted += 1;
  }

  check(counted: number): void {
    if (this.#starts < Number.POSITIVE_INFINITY && counted !== this.#counted) {
      throw new LaneViolation("queue limits", `the limiter has counted ${counted} starts instead of ${this.#counted}`);
    }
  }
}
