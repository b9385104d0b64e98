/**
 * One call for all jobs that wait for a key (`whenBusy: "merge"`): the jobs that the call receives, and their outcomes.
 */
import type { JobOutcome } from "../../../packages/workers/src/job-run/rules/batch.ts";
import { type InLine, parseGather } from "../../../packages/workers/src/scripts/operator-replies.ts";
import { LaneViolation } from "./checks.ts";
import { placesIn } from "./lines.ts";
import type { MergedEnd, ModelJob } from "./model.ts";
import { PREFIX } from "./names.ts";
import { installed } from "./release.ts";
import type { Joined, LaneRun, Taken } from "./run.ts";
import type { LaneData } from "./setting.ts";

const OWN_END_CHANCE = 0.4;

/** Gives the waiting jobs to the call of a running job once more, as after `perKey.batch.wait`. */
export async function gather(run: LaneRun): Promise<void> {
  const taken = pickCall(
    run,
    [...run.taken.values()].filter(({ call }) => call?.isSettled !== true),
  );
  if (taken === undefined) return;
  const { setting, model } = run;
  const id = String(taken.job.id);
  const [key = ""] = model.job(id).keys;
  const most = (setting.rules.merge?.size ?? 1) - 1;
  const found = await ask(taken, most);
  run.note(`the call of ${id} has ${found.map((each) => each.id).join(", ") || "no others"}`);
  const expected = hasKey(run, id, key) ? await standing(run, key, most) : [];
  if (found.map((each) => each.id).join() !== expected.map((each) => each.id).join()) {
    throw new LaneViolation("merge", `the call of ${id} should have ${expected.map((each) => each.id).join(", ")}`);
  }
  if (found.length < most && hasKey(run, id, key)) await checkNoneWaits(run, key);
  taken.call = {
    isSettled: false,
    others: found.map(({ id: other, place, fields }) => ({
      model: model.job(other),
      job: installed.Job.fromJSON<LaneData>(run.world.queue, fields as never, other),
      place,
    })),
  };
}

/** Ends a call, so that the outcomes of its other jobs are stored. */
export async function settle(run: LaneRun): Promise<void> {
  const taken = pickCall(run, [...run.taken.values()]);
  if (taken !== undefined) await settleCall(run, taken);
}

/** Continues the call of a process that has lost its job. */
export async function goOnLate(run: LaneRun): Promise<void> {
  const taken = pickCall(run, run.late);
  if (taken === undefined) return;
  const id = String(taken.job.id);
  run.note(`the call of ${id} goes on too late`);
  if ((await ask(taken, 1)).length > 0) throw new LaneViolation("merge", `${id} is lost, and was given others`);
  const settled = await store(run, taken, taken.call?.others ?? []);
  if (settled !== undefined) throw new LaneViolation("merge", `${id} is lost, and its call counts`);
}

/** Returns whether the call counts. If the call does not count, its job must not complete. */
export async function settleCall(run: LaneRun, taken: Taken): Promise<boolean> {
  const { call } = taken;
  if (call === undefined || call.isSettled || call.others.length === 0) return true;
  const id = String(taken.job.id);
  const [key = ""] = run.model.job(id).keys;
  const gone = new Set<string>();
  for (const { model, place } of call.others) {
    // If the ID is used again, it belongs to another job. A job of a lost line still waits, and comes when it is due.
    const own = await run.world.eyes.hget(PREFIX + model.id, "ls");
    const isThere = run.model.open.get(model.id) === model && Number(own ?? "x") === Number(place);
    if (!isThere) gone.add(model.id);
  }
  const batch = new run.code.batch.Batch([taken.job, ...call.others.map(({ job }) => job)]);
  const returned = `of the call of ${id}`;
  const ends = new Map<string, MergedEnd>();
  for (const { job, model } of call.others) {
    const own = `its own, of ${model.id}`;
    const isOwn = run.random.chance(OWN_END_CHANCE);
    const fails = isOwn && run.random.chance(0.5);
    if (fails) batch.fail(job, new Error(own));
    else if (isOwn) batch.complete(job, own);
    ends.set(model.id, { by: id, value: isOwn ? own : returned, failure: fails ? own : undefined });
  }
  run.note(`the call of ${id} settles ${call.others.map(({ model }) => model.id).join(", ")}`);
  const others = call.others.map((other) => ({ ...other, outcome: batch.outcomeOf(other.job, returned) }));
  const reply = await store(run, taken, others);
  const isOurs = hasKey(run, id, key);
  if (isOurs !== (reply !== undefined)) {
    throw new LaneViolation("merge", `the call of ${id} ${isOurs ? "does not count" : "counts, and has lost its key"}`);
  }
  if (reply === undefined) return false;
  call.isSettled = true;
  if (reply.toSorted().join() !== [...gone].toSorted().join()) {
    throw new LaneViolation(
      "merge",
      `${reply.join(", ") || "none"} should be ${[...gone].join(", ") || "none"} that left`,
    );
  }
  for (const { model } of call.others) if (!gone.has(model.id)) model.outcome = ends.get(model.id);
  return true;
}

