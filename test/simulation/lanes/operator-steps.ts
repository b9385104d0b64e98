/** Steps of operators and other programs: changes of the queue, and of the lane's own keys. */
import { parseCancel, parseList } from "../../../packages/workers/src/scripts/operator-replies.ts";
import { LaneViolation } from "./checks.ts";
import type { ModelJob } from "./model.ts";
import { PREFIX } from "./names.ts";
import type { LaneRun } from "./run.ts";
import { NEAR_MS } from "./setting.ts";

const CLEANED = 2;
export const PAUSES_MS = [NEAR_MS / 5, 3 * NEAR_MS, 40 * NEAR_MS];

/** An operator retries a job that failed for good. */
export async function retry(run: LaneRun): Promise<void> {
  if (run.failed.size === 0) return;
  const model = run.random.pick([...run.failed]);
  run.failed.delete(model);
  const job = await run.world.queue.getJob(model.id);
  if (job === undefined) return;
  run.note(`retry ${model.id}`);
  await job.retry("failed");
  run.model.reopen(model);
  run.model.retryAtOnce(model, job.opts.lifo);
}

export async function remove(run: LaneRun): Promise<void> {
  await removeOne(run, run.model.inPhase("ready", "delayed"));
}

/** Removes a job that has its keys, and waits for its turn, its retry or its lock. */
export async function removeHolder(run: LaneRun): Promise<void> {
  const holders = new Set([...run.before.holders.values()].flatMap((ids) => [...ids]));
  await removeOne(
    run,
    run.model.inPhase("ready", "delayed").filter(({ id }) => holders.has(id)),
  );
}

async function removeOne(run: LaneRun, jobs: readonly ModelJob[]): Promise<void> {
  if (jobs.length === 0) return;
  const model = run.random.pick(jobs);
  await (await run.world.queue.getJob(model.id))?.remove();
  run.vanish(model, "removed");
  run.freeIds.push(model.id);
}

export async function clean(run: LaneRun): Promise<void> {
  const { queue } = run.world;
  for (const id of await queue.clean(0, CLEANED, run.random.pick(["delayed", "delayed", "wait", "prioritized"]))) {
    run.vanish(run.model.job(id), "cleaned");
    run.freeIds.push(id);
  }
  await forgetParents(run);
}

/** Removes all jobs that do not run. */
export async function drain(run: LaneRun): Promise<void> {
  await run.world.queue.drain(true);
  for (const model of run.model.inPhase("ready", "delayed")) run.vanish(model, "drained");
  await forgetParents(run);
}

/** Removes all jobs, even running jobs. */
export async function obliterate(run: LaneRun): Promise<void> {
  await run.world.queue.obliterate({ force: true });
  run.late.push(...run.taken.values());
  run.taken.clear();
  run.failed.clear();
  for (const model of run.model.open.values()) run.vanish(model, "obliterated");
  run.isPaused = await run.world.queue.isPaused();
  await run.limits.apply();
}

/** An operator promotes a delayed job. */
export async function promote(run: LaneRun): Promise<void> {
  const delayed = [...run.before.dues.keys()];
  if (delayed.length === 0) return;
  const id = run.random.pick(delayed);
  run.note(`promote ${id}`);
  await (await run.world.queue.getJob(id))?.promote();
  run.model.hurry(run.model.job(id), run.time.nowMs, false);
}

/** Changes the priority of a waiting job, possibly to the same priority. */
export async function changePriority(run: LaneRun): Promise<void> {
  const jobs = run.model.inPhase("ready", "delayed");
  if (jobs.length === 0) return;
  const model = run.random.pick(jobs);
  const [priority, lifo] = [run.random.integer(0, 2), run.random.chance(0.3)];
  run.note(`priority of ${model.id}: ${priority}${lifo ? ", to the front" : ""}`);
  await (await run.world.queue.getJob(model.id))?.changePriority({ priority, lifo });
  run.model.reprioritize(model, priority, lifo);
}

/** Begins the next period of the limiter. */
export async function nextPeriod(run: LaneRun): Promise<void> {
  run.note("next period");
  await run.limits.nextPeriod();
}

/** Lists the keys, which also passes on keys that a removed job still holds. */
export async function listKeys(run: LaneRun): Promise<void> {
  run.note("list the keys");
  const { keys } = parseList(await run.random.pick(run.members).lane.operate("list", "0", 1_000));
  for (const { key, holders } of keys) {
    for (const holder of holders) {
      if (run.model.open.has(holder)) continue;
      throw new LaneViolation("nothing stuck", `${key} is kept by ${holder}, which is gone`);
    }
  }
}

