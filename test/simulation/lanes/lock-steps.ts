/** Steps that change the locks of keys without a job. */
import type { LaneRun } from "./run.ts";

export async function lock(run: LaneRun): Promise<void> {
  const key = run.random.pick(run.setting.keys);
  run.note(`plain code locks ${key}, or waits for it`);
  await run.locks.lockByPlainCode(key);
}

export async function unlock(run: LaneRun): Promise<void> {
  const key = run.random.pick(run.setting.keys);
  run.note(`plain code gives ${key} up`);
  await run.locks.unlockByPlainCode(key);
}

export async function lapse(run: LaneRun): Promise<void> {
  const key = run.random.pick(run.setting.keys);
  run.note(`the lock of ${key} lapses`);
  await run.locks.lapse(key);
}
