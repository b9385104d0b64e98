/**
 * The lanes of `@x/workers`, step by step: BullMQ's scripts with ours in them, on one real Redis, driven in seeded random order. One
 * step is one command; after each, the model of what may run is compared with what was handed out.
 */
import { setTimeout as delay } from "node:timers/promises";
import type { ExclusiveWorker } from "@x/workers";
import type { Job, Queue } from "bullmq";
import type { Redis } from "ioredis";
import type { SeededRandom } from "../world/random.ts";

export interface LaneData {
  readonly k: string;
  readonly i: number;
}

export interface LaneParts {
  readonly random: SeededRandom;
  readonly redis: Redis;
  readonly queue: Queue<LaneData>;
  readonly workers: readonly ExclusiveWorker<LaneData>[];
}

interface Taken {
  readonly job: Job<LaneData>;
  readonly token: string;
}

const KEYS = ["a", "b", "c"];
const ATTEMPTS = 4;
const STEPS = [
  ...["add", "add", "add", "add", "fetch", "fetch", "fetch", "fetch", "finish", "finish", "finish", "fail", "kill"],
  ...["remove", "clean", "promote", "pause key", "resume key", "pause", "resume", "lose index"],
] as const;
const STALLED_ROUNDS = 2;
/** Recheck intervals that a lane may need to heal one after the other. */
const HEALING_ROUNDS = 400;

export class LaneRun {
  readonly problems: string[] = [];
  readonly log: string[] = [];
  readonly #parts: LaneParts;
  readonly #taken = new Map<string, Taken>();
  /** Jobs that are neither completed, failed for good, nor removed. */
  readonly #open = new Map<string, LaneData>();
  readonly #begun = new Set<string>();
  /** Keys whose order a step by hand has broken: a promoted job, a line that was lost. */
  readonly #disturbed = new Set<string>();
  readonly #pausedKeys = new Map<string, string | null>();
  #count = 0;
  #tokens = 0;
  completed = 0;

  constructor(parts: LaneParts) {
    this.#parts = parts;
  }

  async run(steps: number): Promise<void> {
    for (let step = 0; step < steps && this.problems.length === 0; step += 1) {
      await this.#step(this.#parts.random.pick(STEPS));
    }
    await this.#drain();
  }

