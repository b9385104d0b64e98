/** Steps of operators that begin and end to watch the queue, and the check of what the lane has counted meanwhile. */
import { LaneViolation } from "./checks.ts";
import type { ModelJob } from "./model.ts";
import { PREFIX } from "./names.ts";
import type { LaneRun } from "./run.ts";

const PAGE = 1_000;

/** Watches the queue. Jobs in line go on immediately. */
export async function watch(run: LaneRun): Promise<void> {
  run.note("watch the queue");
  await change(run, true);
  const { lane } = run.random.pick(run.members);
  await lane.operate("list", "0", PAGE);
}

/** Makes the queue exclusive again. */
export async function exclude(run: LaneRun): Promise<void> {
  run.note("watch the queue no longer");
  await change(run, false);
}

async function change(run: LaneRun, isWatched: boolean): Promise<void> {
  const isNew = (await run.random.pick(run.members).lane.operate("watch", isWatched ? "1" : "")) === 1;
  if (isNew !== (run.isToBeWatched !== isWatched))
    throw new LaneViolation("facts", `the queue was ${isNew ? "not " : ""}watched`);
  run.isToBeWatched = isWatched;
  if (isNew && isWatched) run.early = { least: 0, most: 0 };
  run.model.watch(isWatched);
}

/** Notes the start of a job. A job that was given a slot and has not started counts as a holder, at most. */
export function noteEarly(run: LaneRun, job: ModelJob): void {
  const { model, before, early } = run;
  if (!model.isWatched) return;
  const isEarly = (name: string, others: Iterable<string>): boolean =>
    new Set([...others].filter((id) => id !== job.id && model.open.has(id))).size >= model.allowedOf(name);
  const ownersOf = (name: string): string[] => [...model.key(name).owners];
  const holdersOf = (name: string): ReadonlySet<string> => before.holders.get(name) ?? new Set();
  early.least += Number(
    job.keys.some((key) =>
      isEarly(
        key,
        ownersOf(key).filter((id) => holdersOf(key).has(id)),
      ),
    ),
  );
  early.most += Number(job.keys.some((key) => isEarly(key, [...ownersOf(key), ...holdersOf(key)])));
}

/** Checks the number of starts that exclusion would have delayed. */
export async function checkEarly(run: LaneRun): Promise<void> {
  if (!run.model.isWatched) return;
  const [overlaps, outOfOrder] = await run.world.eyes.hmget(`${PREFIX}lane:watched`, "overlaps", "outOfOrder");
  const counted = Number(overlaps) + Number(outOfOrder);
  const { least, most } = run.early;
  if (counted < least || counted > most) {
    throw new LaneViolation("facts", `${counted} early starts were counted, not ${least} to ${most}`);
  }
}
