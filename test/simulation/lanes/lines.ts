/** The limit of a line: which jobs do not run because of the limit, and when a job must not be refused. */
import type { Pin } from "../../../packages/workers/src/rules/entity-key.ts";
import { checkOnce, type HandOut, isOrdered, LaneViolation } from "./checks.ts";
import type { ModelJob } from "./model.ts";
import { PREFIX } from "./names.ts";
import type { LaneRun, Taken } from "./run.ts";
import { type LaneWorld } from "./world.ts";

type Dropped = Pin & { readonly kind: "dropped" };

/** How a job that does not run ends if its worker dies or if it fails. */
interface Ends {
  readonly die: () => Promise<void>;
  readonly fail: () => Promise<void>;
}

/** Prefix of the reason why a job does not run, unless the job's key is unknown. */
const BAD = "\u001e";

/** Chance that a worker dies before it has ended a job that does not run. */
export const DIES_CHANCE = 0.15;

/**
 * Notes the jobs that have left their line for a newer job, and whose end has not been reported. Their order no longer
 * counts.
 */
export async function noteLeaving(run: LaneRun): Promise<void> {
  const { setting, world, model, time } = run;
  const { line } = setting.rules;
  if (!model.dropsOldest) return;
  const supersede = async (job: ModelJob): Promise<void> => {
    model.supersede(job, time.nowMs);
    if (job.phase === "running") return;
    // The job had backed off, and is no longer in a line. Other jobs may run before its end is reported.
    for (const name of job.keys) {
      const key = model.key(name);
      const holder = key.owners.has(job.id) ? await world.redis.hget(`${PREFIX}lane:holders`, name) : job.id;
      if (holder !== job.id) key.owners.delete(job.id);
    }
  };
  const isSuperseding = line?.as === "superseded";
  const jobs = isSuperseding ? [...model.open.values()] : model.inPhase("ready", "delayed");
  const told = await fieldsOf(
    world,
    jobs.map(({ id }) => id),
    "lb",
  );
  for (const [index, job] of jobs.entries()) {
    const why = told[index];
    if (typeof why !== "string") continue;
    const [as, , by = ""] = why.split("\u001f");
    const newer = model.open.get(by);
    if (isSuperseding && !job.isSuperseded && newer !== undefined) checkNewer(run, job, newer);
    if (isSuperseding) await supersede(job);
    else if (as === `${BAD}backlog` && !job.isLeaving) leave(model, job, newer);
  }
}

/** Marks the first job in line, whose place `newer` needs. The job fails when it is fetched. */
function leave(model: LaneRun["model"], job: ModelJob, newer: ModelJob | undefined): void {
  if (newer !== undefined) checkPlacesOf(job, newer);
  job.isLeaving = true;
  for (const name of job.keys) {
    job.displaced.add(name);
    // The job may have backed off, and have kept the key until now.
    model.key(name).owners.delete(job.id);
  }
}

/** Throws if a job runs that has left its line, or that a newer job has superseded. */
export function checkNewest({ id, isSuperseded, isLeaving }: ModelJob): void {
  if (isLeaving) throw new LaneViolation("line", `${id} runs after it has left its line for a newer one`);
  if (isSuperseded) throw new LaneViolation("line", `${id} runs after a newer one has superseded it`);
}

/** Ends a job that was handed out and does not run. */
export async function drop(
  run: LaneRun,
  taken: Taken,
  handOut: HandOut,
  { pin: { as, key, by }, die, fail }: { readonly pin: Dropped } & Ends,
): Promise<void> {
  const line = run.model.lineOf(key);
  const wasSuperseded = run.model.open.get(handOut.id)?.isSuperseded === true;
  // A job that waits for its retry or its lock may be superseded, brought back and fetched in one step. A job that was
  // superseded before is also brought back by the next newer job, or by its own failure.
  const waiting = line?.interrupts === true ? run.model.open.get(handOut.id) : undefined;
  if (waiting?.phase === "delayed") {
    if (waiting.isSuperseded) run.model.hurry(waiting, run.time.nowMs, true);
    else if (run.model.owns(waiting)) run.model.supersede(waiting, run.time.nowMs);
  }
  const job = checkOnce(run.model, handOut, run.time.nowMs);
  // If the job returns, it waits for its locks behind all other jobs.
  job.lockPlace = undefined;
  // The end of the job may bring back another job that left its line in the same step.
  if (as === "backlog") await noteLeaving(run);
  run.note(`${job.id} does not run: ${as} on ${key}, by ${by}`);
  run.turns.dropped(job);
  const newer = run.model.open.get(by);
  // The job left its line in an earlier step. Since then an operator may have changed the policy of the key.
  const wasTold = job.isLeaving;
  job.isLeaving = false;
  const isAs = as === (wasTold ? "backlog" : line?.as);
  if (!isAs || !job.keys.includes(key)) throw new LaneViolation("line", `${job.id} does not run, as ${as}`);
  const dropped = wasTold ? undefined : line?.drop;
  if (dropped === "oldest" && as === "backlog") {
    if (newer === undefined || newer.phase === "running") {
      throw new LaneViolation("line", `${job.id} left its line for ${by}, which does not stand there`);
    }
    leave(run.model, job, newer);
    job.isLeaving = false;
  }
  const { rules, severalChance } = run.setting;
  // With rotation the lane also looks at the next jobs in the same step. A job of this key may thereby leave the full
  // line of another key.
  const mayShrink = rules.rotate !== undefined && run.model.dropsOldest && severalChance > 0;
  if (dropped === "newest" && !mayShrink && (await placesIn(run, key)).size < (line?.max ?? 0)) {
    throw new LaneViolation("line", `${job.id} does not run, but the line of ${key} is not full`);
  }
  if (dropped === "newest" && (await run.world.redis.hexists(PREFIX + job.id, "ls")) === 1) {
    throw new LaneViolation("line", `${job.id} does not run, though it stood in line for ${key}`);
  }
  if (as === "superseded" && newer !== undefined && !wasSuperseded) checkNewer(run, job, newer);
  if (run.random.chance(DIES_CHANCE)) {
    job.starts += 1;
    await die();
    return;
  }
  // The end is an ordinary failure, so the job may be retried.
  if (as === "backlog" || taken.job.deferredFailure !== undefined) {
    job.starts += 1;
    run.model.front.delete(job.id);
    await fail();
    return;
  }
  await taken.job.moveToCompleted("not run", taken.token, false);
  run.model.complete(job);
}

