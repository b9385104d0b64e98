/**
 * Runs the lanes of `@x/workers` step by step: BullMQ's scripts with ours, on one real Redis, in seeded random order.
 * One step is one command. After each step, the hand-outs and the states of all jobs are compared with a model.
 */
import { SeededRandom } from "../../../packages/testing/src/world.ts";
import * as calls from "./calls.ts";
import { checkStates, type Invariant, LaneViolation } from "./checks.ts";
import { QueueLimits } from "./limits.ts";
import { checkLines } from "./lines.ts";
import type { LaneCode } from "./load.ts";
import * as plainCode from "./lock-steps.ts";
import { lockNames, StepLocks } from "./locks.ts";
import { LaneModel } from "./model.ts";
import { PREFIX } from "./names.ts";
import * as operators from "./operator-steps.ts";
import * as policySteps from "./policy-steps.ts";
import { ATTEMPTS, addBurst, addDelayed, addJob, addToFront, BACKOFFS_MS } from "./producer-steps.ts";
import { LaneRun } from "./run.ts";
import { drawSetting, drawStep, type Focus, type LaneSetting, NEAR_MS, type Step, WINDOW_MS } from "./setting.ts";
import { laneKeys, takeSnapshot } from "./snapshot.ts";
import { VirtualTime } from "./virtual-time.ts";
import * as watchSteps from "./watch-steps.ts";
import * as workers from "./worker-steps.ts";
import { type LaneWorld } from "./world.ts";

export interface LaneResult {
  readonly seed: string;
  readonly violation: { readonly invariant: Invariant; readonly message: string } | undefined;
  readonly setting: LaneSetting;
  readonly log: readonly string[];
  readonly steps: ReadonlyMap<Step, number>;
  readonly handedOut: number;
  readonly parked: number;
}

const STEPS = 120;
const WAITS_MS = [1, NEAR_MS / 5, NEAR_MS, NEAR_MS, 5 * NEAR_MS, 50 * NEAR_MS];
/** Chance that a lock outlives its run for another step. */
const ZOMBIE_CHANCE = 0.3;
const LONGEST_BACKOFF_MS = Math.max(...BACKOFFS_MS);
const MOST_RETRIES = Math.max(...ATTEMPTS) - 1;
/** The longest delay of a job. */
const LONGEST_DELAY_MS = 50 * NEAR_MS;

const take: Readonly<Record<Step, (run: LaneRun) => Promise<unknown>>> = {
  add: async (run) => await addJob(run),
  "add delayed": addDelayed,
  "add to front": addToFront,
  fetch: workers.fetch,
  finish: workers.finish,
  fail: workers.fail,
  "fail more": workers.fail,
  wait: async (run) => run.time.pass(run.random.pick(WAITS_MS)),
  retry: operators.retry,
  delay: workers.delay,
  "send back": workers.sendBack,
  yield: workers.yieldKeys,
  wake: workers.wake,
  "spawn child": workers.spawnChild,
  kill: workers.kill,
  stall: workers.stall,
  "late end": workers.endLate,
  "finish elsewhere": workers.finishElsewhere,
  remove: operators.remove,
  "remove holder": operators.removeHolder,
  clean: operators.clean,
  drain: operators.drain,
  obliterate: operators.obliterate,
  promote: operators.promote,
  "change priority": operators.changePriority,
  "next period": operators.nextPeriod,
  "list keys": operators.listKeys,
  "key fails": operators.failKey,
  cancel: operators.cancel,
  "pause key": operators.pauseKey,
  gather: calls.gather,
  settle: calls.settle,
  "late call": calls.goOnLate,
  "pause for": operators.pauseKeyFor,
  "window passes": async (run) => run.time.pass(WINDOW_MS - run.random.pick([0, 1, NEAR_MS])),
  "back off": workers.backOff,
  "resume key": async (run) => await operators.resumeKey(run),
  pause: operators.pause,
  resume: operators.resume,
  "plain lock": plainCode.lock,
  "plain unlock": plainCode.unlock,
  "lock lapses": plainCode.lapse,
  "lose line": operators.loseLine,
  "lose holders": operators.loseHolders,
  "lose counter": operators.loseCounter,
  "set policy": policySteps.setPolicy,
  "remove policy": async (run) => await policySteps.removePolicy(run),
  watch: watchSteps.watch,
  exclude: watchSteps.exclude,
};

