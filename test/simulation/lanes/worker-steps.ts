/** Steps of workers: what they do with jobs, and how they die or stall. */
import type { Job } from "bullmq";
import * as calls from "./calls.ts";
import { checkHandOut, checkIdle, checkOnce, type HandOut, LaneViolation } from "./checks.ts";
import { checkNewest, DIES_CHANCE, drop, noteLeaving } from "./lines.ts";
import { PREFIX } from "./names.ts";
import { PAUSES_MS } from "./operator-steps.ts";
import { addJob } from "./producer-steps.ts";
import { fetchAsLoop, installed } from "./release.ts";
import type { LaneRun, Slot, Taken } from "./run.ts";
import { type LaneData, NEAR_MS } from "./setting.ts";
import { takeSnapshot } from "./snapshot.ts";
import { noteEarly } from "./watch-steps.ts";

/** The first round marks the running jobs. The second round brings back the jobs without a lock. */
const STALLED_ROUNDS = 2;
const FETCH_NEXT_CHANCE = 0.6;

export async function fetch(run: LaneRun): Promise<boolean> {
  const slot = run.newSlot();
  slot.member.worker.limitUntil = 0;
  return await receive(run, await fetchAsLoop(slot.member.worker, slot.token), slot);
}

/** Picks a running job, which its worker is about to leave. A cancelled job can only fail, and fails here. */
async function pickUncancelled(run: LaneRun): Promise<Taken | undefined> {
  const taken = run.pickTaken();
  if (taken === undefined || !run.model.job(String(taken.job.id)).isCancelled) return taken;
  await endCancelled(run, taken);
  return undefined;
}

async function endCancelled(run: LaneRun, taken: Taken): Promise<void> {
  const { job, token, member } = taken;
  const id = String(job.id);
  const dueMs = run.time.nowMs + NEAR_MS;
  const ways = {
    completes: () => job.moveToCompleted("done", token, run.random.chance(FETCH_NEXT_CHANCE)),
    "delays itself": () => job.moveToDelayed(dueMs, token),
    "backs off": () =>
      member.lane.moveBack({ jobId: id, token }, { backOffMs: NEAR_MS }, () => job.moveToDelayed(dueMs, token)),
    "waits for its lock": () =>
      member.lane.moveBack({ jobId: id, token }, { place: 1 }, () => job.moveToDelayed(dueMs, token)),
    "waits for children": () => job.moveToWaitingChildren(token),
  };
  const way = run.random.pick(Object.keys(ways) as (keyof typeof ways)[]);
  run.note(`${id} was cancelled, and ${way}`);
  const refusal = await ways[way]().then(
    () => undefined,
    (error: Error) => error.name,
  );
  if (refusal !== "JobCancelledError") throw new LaneViolation("cancellation", `${id} was cancelled, and ${way}`);
  await failCancelled(run, taken);
}

async function failCancelled(run: LaneRun, taken: Taken): Promise<void> {
  const id = String(taken.job.id);
  await failWith(run, taken, true);
  if ((await run.world.eyes.hexists(PREFIX + id, "lb")) === 1) {
    throw new LaneViolation("cancellation", `${id} has failed, and would fail again after a retry by hand`);
  }
}

export async function finish(run: LaneRun): Promise<void> {
  const taken = await pickUncancelled(run);
  if (taken !== undefined) await (mustFail(taken) ? failWith(run, taken, true) : complete(run, taken));
}

/**
 * Ends a job that a call has settled, or that BullMQ fails, without calling a processor. Returns whether the job was
 * such a job.
 */
async function endUnrun(run: LaneRun, taken: Taken): Promise<boolean> {
  if (mustFail(taken)) await failWith(run, taken, true);
  else if (taken.outcome === undefined) return false;
  else await complete(run, taken);
  return true;
}

export async function fail(run: LaneRun): Promise<void> {
  const taken = await pickUncancelled(run);
  if (taken?.outcome !== undefined) await endUnrun(run, taken);
  else if (taken !== undefined) await failWith(run, taken, mustFail(taken) || run.random.chance(0.2));
}

/** Finishes a job through a client that knows no keys. */
export async function finishElsewhere(run: LaneRun): Promise<void> {
  const taken = run.pickTaken();
  if (taken === undefined) return;
  const id = String(taken.job.id);
  await (await run.world.queue.getJob(id))?.moveToCompleted("done", taken.token, false);
  run.vanish(run.model.job(id), "finished elsewhere");
}

