/** Steps of producers, which add jobs. */

import { PREFIX } from "./names.ts";
import type { LaneRun } from "./run.ts";
import { NEAR_MS } from "./setting.ts";

export const ATTEMPTS = [1, 2, 4];
const DELAYS_MS = [NEAR_MS, 40 * NEAR_MS];
export const BACKOFFS_MS = [0, 30, 3_000];

/** Adds a job. `parent` is the ID of the job that waits for it. Default of `keys`: drawn. */
export async function addJob(
  run: LaneRun,
  options: {
    readonly parent?: string;
    readonly keys?: readonly string[];
    readonly delayMs?: number;
    readonly lifo?: boolean;
  } = {},
): Promise<void> {
  const { parent, keys = run.pickKeys(), delayMs = 0, lifo = false } = options;
  const { random, model, setting, world } = run;
  const id = run.newId();
  const priority = lifo ? 0 : random.integer(0, setting.priorities);
  const attempts = random.pick(ATTEMPTS);
  const backoffMs = random.pick(BACKOFFS_MS);
  const [key] = keys;
  run.note(
    `add ${id} of ${keys.join(", ")}${priority > 0 ? `, priority ${priority}` : ""}${delayMs > 0 ? ", delayed" : ""}${lifo ? ", to the front" : ""}`,
  );
  await world.queue.add(
    "step",
    { k: keys.length === 1 && key !== undefined ? key : keys },
    {
      jobId: id,
      attempts,
      priority,
      delay: delayMs,
      lifo,
      ...(backoffMs > 0 ? { backoff: { type: "fixed", delay: backoffMs } } : {}),
      removeOnComplete: random.chance(0.5),
      removeOnFail: random.chance(0.5),
      ...(parent === undefined
        ? {}
        : { parent: { id: parent, queue: PREFIX.slice(0, -1) }, ignoreDependencyOnFailure: true }),
    },
  );
  model.add({ id, keys, priority, attempts, parent });
  if (delayMs > 0) model.delay(id, run.time.nowMs + delayMs);
  if (lifo) model.reprioritize(model.job(id), priority, true);
}

export async function addDelayed(run: LaneRun): Promise<void> {
  await addJob(run, { delayMs: run.random.pick(DELAYS_MS) });
}

export async function addToFront(run: LaneRun): Promise<void> {
  await addJob(run, { lifo: true });
}

/** Adds many jobs of one key together. */
export async function addBurst(run: LaneRun): Promise<void> {
  const { burst, keys } = run.setting;
  const key = keys[0] ?? "";
  const ids = Array.from({ length: burst }, () => run.newId());
  const options = { attempts: 1, removeOnFail: true };
  await run.world.queue.addBulk(ids.map((id) => ({ name: "step", data: { k: key }, opts: { ...options, jobId: id } })));
  for (const id of ids) {
    run.model.add({ id, keys: [key], priority: 0, attempts: 1, parent: undefined });
  }
  run.note(`add ${burst} jobs of ${key}`);
}
