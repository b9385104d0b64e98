/** The rule for how many jobs may stand in line: which jobs do not run by it, and when they may not. */
import type { Arrival } from "../../../packages/workers/src/lane/lane.ts";
import { checkOnce, type HandOut, LaneViolation } from "./checks.ts";
import type { LaneRun, Taken } from "./run.ts";
import { PREFIX } from "./world.ts";

type Dropped = Arrival["pin"] & { readonly kind: "dropped" };

/** Jobs that have left their line for a newer one, and wait to be told: their order does not count any more. */
export async function noteLeaving({ setting, world, model }: LaneRun): Promise<void> {
  if (setting.rules.line?.drop !== "oldest") return;
  for (const job of model.inPhase("ready")) {
    if ((await world.redis.hexists(PREFIX + job.id, "lb")) === 0) continue;
    for (const name of job.keys) job.displaced.add(name);
  }
}

/** Ends a job that came and does not run. */
export async function drop(run: LaneRun, taken: Taken, handOut: HandOut, { as, key, by }: Dropped): Promise<void> {
  const { line } = run.setting.rules;
  const job = checkOnce(run.model, handOut, run.time.nowMs);
  run.note(`${job.id} does not run: ${as} on ${key}, by ${by}`);
  if (as !== line?.as || !job.keys.includes(key)) throw new LaneViolation("line", `${job.id} does not run, as ${as}`);
  if (line.drop === "newest" && (await placesIn(run, key)).size < line.max) {
    throw new LaneViolation("line", `${job.id} does not run, but the line of ${key} is not full`);
  }
  if (line.drop === "newest" && (await run.world.redis.hexists(PREFIX + job.id, "ls")) === 1) {
    throw new LaneViolation("line", `${job.id} does not run, though it stood in line for ${key}`);
  }
  const newer = as === "superseded" ? run.model.open.get(by) : undefined;
  const isInOrder =
    newer !== undefined && [job, newer].every(({ starts, displaced }) => starts === 0 && displaced.size === 0);
  if (isInOrder && newer.priority === job.priority && newer.number < job.number) {
    throw new LaneViolation("line", `${job.id} gave way to ${by}, which is older`);
  }
  if (newer !== undefined && newer.keys.toSorted().join() !== job.keys.toSorted().join()) {
    throw new LaneViolation("line", `${job.id} gave way to ${by}, which has other keys`);
  }
  await taken.job.moveToCompleted("not run", taken.token, false);
  run.model.complete(job);
}

/** Are there no more than may? Whoever had its key already, and goes first, is not counted. */
export async function checkLines(run: LaneRun): Promise<void> {
  const { line } = run.setting.rules;
  // A job of other keys is not superseded.
  if (line === undefined || (line.as === "superseded" && run.setting.severalChance > 0)) return;
  for (const key of run.setting.keys.filter((name) => !run.model.key(name).wasLost)) {
    const standing: string[] = [];
    for (const [id, place] of await placesIn(run, key)) {
      // A job that was removed by hand stands there until its turn, also if its id is used again.
      if (place >= 0 && Number(await run.world.redis.hget(PREFIX + id, "ls")) === place) standing.push(id);
    }
    if (standing.length > line.max) throw new LaneViolation("line", `${standing.join(", ")} stand in line for ${key}`);
  }
}

async function placesIn({ world }: LaneRun, key: string): Promise<Map<string, number>> {
  const replies = await world.redis.zrange(`${PREFIX}lane:line=${key}`, "0", "-1", "WITHSCORES");
  const places = new Map<string, number>();
  for (let i = 0; i < replies.length; i += 2) places.set(replies[i] ?? "", Number(replies[i + 1]));
  places.delete("!:paused");
  return places;
}