/** The processor delays its job. */
export async function delay(run: LaneRun): Promise<void> {
  const taken = await pickUncancelled(run);
  if (taken === undefined) return;
  if (taken.outcome !== undefined) return await complete(run, taken);
  const id = String(taken.job.id);
  const dueMs = run.time.nowMs + run.random.pick([NEAR_MS, 30 * NEAR_MS]);
  run.note(`delay ${id}`);
  await taken.job.moveToDelayed(dueMs, taken.token);
  run.model.postpone(run.model.job(id), "delay", dueMs, run.before);
}

/** The processor sends its job back to wait, with the job's keys, as for a rate limit of its own. */
export async function sendBack(run: LaneRun): Promise<void> {
  const taken = await pickUncancelled(run);
  if (taken === undefined) return;
  if (taken.outcome !== undefined) return await complete(run, taken);
  const id = String(taken.job.id);
  run.note(`${id} is sent back to wait`);
  await taken.job.moveToWait(taken.token);
  run.model.stalled(run.model.job(id));
}

/** Plain code holds the lock of the job's keys, so the job goes back to `delayed` with its keys. */
export async function yieldKeys(run: LaneRun): Promise<void> {
  const taken = await pickUncancelled(run);
  if (taken === undefined) return;
  if (await endUnrun(run, taken)) return;
  const { job, token, member } = taken;
  const id = String(job.id);
  const place = run.random.integer(1, 1_000_000);
  const dueMs = run.time.nowMs + 20 * NEAR_MS;
  run.note(`yield ${id}`);
  await member.lane.moveBack({ jobId: id, token }, { place }, async () => await job.moveToDelayed(dueMs, token));
  run.model.yieldTo(run.model.job(id), place, dueMs);
}

/** The processor leaves its keys alone for a while, so the job goes back to the head of their lines. */
export async function backOff(run: LaneRun): Promise<void> {
  const taken = await pickUncancelled(run);
  if (taken === undefined) return;
  if (await endUnrun(run, taken)) return;
  const { job, token, member } = taken;
  const id = String(job.id);
  const ms = run.random.pick(PAUSES_MS);
  const { nowMs } = run.time;
  run.note(`back off ${id} for ${ms} ms`);
  await member.lane.moveBack(
    { jobId: id, token },
    { backOffMs: ms },
    async () => await job.moveToDelayed(nowMs + ms, token),
  );
  run.model.backOff(run.model.job(id), nowMs + ms, run.before.holders);
}

/**
 * Wakes a delayed job because a lock is free. A job that waits for the lock runs next, unless its keys are gone. A job
 * that waits for its retry is not woken.
 */
export async function wake(run: LaneRun): Promise<void> {
  const delayed = run.model.inPhase("delayed");
  if (delayed.length === 0) return;
  const job = run.random.pick(delayed);
  run.note(`wake ${job.id}`);
  const isWoken = (await run.random.pick(run.members).lane.operate("wake", job.id)) === 1;
  const hasKeys = job.keys.every((key) => run.before.holders.get(key)?.has(job.id) === true);
  // If the job lost its key, or gave its slot up because one of its keys was closed, it may have received the key or
  // slot again.
  if (isWoken !== (job.lockPlace !== undefined && hasKeys)) {
    throw new LaneViolation("nothing stuck", `${job.id} was ${isWoken ? "" : "not "}woken`);
  }
  if (isWoken) run.model.hurry(job, run.time.nowMs, true);
}

/** The processor adds a child, and waits for the child without the job's keys. */
export async function spawnChild(run: LaneRun): Promise<void> {
  const taken = await pickUncancelled(run);
  if (taken === undefined) return;
  if (taken.outcome !== undefined) return await complete(run, taken);
  const id = String(taken.job.id);
  await addJob(run, { parent: id });
  run.note(`${id} waits for its child`);
  await taken.job.moveToWaitingChildren(taken.token);
  run.model.waitForChildren(run.model.job(id));
}

/** The process dies: the lock of its job ends, and the check for stalled jobs brings the job back. */
export async function kill(run: LaneRun): Promise<void> {
  const taken = run.pickTaken();
  if (taken !== undefined) await bringBack(run, taken, "killed");
}

/** Like `kill`, but the process is only slow, and tries to end the job later. */
export async function stall(run: LaneRun): Promise<void> {
  const taken = run.pickTaken();
  if (taken === undefined) return;
  await bringBack(run, taken, "stalled");
  run.late.push(taken);
}