  async #step(what: (typeof STEPS)[number]): Promise<void> {
    const { random, queue, workers, redis } = this.#parts;
    const [worker] = workers;
    const key = random.pick(KEYS);
    switch (what) {
      case "add":
        return await this.#add(key);
      case "fetch":
        await this.#fetch();
        return;
      case "finish":
        return await this.#end("finish");
      case "fail":
        return await this.#end("fail");
      case "kill":
        return await this.#kill();
      case "remove": {
        const id = this.#pickIdle();
        if (id === undefined) return;
        await (await queue.getJob(id))?.remove();
        this.#gone(id, "removed");
        return;
      }
      case "clean":
        if (random.chance(0.5)) for (const id of await queue.clean(0, 2, "delayed")) this.#gone(id, "cleaned");
        return;
      case "promote": {
        const [delayed] = await queue.getDelayed(0, 0);
        if (delayed === undefined) return;
        this.#note(`promote ${delayed.id ?? ""}`);
        await delayed.promote();
        return;
      }
      case "pause key":
        this.#note(`pause key ${key}`);
        await worker?.pauseKey(key);
        // Whoever has the key already, goes on; it may not have been fetched yet.
        this.#pausedKeys.set(key, await redis.hget(`bull:${queue.name}:lane:holders`, key));
        return;
      case "resume key":
        this.#note(`resume key ${key}`);
        this.#pausedKeys.delete(key);
        await worker?.resumeKey(key);
        return;
      case "pause":
        return await queue.pause();
      case "resume":
        return await queue.resume();
      case "lose index": {
        if (random.chance(0.7)) return;
        // The mark of a pause stands in the line, too.
        this.#note(`lose the line of ${key}`);
        this.#pausedKeys.delete(key);
        this.#disturbed.add(key);
        await redis.del(`bull:${queue.name}:lane:parked:${key}`);
        return;
      }
      default:
        throw new TypeError(`unknown step ${String(what satisfies never)}`);
    }
  }

  async #add(key: string): Promise<void> {
    this.#count += 1;
    const data = { k: key, i: this.#count };
    const job = await this.#parts.queue.add("step", data, { attempts: ATTEMPTS, jobId: `job-${this.#count}` });
    this.#open.set(String(job.id), data);
    this.#note(`add ${String(job.id)} of ${key}`);
  }

  async #fetch(): Promise<boolean> {
    const worker = this.#parts.random.pick(this.#parts.workers);
    this.#tokens += 1;
    const token = `token-${this.#tokens}`;
    const job = await worker.getNextJob(token, { block: false });
    if (job === undefined) return false;
    const id = String(job.id);
    const { k } = job.data;
    this.#note(`fetch ${id} of ${k}`);
    for (const other of this.#taken.values()) {
      if (other.job.data.k === k) this.#problem(`exclusion: ${id} and ${String(other.job.id)} of ${k} run at once`);
    }
    if (!this.#open.has(id)) this.#problem(`${id} was handed out after it had ended`);
    if (this.#pausedKeys.has(k) && this.#pausedKeys.get(k) !== id && !this.#begun.has(id))
      this.#problem(`${id} was handed out although ${k} is paused`);
    const earlier = [...this.#open].find(
      ([other, data]) => data.k === k && data.i < job.data.i && !this.#begun.has(other),
    );
    if (earlier !== undefined && !this.#begun.has(id) && !this.#disturbed.has(k)) {
      this.#problem(`order: ${id} of ${k} began before ${earlier[0]}`);
    }
    this.#begun.add(id);
    this.#taken.set(id, { job, token });
    return true;
  }

  async #end(how: "finish" | "fail"): Promise<void> {
    const { random } = this.#parts;
    if (this.#taken.size === 0) return;
    const [id, { job, token }] = random.pick([...this.#taken]);
    this.#taken.delete(id);
    this.#note(`${how} ${id}`);
    if (how === "finish") {
      await job.moveToCompleted("done", token, false);
      this.completed += 1;
      this.#open.delete(id);
      return;
    }
    await job.moveToFailed(new Error("a failure"), token, false);
    if ((await job.getState()) === "failed") this.#open.delete(id);
  }

  /** The process of a job is gone: its lock ends, and the check for stalled jobs brings it back. */
  async #kill(): Promise<void> {
    const { random, redis, queue, workers } = this.#parts;
    if (this.#taken.size === 0) return;
    const [id] = random.pick([...this.#taken]);
    this.#taken.delete(id);
    this.#note(`kill the process of ${id}`);
    await redis.del(`bull:${queue.name}:${id}:lock`);
    const checker = random.pick(workers) as unknown as { moveStalledJobsToWait(): Promise<void> };
    for (let round = 0; round < STALLED_ROUNDS; round += 1) {
      await redis.del(`bull:${queue.name}:stalled-check`);
      await checker.moveStalledJobsToWait();
    }
  }

  #pickIdle(): string | undefined {
    const idle = [...this.#open.keys()].filter((id) => !this.#taken.has(id));
    return idle.length === 0 ? undefined : this.#parts.random.pick(idle);
  }

  #gone(id: string, how: string): void {
    this.#note(`${id} is ${how}`);
    this.#open.delete(id);
  }

  /** Everything that is still open must come, in bounded time. */
  async #drain(): Promise<void> {
    const { queue, workers } = this.#parts;
    await queue.resume();
    for (const key of KEYS) await workers[0]?.resumeKey(key);
    this.#pausedKeys.clear();
    this.#note("drain");
    for (let round = 0; round < HEALING_ROUNDS && this.#open.size > 0 && this.problems.length === 0; round += 1) {
      while (this.#taken.size > 0) await this.#end("finish");
      if (!(await this.#fetch())) await delay(10);
    }
    while (this.#taken.size > 0) await this.#end("finish");
    for (const id of this.#open.keys()) {
      const state = await (await queue.getJob(id))?.getState();
      this.#problem(`${id} is ${state === undefined ? "lost" : `stuck in ${state}`}`);
    }
  }

  #note(text: string): void {
    this.log.push(text);
  }

  #problem(text: string): void {
    this.log.push(`*** ${text}`);
    this.problems.push(text);
  }
}
