/** The rule for how many jobs may stand in line: which jobs do not run by it, and when they may not. */
import type { Pin } from "../../../packages/workers/src/rules/entity-key.ts";
import { checkOnce, type HandOut, isOrdered, LaneViolation } from "./checks.ts";
import type { ModelJob } from "./model.ts";
import { PREFIX } from "./names.ts";
import type { LaneRun, Taken } from "./run.ts";
import { type LaneWorld } from "./world.ts";

type Dropped = Pin & { readonly kind: "dropped" };

/** What else becomes of a job that does not run. */
interface Ends {
  readonly die: () => Promise<void>;
  readonly fail: () => Promise<void>;
}

/** Before what is said of a job that does not run; not of one whose key is not known. */
const BAD = "\u001e";

/** A worker dies before it has ended a job that does not run. */
const DIES_CHANCE = 0.15;

/** Jobs that have left their line for a newer one, and wait to be told: their order does not count any more. */
export async function noteLeaving(run: LaneRun): Promise<void> {
  const { setting, world, model, time } = run;
  const { line } = setting.rules;
  if (!model.dropsOldest) return;
  const supersede = async (job: ModelJob): Promise<void> => {
    model.supersede(job, time.nowMs);
    if (job.phase === "running") return;
    // It had backed off, and stands in no line any more: others may run before it is told.
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

/** The first in line, whose place `newer` needs: it is to fail when it is taken. */
function leave(model: LaneRun["model"], job: ModelJob, newer: ModelJob | undefined): void {
  if (newer !== undefined) checkPlacesOf(job, newer);
  job.isLeaving = true;
  for (const name of job.keys) {
    job.displaced.add(name);
    // It may have backed off, and have had the key until then.
    model.key(name).owners.delete(job.id);
  }
}

/** Nobody runs that has left its line, or that a newer one has superseded. */
export function checkNewest({ id, isSuperseded, isLeaving }: ModelJob): void {
  if (isLeaving) throw new LaneViolation("line", `${id} runs after it has left its line for a newer one`);
  if (isSuperseded) throw new LaneViolation("line", `${id} runs after a newer one has superseded it`);
}

/** Ends a job that came and does not run. */
export async function drop(
  run: LaneRun,
  taken: Taken,
  handOut: HandOut,
  { pin: { as, key, by }, die, fail }: { readonly pin: Dropped } & Ends,
): Promise<void> {
  const line = run.model.lineOf(key);
  const wasSuperseded = run.model.open.get(handOut.id)?.isSuperseded === true;
  // One that waits for its retry, or its lock, may be superseded, brought back and taken in one step. One that was
  // superseded before is brought back by the next newer one, too, or by its own failure.
  const waiting = line?.interrupts === true ? run.model.open.get(handOut.id) : undefined;
  if (waiting?.phase === "delayed") {
    if (waiting.isSuperseded) run.model.hurry(waiting, run.time.nowMs, true);
    else if (run.model.owns(waiting)) run.model.supersede(waiting, run.time.nowMs);
  }
  const job = checkOnce(run.model, handOut, run.time.nowMs);
  // If it comes back, it waits for its locks behind all others.
  job.lockPlace = undefined;
  // Its end may bring another one that was told in the same step.
  if (as === "backlog") await noteLeaving(run);
  run.note(`${job.id} does not run: ${as} on ${key}, by ${by}`);
  run.turns.dropped(job);
  const newer = run.model.open.get(by);
  // It has left its line in a step before: since then, operators may have said something else of the key.
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
  // With rotation the lane looks ahead in the same step, by which a job of this key may leave the full line of another.
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
  // Which is an ordinary failure: it may be retried.
  if (as === "backlog" || taken.job.deferredFailure !== undefined) {
    job.starts += 1;
    run.model.front.delete(job.id);
    await fail();
    return;
  }
  await taken.job.moveToCompleted("not run", taken.token, false);
  run.model.complete(job);
}

/** Whoever gives way has the very same keys and is older, also if it comes back for its retry. */
function checkNewer({ model }: LaneRun, job: ModelJob, newer: ModelJob): void {
  if (newer.keys.toSorted().join() !== job.keys.toSorted().join()) {
    throw new LaneViolation("line", `${job.id} gave way to ${newer.id}, which has other keys`);
  }
  const isKnown = [job, newer].every(({ isAnew, displaced }) => !isAnew && displaced.size === 0);
  // Of two that ran beside each other, the one that failed last is the newer one.
  const areRetries = model.slots > 1 && job.starts > 0 && newer.starts > 0;
  if (!isKnown || areRetries || newer.priority !== job.priority || newer.number > job.number) return;
  throw new LaneViolation("line", `${job.id} gave way to ${newer.id}, which is older`);
}

/** Whoever leaves a full line came before the one that needs the place. */
function checkPlacesOf(job: ModelJob, newer: ModelJob): void {
  const isKnown = [job, newer].every(({ isAnew, starts }) => !isAnew && starts === 0);
  const isOlder = job.keys.some((key) => newer.keys.includes(key) && isOrdered(job, newer, key));
  if (isKnown && isOlder && newer.number < job.number) {
    throw new LaneViolation("line", `${job.id} left its line for ${newer.id}, which is older`);
  }
}

/** Are there no more than may? Whoever had its key already, and goes first, is not counted. */
export async function checkLines(run: LaneRun): Promise<void> {
  const { line: rules } = run.setting.rules;
  await noteLeaving(run);
  // A job of other keys is not superseded.
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
      // A job that was removed by hand stands there until its turn, also if its id is used again.
      if (Number(stored[index]) === place) standing.push(id);
    }
    const line = run.model.lineOf(key);
    if (line?.interrupts === true) checkInterrupted(run, key, standing);
    const known = run.model.key(key);
    // Where operators have said that fewer may, those that stand there stay.
    const most = Math.max(line?.max ?? Number.POSITIVE_INFINITY, known.standing);
    known.standing = standing.length;
    if (standing.length > most) throw new LaneViolation("line", `${standing.join(", ")} stand in line for ${key}`);
  }
}

/** Whoever has the key is to stop for the newer ones that stand in line for it. */
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

/** One field of each job; null: it has none. */
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