/** The key function of another worker throws for a job whose key is known. */
export async function failKey(run: LaneRun): Promise<void> {
  const jobs = run.model.inPhase("ready", "delayed");
  if (jobs.length === 0) return;
  const { id } = run.random.pick(jobs);
  if ((await run.world.redis.hexists(PREFIX + id, "lk")) === 0) return;
  run.note(`the key of ${id} fails elsewhere`);
  await run.random.pick(run.members).lane.operate("pin", id, "\u001ecannot be found");
}

/** Cancels a job, in any state. A job that does not run ends immediately. */
export async function cancel(run: LaneRun): Promise<void> {
  const jobs = [...run.model.open.values()].filter(({ isCancelled }) => !isCancelled);
  if (jobs.length === 0) return;
  const model = run.random.pick(jobs);
  const { id } = model;
  const job = await run.world.queue.getJob(id);
  // BullMQ's retry by hand forgets the starts of a job.
  const [place, startedOn] = await run.world.redis.hmget(PREFIX + id, "ls", "processedOn");
  const isParked = (place ?? null) !== null;
  const state = model.phase === "running" ? "running" : isParked ? "parked" : "waiting";
  run.note(`cancel ${id}, which is ${state}`);
  const note = JSON.stringify({ reason: "by hand", by: "an operator", atMs: run.time.nowMs });
  const { found } = parseCancel(await run.random.pick(run.members).lane.operate("cancel", id, note, "cancelled", 1));
  if (found !== state) throw new LaneViolation("cancellation", `${id} is ${state}, and was found as ${found}`);
  if (state === "running") {
    model.isCancelled = true;
    return;
  }
  // A job that was chosen and has not started stops no key.
  for (const name of model.keys) {
    const { owners } = run.model.key(name);
    if (run.before.holders.get(name)?.has(id) === true) owners.add(id);
    else owners.delete(id);
  }
  if ((startedOn ?? null) !== null) run.model.failForGood(model);
  else run.model.complete(model);
  run.turns.dropped(model);
  if (model.parent === undefined && job?.opts.removeOnFail !== true) run.failed.add(model);
}

export async function pauseKey(run: LaneRun): Promise<void> {
  const key = run.random.pick(run.setting.keys);
  run.note(`pause key ${key}`);
  await run.random.pick(run.members).lane.operate("pause", key, "by hand", "");
  run.model.stop(key, Number.POSITIVE_INFINITY);
}

/** Pauses a key for a limited time. */
export async function pauseKeyFor(run: LaneRun): Promise<void> {
  const key = run.random.pick(run.setting.keys);
  const ms = run.random.pick(PAUSES_MS);
  run.note(`pause key ${key} for ${ms} ms`);
  await run.random.pick(run.members).lane.operate("pause", key, "for a while", ms);
  run.model.stop(key, run.time.nowMs + ms);
}

export async function resumeKey(run: LaneRun, key: string = run.random.pick(run.setting.keys)): Promise<void> {
  run.note(`resume key ${key}`);
  await run.random.pick(run.members).lane.operate("resume", key);
  run.model.resume(key);
}

export async function pause(run: LaneRun): Promise<void> {
  run.note("pause");
  await run.world.queue.pause();
  run.isPaused = true;
}

export async function resume(run: LaneRun): Promise<void> {
  run.note("resume");
  await run.world.queue.resume();
  run.isPaused = false;
}

export async function loseLine(run: LaneRun): Promise<void> {
  const key = run.random.pick(run.setting.keys);
  run.note(`lose the line of ${key}`);
  await run.world.redis.del(`${PREFIX}lane:line=${key}`);
  run.model.loseLine(key, run.time.nowMs, run.before.holders);
}

export async function loseHolders(run: LaneRun): Promise<void> {
  run.note("lose the holders of all keys");
  await run.world.redis.del(`${PREFIX}lane:holders`, ...run.setting.keys.map((key) => `${PREFIX}lane:slots=${key}`));
  // Loses the policies as well, and the rule that the queue is watched. With several slots per key `lane:chosen` is kept, because nobody would look for a job that
  // was just given a further slot.
  if (run.model.slots === 1) await run.world.redis.del(`${PREFIX}lane:chosen`);
  run.isToBeWatched = false;
  run.model.loseHolders(run.time.nowMs);
}

export async function loseCounter(run: LaneRun): Promise<void> {
  run.note("lose the counter of arrivals");
  await run.world.redis.del(`${PREFIX}lane:seq`);
  run.model.loseCounter();
}

/** If BullMQ removes the last child of a job of the same queue in this way, BullMQ also removes the parent. */
async function forgetParents(run: LaneRun): Promise<void> {
  for (const parent of [...run.model.open.values()].filter(({ phase }) => phase !== "running")) {
    if ((await run.world.redis.exists(PREFIX + parent.id)) === 0) run.vanish(parent, "removed with its last child");
  }
}