/** Checks that a superseded job has the same keys as the newer job and is older, even when it returns for its retry. */
function checkNewer({ model }: LaneRun, job: ModelJob, newer: ModelJob): void {
  if (newer.keys.toSorted().join() !== job.keys.toSorted().join()) {
    throw new LaneViolation("line", `${job.id} gave way to ${newer.id}, which has other keys`);
  }
  const isKnown = [job, newer].every(({ isAnew, displaced }) => !isAnew && displaced.size === 0);
  // If both jobs ran at the same time, the job that failed last is the newer one.
  const areRetries = model.slots > 1 && job.starts > 0 && newer.starts > 0;
  if (!isKnown || areRetries || newer.priority !== job.priority || newer.number > job.number) return;
  throw new LaneViolation("line", `${job.id} gave way to ${newer.id}, which is older`);
}

/** Checks that a job that leaves a full line is older than the job that needs the place. */
function checkPlacesOf(job: ModelJob, newer: ModelJob): void {
  const isKnown = [job, newer].every(({ isAnew, starts }) => !isAnew && starts === 0);
  const isOlder = job.keys.some((key) => newer.keys.includes(key) && isOrdered(job, newer, key));
  if (isKnown && isOlder && newer.number < job.number) {
    throw new LaneViolation("line", `${job.id} left its line for ${newer.id}, which is older`);
  }
}

/** Checks that no line is longer than its limit. A job that already had the key, and goes first, does not count. */
export async function checkLines(run: LaneRun): Promise<void> {
  const { line: rules } = run.setting.rules;
  await noteLeaving(run);
  // A job with other keys is not superseded.
  if (!run.model.limitsLines || (rules?.as === "superseded" && run.setting.severalChance > 0)) return;
  for (const key of run.setting.keys.filter((name) => !run.model.key(name).wasLost)) {
    const standing: string[] = [];
    const places = [...(await placesIn(run, key))].filter(([, place]) => place > 0);
    const stored = await fieldsOf(
      run.world,
      places.map(([id]) => id),
      "ls",
    );
    for (const [index, [id, place]] of places.entries()) {
      // A job that was removed by hand stays in the line until its turn, even if its ID is used again.
      if (Number(stored[index]) === place) standing.push(id);
    }
    const line = run.model.lineOf(key);
    if (line?.interrupts === true) checkInterrupted(run, key, standing);
    const known = run.model.key(key);
    // If an operator has lowered the limit, jobs that are already in line stay.
    const most = Math.max(line?.max ?? Number.POSITIVE_INFINITY, known.standing);
    known.standing = standing.length;
    if (standing.length > most) throw new LaneViolation("line", `${standing.join(", ")} stand in line for ${key}`);
  }
}

/** Checks that the job that has the key was asked to stop for the newer jobs in line. */
function checkInterrupted({ model }: LaneRun, key: string, standing: readonly string[]): void {
  const [id = ""] = model.key(key).owners;
  const owner = model.open.get(id);
  if (owner === undefined || owner.isSuperseded || owner.displaced.size > 0) return;
  for (const id of standing) {
    const job = model.open.get(id);
    if (
      job === undefined ||
      job.starts > 0 ||
      job.number <= owner.newestBefore ||
      job.keys.length !== owner.keys.length
    )
      continue;
    throw new LaneViolation("line", `${id} stands in line for ${key}, and ${owner.id} is not to stop`);
  }
}

const FIELDS = `
  local fields = {}
  for i = 2, #ARGV do fields[i - 1] = redis.call('HGET', ARGV[i], ARGV[1]) end
  return fields`;

/** Returns one field of each job. Null if a job does not have the field. */
async function fieldsOf({ eyes }: LaneWorld, ids: readonly string[], field: string): Promise<unknown[]> {
  if (ids.length === 0) return [];
  return (await eyes.eval(FIELDS, 0, field, ...ids.map((id) => PREFIX + id))) as unknown[];
}

export async function placesIn({ world }: Pick<LaneRun, "world">, key: string): Promise<Map<string, number>> {
  const replies = await world.eyes.zrange(`${PREFIX}lane:line=${key}`, "0", "-1", "WITHSCORES");
  const places = new Map<string, number>();
  for (let i = 0; i < replies.length; i += 2) places.set(replies[i] ?? "", Number(replies[i + 1]));
  places.delete("!:paused");
  return places;
}
