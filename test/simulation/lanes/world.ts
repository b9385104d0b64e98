/**
 * One real Redis with one queue and its workers. The workers are BullMQ's own, and send their commands through the lane
 * under test.
 */
import { type RedisServer, startRedis } from "@x/test-support";
import type { Job, Queue, Worker } from "bullmq";
import { Redis } from "ioredis";
import type { ComposedScript, LaneRules, LaneScripts } from "../../../packages/workers/src/bullmq/rules/compose.ts";
import type { Lane } from "../../../packages/workers/src/lane/lane.ts";
import type { LaneLocks } from "../../../packages/workers/src/lane/taken-job.ts";
import type { LaneCode } from "./load.ts";
import { LOCK_TTL_MS } from "./locks.ts";
import { LOCK_PREFIX, PREFIX, QUEUE } from "./names.ts";
import { type FetchingWorker, installed } from "./release.ts";
import type { LaneData, LaneSetting } from "./setting.ts";
import type { VirtualTime } from "./virtual-time.ts";

/** A worker without a loop: every command is a step of the schedule. Some of these methods are protected in BullMQ. */
export interface StepWorker extends FetchingWorker {
  /** Until this time the worker fetches nothing, because it knows that the limiter has no room. */
  limitUntil: number;
  nextJobFromJobData(data: object, id: string, token: string): Promise<Job<LaneData> | undefined>;
  moveStalledJobsToWait(): Promise<void>;
}

export interface Member {
  readonly worker: StepWorker;
  readonly lane: Lane;
}

const MEMBERS = 2;
/** Duration of job locks, longer than any schedule takes. The schedule itself ends locks. */
const LOCK_DURATION_MS = 600_000;
const REDIS_TIME = /(local function redisMs\(\))[^]*?\n {2}end/;

export class LaneWorld implements AsyncDisposable {
  readonly redis: Redis;
  /** Reads the state after each step. */
  readonly eyes: Redis;
  readonly queue: Queue<LaneData>;
  readonly #server: RedisServer;
  readonly #isServerOwn: boolean;
  readonly #workers: readonly Worker<LaneData>[];

  static async start(): Promise<LaneWorld> {
    const server = await startRedis();
    return new LaneWorld(server, true);
  }

  /**
   * Creates a world on the server of a caller. The server first forgets its scripts, because the scripts of a mutation
   * are not used again.
   */
  static async on(server: RedisServer): Promise<LaneWorld> {
    await server.call("SCRIPT", "FLUSH");
    return new LaneWorld(server, false);
  }

  private constructor(server: RedisServer, isServerOwn: boolean) {
    this.#server = server;
    this.#isServerOwn = isServerOwn;
    this.redis = new Redis({ path: server.path, maxRetriesPerRequest: null });
    this.eyes = new Redis({ path: server.path, maxRetriesPerRequest: null });
    this.queue = new installed.Queue<LaneData>(QUEUE, { connection: this.redis });
    this.#workers = Array.from({ length: MEMBERS }, () => {
      const worker = new installed.Worker<LaneData>(QUEUE, null, {
        connection: this.redis,
        autorun: false,
        lockDuration: LOCK_DURATION_MS,
        maxStalledCount: 2,
      });
      worker.on("error", () => undefined);
      return worker;
    });
  }

  /** Empties the queue, and attaches the lane of this code to the workers. */
  async reset(
    code: LaneCode,
    setting: Pick<LaneSetting, "rules" | "keyOf">,
    parts: { readonly time: VirtualTime; readonly locks: LaneLocks; readonly onParked: (jobs: number) => void },
  ): Promise<Member[]> {
    await this.redis.flushdb();
    const { lane, bullmq } = code;
    const { time, locks, onParked } = parts;
    const scripts = scriptsOf(code, setting.rules);
    return this.#workers.map((worker) => {
      const target = bullmq.targetOf(worker, new installed.Job(worker, "sample", {}));
      shareTargets(worker, bullmq);
      // Detaches the lane of the previous schedule, so that only the methods of BullMQ's class remain.
      for (const name of ["execCommand", "moveToFinishedArgs"]) Reflect.deleteProperty(target, name);
      const events = { onParked, onFault, onLimited: (): void => undefined };
      const own = new lane.Lane({
        scripts,
        keyOf: setting.keyOf,
        clock: time.clock,
        lockDurationMs: 30_000,
        events,
        locks,
      });
      own.attach(target);
      return { worker: worker as unknown as StepWorker, lane: own };
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker.close(true)));
    await this.queue.close();
    this.redis.disconnect();
    this.eyes.disconnect();
    if (this.#isServerOwn) await this.#server.stop();
  }
}

/**
 * Lets the jobs of this worker send their commands through the worker's lane, as the jobs of an `ExclusiveWorker` do.
 */
function shareTargets(worker: Worker, bullmq: LaneCode["bullmq"]): void {
  type Create = (...args: unknown[]) => Job;
  const { prototype } = installed.Worker as unknown as { readonly prototype: { readonly createJob: Create } };
  const own = worker as unknown as { createJob: Create };
  own.createJob = (...args) => bullmq.shareTarget(worker, prototype.createJob.apply(worker, args));
}

/**
 * Composed scripts by rules. Many schedules have the same rules, and composing costs as much as a tenth of a schedule.
 */
const composed = new WeakMap<LaneCode, Map<string, LaneScripts>>();

function scriptsOf(code: LaneCode, rules: LaneRules): LaneScripts {
  const known = composed.get(code) ?? new Map<string, LaneScripts>();
  composed.set(code, known);
  const { bullmq, compose, locks } = code;
  const lockRules = { lua: locks.embedded, prefix: LOCK_PREFIX, reserved: PREFIX, ttlMs: LOCK_TTL_MS };
  const name = JSON.stringify(rules);
  const scripts =
    known.get(name) ??
    onVirtualTime(compose.composeScripts(bullmq.checkScripts(bullmq.installedScripts()).scripts, rules, lockRules));
  known.set(name, scripts);
  return scripts;
}

/** Replaces the time of Redis in the scripts with the time of the schedule. */
function onVirtualTime({ commands, operate, cancel }: LaneScripts): LaneScripts {
  const entries = Object.entries(commands).map(([name, script]) => [name, virtual(script)]);
  return {
    commands: Object.fromEntries(entries) as LaneScripts["commands"],
    operate: virtual(operate),
    cancel: virtual(cancel),
  };
}

function virtual(script: ComposedScript): ComposedScript {
  const lua = script.lua.replace(REDIS_TIME, "$1\n    return tonumber(NOW)\n  end");
  if (lua === script.lua) throw new Error(`${script.name} does not ask for the time of Redis as known`);
  return { ...script, name: `virtual:${script.name}`, lua };
}

function onFault(fault: string): never {
  throw new Error(`a script of the lane failed: ${fault}`);
}