/** Checks that a job that was handed out reports an outcome if and only if a call has set one. */
export function checkOutcome(run: LaneRun, { id, outcome }: ModelJob, told: string | undefined): void {
  const { parseOutcome } = run.code.batch;
  const given = told === undefined ? undefined : parseOutcome(told);
  if (outcome === undefined && given === undefined) return;
  if (outcome === undefined) throw new LaneViolation("merge", `${id} came with an end, and is to run`);
  if (given === undefined) throw new LaneViolation("merge", `${id} came to run, and ${outcome.by} has settled it`);
  if (given.by !== outcome.by) throw new LaneViolation("merge", `${id} was settled by ${outcome.by}, not ${given.by}`);
}

/** Returns how a job ends that a call has settled: without an error, or with the error that the call has set. */
export function endOf(run: LaneRun, { id, outcome }: ModelJob, told: string): { readonly error: Error | undefined } {
  const { parseOutcome, valueOf } = run.code.batch;
  let [value, error]: [unknown, Error | undefined] = [undefined, undefined];
  try {
    value = valueOf(parseOutcome(told));
  } catch (thrown) {
    error = thrown as Error;
  }
  const isRight = outcome?.failure === undefined ? value === outcome?.value : error?.message === outcome.failure;
  if (!isRight) throw new LaneViolation("merge", `${id} ends with ${String(error ?? value)}`);
  return { error };
}

/** Checks that a job that has ended, or goes back, keeps nothing of the outcome that a call has set. */
export async function checkTold(run: LaneRun, model: ModelJob): Promise<void> {
  model.outcome = undefined;
  if (run.setting.rules.merge === undefined) return;
  if ((await run.world.eyes.hexists(PREFIX + model.id, "lr")) === 1) {
    throw new LaneViolation("merge", `${model.id} keeps what a call has made of it`);
  }
}

async function ask({ job, token, member }: Taken, most: number): Promise<readonly InLine[]> {
  return parseGather(await member.lane.operate("gather", String(job.id), token, most));
}

/** Returns the IDs of the jobs that have left the line, or undefined if the call does not count. */
async function store(
  run: LaneRun,
  { job, token, member }: Taken,
  others: readonly (Joined & { readonly outcome?: JobOutcome })[],
): Promise<readonly string[] | undefined> {
  const id = String(job.id);
  const stored = others.flatMap(({ model, place, outcome = { value: "late" } }) => [
    model.id,
    place,
    run.code.batch.formatOutcome(outcome, id),
  ]);
  return ((await member.lane.operate("settle", id, token, ...stored)) as readonly string[] | null) ?? undefined;
}

/** Picks a job with one key that runs or has run. */
function pickCall({ random, setting }: LaneRun, jobs: readonly Taken[]): Taken | undefined {
  if (setting.rules.merge === undefined) return undefined;
  const calls = jobs.filter(({ job, outcome }) => {
    const { k } = job.data;
    return outcome === undefined && job.deferredFailure === undefined && (typeof k === "string" || k.length === 1);
  });
  return calls.length === 0 ? undefined : random.pick(calls);
}

function hasKey({ before }: LaneRun, id: string, key: string): boolean {
  return before.holders.get(key)?.has(id) === true;
}

/** Returns the jobs that a call may receive, in the order of their line. */
async function standing(run: LaneRun, key: string, most: number): Promise<readonly ModelJob[]> {
  const found: ModelJob[] = [];
  for (const [id, place] of await placesIn(run, key)) {
    const job = run.model.open.get(id);
    // A job with "defa" will be failed by BullMQ.
    const [own, isOver] = await run.world.eyes.hmget(PREFIX + id, "ls", "defa");
    const isThere = job !== undefined && Number(own ?? "x") === place;
    if (!isThere) continue;
    const mayNot = job.keys.length > 1 || job.lockPlace !== undefined || job.outcome !== undefined || isOver !== null;
    if (mayNot || found.length === most) break;
    found.push(job);
  }
  return found;
}

/**
 * Checks that the next job of the queue, which the lane has not looked at, does not wait for this key. The lane has
 * looked at each job in line: if a timer has brought such a job back, the call may not receive it.
 */
async function checkNoneWaits(run: LaneRun, key: string): Promise<void> {
  const { world, model, setting } = run;
  const { path } = setting.rules;
  // The key of the job may have to be computed first, or its line may be full.
  if (path === undefined || model.lineOf(key) !== undefined) return;
  const id = await world.eyes.lindex(`${PREFIX}wait`, -1);
  const job = id === null ? undefined : model.open.get(id);
  if (job?.keys.join() !== key || (await placesIn(run, key)).has(job.id)) return;
  throw new LaneViolation("merge", `${job.id} waits for ${key}, and nobody has looked at it`);
}