export async function endLate(run: LaneRun): Promise<void> {
  const taken = run.late.shift();
  if (taken === undefined) return;
  const { job, token } = taken;
  const id = String(job.id);
  const ends = { id, token: taken.lockToken, isLate: true, hasSlots: true };
  const ways = {
    complete: () =>
      run.locks.releaseWith(ends, () => job.moveToCompleted("late", token, run.random.chance(FETCH_NEXT_CHANCE))),
    fail: () => job.moveToFailed(new installed.UnrecoverableError("late"), token, run.random.chance(FETCH_NEXT_CHANCE)),
    retry: () => job.moveToFailed(new Error("late"), token, run.random.chance(FETCH_NEXT_CHANCE)),
    delay: () => job.moveToDelayed(run.time.nowMs + NEAR_MS, token),
  };
  const way = run.random.pick(Object.keys(ways) as (keyof typeof ways)[]);
  run.note(`${way} ${id} too late`);
  try {
    await ways[way]();
  } catch (error) {
    // Refusals of BullMQ have a negative code.
    if (Number((error as { readonly code?: unknown }).code) < 0) return;
    if ((error as Error).name === "JobCancelledError" && run.model.open.get(id)?.isCancelled === true) return;
    throw error;
  }
  throw new LaneViolation("late end", `${id} was ended by a process that had lost it`);
}

/** Checks and records the job that a worker was handed out. Resolves with false if the worker was handed out no job. */
async function receive(run: LaneRun, job: Job<LaneData> | undefined, slot: Slot): Promise<boolean> {
  if (job === undefined) {
    if (!run.isPaused && !run.limits.isReached(run.taken.size)) checkIdle(run.model, run.time.nowMs);
    return false;
  }
  const id = String(job.id);
  const arrival = slot.member.lane.handOut(id);
  arrival?.attachTo(job);
  const keys = arrival?.pin.kind === "keys" ? arrival.pin.keys : [];
  const inSlots = arrival?.slots === undefined ? "" : ` in slots ${arrival.slots.join(", ")}`;
  run.note(`fetch ${id} of ${keys.join(", ")}${inSlots}`);
  const slots = arrival?.slots ?? keys.map(() => 0);
  const handOut = { id, keys, lockPlace: arrival?.place, attemptsStarted: job.attemptsStarted, slots };
  if (arrival?.pin.kind === "dropped") {
    run.limits.checkStart(id, run.taken.size, isStartFree(run, job));
    const dropped = { ...slot, job, lockToken: undefined };
    const die = async (): Promise<void> => await bringBack(run, dropped, "killed");
    const fail = async (): Promise<void> => await failWith(run, dropped, mustFail(dropped));
    await drop(run, dropped, handOut, { pin: arrival.pin, die, fail });
    return true;
  }
  if (arrival?.pin.kind === "cancelled")
    return await receiveCancelled(run, { ...slot, job, lockToken: undefined }, handOut);
  if (run.model.open.get(id)?.isCancelled === true) {
    throw new LaneViolation("cancellation", `${id} was cancelled, and runs again`);
  }
  // With rotation, the lane also looks at the next jobs in the step that hands a job out, which may supersede that job.
  const handedOut = run.setting.rules.rotate === undefined ? undefined : run.model.open.get(id);
  if (handedOut !== undefined) checkNewest(handedOut);
  await noteLeaving(run);
  await noteGivenUp(run);
  checkHandOut(run.model, handOut, run.before, run.time.nowMs);
  if (handedOut === undefined) checkNewest(run.model.job(id));
  run.limits.checkStart(id, run.taken.size, isStartFree(run, job));
  calls.checkOutcome(run, run.model.job(id), arrival?.outcome);
  const isRun = job.deferredFailure === undefined && arrival?.outcome === undefined;
  if (isRun && !run.model.owns(run.model.job(id))) run.turns.began(run.model.job(id));
  // A job that BullMQ has failed uses up its turn, and does not run. A job that a call has settled has no turn.
  if (job.deferredFailure !== undefined) run.turns.dropped(run.model.job(id));
  if (isRun) noteEarly(run, run.model.job(id));
  run.model.begin(run.model.job(id), isRun ? run.time.nowMs : undefined, slots);
  const lockToken = run.locks.checkGrant(handOut, arrival);
  run.taken.set(id, { ...slot, job, lockToken, outcome: arrival?.outcome });
  run.handedOut += 1;
  return true;
}

/**
 * Notes the jobs that have returned, and moved to the front of their line because more jobs than allowed had their key.
 */
async function noteGivenUp({ world, setting, model, time }: LaneRun): Promise<void> {
  if (setting.keys.some((key) => model.key(key).wasLowered)) {
    model.observeGivenUp(await takeSnapshot(world.redis, setting.keys), time.nowMs);
  }
}

/** Reports whether the queue's limiter does not count this start. */
function isStartFree({ release }: LaneRun, { deferredFailure }: Job<LaneData>): boolean {
  return deferredFailure !== undefined && !release.countsFailedStarts;
}