export async function runLaneSchedule(
  world: LaneWorld,
  code: LaneCode,
  options: { readonly seed: string; readonly focus?: Focus },
): Promise<LaneResult> {
  const { seed, focus } = options;
  const random = new SeededRandom(seed);
  const policies = new SeededRandom(`${seed}/policies`);
  const setting = drawSetting({ random, policies }, focus);
  using time = new VirtualTime();
  let parked = 0;
  const locks = new StepLocks(world.redis, setting.hasLocks);
  const members = await world.reset(code, setting, { time, locks, onParked: (jobs) => (parked += jobs) });
  const model = new LaneModel(setting.keys, setting.rules);
  const limits = new QueueLimits(world.redis, world.queue, setting);
  await limits.apply();
  const before = await takeSnapshot(world.eyes, setting.keys);
  const run = new LaneRun({ random, policies, world, code, time, setting, members, model, locks, limits, before });
  const steps = new Map<Step, number>();
  let violation: LaneResult["violation"];
  try {
    if (setting.burst > 0) await checked(run, addBurst);
    for (let step = 0; step < STEPS; step += 1) {
      const kind = drawStep(random, setting);
      steps.set(kind, (steps.get(kind) ?? 0) + 1);
      await checked(run, take[kind]);
    }
    await settle(run);
  } catch (error) {
    const { invariant, message } =
      error instanceof LaneViolation ? error : { invariant: "no error" as const, message: String(error) };
    run.note(`*** ${invariant}: ${message}`);
    violation = { invariant, message };
  }
  return { seed, violation, setting, log: run.log, steps, handedOut: run.handedOut, parked };
}

async function checked<Result>(run: LaneRun, step: (run: LaneRun) => Promise<Result>): Promise<Result> {
  run.model.endPauses(run.time.nowMs);
  const result = await step(run);
  const { keys } = run.setting;
  const after = await takeSnapshot(run.world.eyes, keys, lockNames(keys, run.model.mostSlots));
  run.model.observe(run.before, after, run.time.nowMs);
  run.turns.observe(after, run.time.nowMs);
  checkStates(run.model, after, run.time.nowMs);
  run.locks.check(after.locks);
  await checkLines(run);
  await watchSteps.checkEarly(run);
  run.limits.check(after.counted);
  await run.locks.releaseOthers(
    (id, token) => run.taken.get(id)?.lockToken === token || run.random.chance(ZOMBIE_CHANCE),
  );
  run.before = after;
  return result;
}

/**
 * Checks that every open job is handed out within a bounded time, and that the lane's keys are gone when the last job
 * has ended.
 */
async function settle(run: LaneRun): Promise<void> {
  run.note("settle");
  await checked(run, operators.resume);
  await run.limits.lift();
  run.time.pass(LONGEST_DELAY_MS);
  await finishAll(run);
  if (run.isToBeWatched) await checked(run, watchSteps.exclude);
  for (const key of run.setting.keys) await checked(run, async () => await policySteps.removePolicy(run, key));
  for (const key of run.setting.keys) await checked(run, async () => await addJob(run, { keys: [key] }));
  await finishAll(run);
  const left = await laneKeys(run.world.redis);
  for (const key of run.setting.keys) {
    const ttlMs = await run.world.redis.pttl(`${PREFIX}lane:starts=${key}`);
    if (ttlMs === -1) throw new LaneViolation("nothing left behind", `the starts of ${key} stay for ever`);
  }
  if (left.length > 0) throw new LaneViolation("nothing left behind", left.join(", "));
}

async function finishAll(run: LaneRun): Promise<void> {
  // Jobs that a call fails, and jobs that find a full line, are retried.
  const { merge } = run.setting.rules;
  const mayFail = [...run.model.open.values()].some(({ isLeaving }) => isLeaving);
  const isLimited = mayFail || run.setting.keys.some((key) => run.model.lineOf(key)?.as === "backlog");
  const retries = merge === undefined && !isLimited ? 0 : run.model.open.size * MOST_RETRIES;
  const most = 2 * (run.model.open.size + 2) + (retries * LONGEST_BACKOFF_MS) / NEAR_MS;
  for (let rounds = most; run.model.open.size > 0; rounds -= 1) {
    if (rounds === 0) {
      throw new LaneViolation("nothing stuck", `${[...run.model.open.keys()].join(", ")} did not come`);
    }
    for (const key of run.setting.keys) await checked(run, async () => await operators.resumeKey(run, key));
    while (await checked(run, workers.fetch));
    while (run.taken.size > 0) await checked(run, workers.finish);
    const isLong = run.model.hasRates || run.model.isTimed(run.time.nowMs);
    run.time.pass(isLong ? WINDOW_MS + NEAR_MS : NEAR_MS);
  }
}