/** A job was handed out that was cancelled, and does not run. */
async function receiveCancelled(run: LaneRun, taken: Taken, handOut: HandOut): Promise<true> {
  const { id } = handOut;
  run.limits.checkStart(id, run.taken.size, isStartFree(run, taken.job));
  const model = checkOnce(run.model, handOut, run.time.nowMs);
  if (!model.isCancelled) throw new LaneViolation("cancellation", `${id} does not run, and was not cancelled`);
  run.turns.dropped(model);
  model.lockPlace = undefined;
  model.starts += 1;
  run.model.front.delete(id);
  if (run.random.chance(DIES_CHANCE)) await bringBack(run, taken, "killed");
  else await failCancelled(run, taken);
  return true;
}

/** Reports whether BullMQ has marked the job because it stalled too often. In this case its worker fails the job. */
function mustFail({ job }: Taken): boolean {
  return job.deferredFailure !== undefined;
}

/** Reports whether the lane still knows that the job has its keys. */
function hasSlots({ model, before }: LaneRun, id: string): boolean {
  return model.job(id).keys.every((key) => before.holders.get(key)?.has(id));
}

async function complete(run: LaneRun, taken: Taken): Promise<void> {
  const { job, token } = taken;
  if (taken.outcome !== undefined) {
    const { error } = calls.endOf(run, run.model.job(String(job.id)), taken.outcome);
    if (error !== undefined) return await failWith(run, taken, false, error);
  } else if (!(await calls.settleCall(run, taken))) return await failWith(run, taken, false);
  const fetchNext = run.random.chance(FETCH_NEXT_CHANCE);
  run.note(`finish ${String(job.id)}${fetchNext ? ", and fetch" : ""}`);
  const ends = { id: String(job.id), token: taken.lockToken, isLate: false, hasSlots: hasSlots(run, String(job.id)) };
  const reply: unknown = await run.locks.releaseWith(ends, () => job.moveToCompleted("done", token, fetchNext));
  await calls.checkTold(run, run.model.job(String(job.id)));
  run.model.complete(run.model.job(String(job.id)));
  if (fetchNext) await receiveNext(run, reply, taken);
}

async function failWith(
  run: LaneRun,
  taken: Taken,
  forGood: boolean,
  error: Error = forGood ? new installed.UnrecoverableError("final") : new Error("a failure"),
): Promise<void> {
  const { job, token } = taken;
  const model = run.model.job(String(job.id));
  const isFinal = forGood || job.attemptsMade + 1 >= model.attempts;
  const { backoff } = job.opts;
  const backoffMs = typeof backoff === "object" ? (backoff.delay ?? 0) : 0;
  const fetchNext = run.random.chance(FETCH_NEXT_CHANCE);
  run.note(`fail ${model.id}${isFinal ? " for good" : ""}${fetchNext ? ", and fetch" : ""}`);
  // BullMQ ends a job that stalled too often without running it. The worker does the same for a job that a call has
  // settled.
  const ends = {
    id: model.id,
    token: mustFail(taken) || (taken.outcome !== undefined && isFinal) ? taken.lockToken : undefined,
    isLate: false,
    hasSlots: hasSlots(run, model.id),
  };
  const reply: unknown = await run.locks.releaseWith(ends, () => job.moveToFailed(error, token, fetchNext));
  await calls.checkTold(run, model);
  if (isFinal) {
    run.model.failForGood(model);
    if (model.parent === undefined && job.opts.removeOnFail !== true) run.failed.add(model);
  } else {
    run.model.postpone(model, "retry", run.time.nowMs + backoffMs, run.before);
    if (backoffMs === 0) run.model.retryAtOnce(model, job.opts.lifo);
  }
  // BullMQ fetches no other job together with an immediate retry, and before 5.73.3 none with a delayed retry.
  const isFetching = isFinal || (backoffMs > 0 && run.release.isDelayFetching);
  if (fetchNext && isFetching) await receiveNext(run, reply, taken);
}

/** Receives the job in a reply, as BullMQ's worker does. */
async function receiveNext(run: LaneRun, reply: unknown, { member, token }: Slot): Promise<void> {
  const [data, id] = Array.isArray(reply) ? (reply as [object | undefined, string]) : [];
  const next =
    data === undefined || data === null ? undefined : await member.worker.nextJobFromJobData(data, String(id), token);
  await receive(run, next, { member, token });
}

async function bringBack(run: LaneRun, { job }: Taken, how: string): Promise<void> {
  const id = String(job.id);
  run.note(`${id} is ${how}`);
  await run.world.redis.del(`${PREFIX}${id}:lock`);
  const { worker } = run.random.pick(run.members);
  for (let round = 0; round < STALLED_ROUNDS; round += 1) {
    await run.world.redis.del(`${PREFIX}stalled-check`);
    await worker.moveStalledJobsToWait();
  }
  run.model.stalled(run.model.job(id));
}
