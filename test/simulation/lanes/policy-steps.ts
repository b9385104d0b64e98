/** Steps of operators that set and remove policies of single keys. */
import { mayShare } from "../../../packages/workers/src/bullmq/rules/compose.ts";
import type { KeyPolicy } from "../../../packages/workers/src/operators/rules/key-policy.ts";
import { LaneViolation } from "./checks.ts";
import type { LaneRun } from "./run.ts";
import { WINDOW_MS } from "./setting.ts";

export async function setPolicy(run: LaneRun): Promise<void> {
  const key = run.random.pick(run.setting.keys);
  const policy = drawPolicy(run);
  run.note(`policy of ${key}: ${JSON.stringify(policy)}`);
  await run.random.pick(run.members).lane.operate("setPolicy", key, JSON.stringify(policy));
  run.turns.changes(key);
  run.model.setPolicy(key, policy);
}

export async function removePolicy(run: LaneRun, key: string = run.random.pick(run.setting.keys)): Promise<void> {
  run.note(`no policy of ${key}`);
  const wasSaid = (await run.random.pick(run.members).lane.operate("setPolicy", key, "")) === 1;
  if (wasSaid !== (run.model.key(key).policy !== undefined)) {
    throw new LaneViolation("facts", `${key} had ${wasSaid ? "a" : "no"} policy`);
  }
  run.turns.changes(key);
  run.model.setPolicy(key, undefined);
}

function drawPolicy({ random, policies, setting }: LaneRun): KeyPolicy {
  // 0 stands for a policy without a concurrency.
  const concurrency = random.pick(mayShare(setting.rules) ? [0, 1, 2, 4] : [0, 1]);
  const max = random.pick([0, 0, 1, 3, 6]);
  const mostWaiting = setting.said.has("maxWaiting") ? policies.pick([0, 1, 2, 3]) : 0;
  const weight = setting.said.has("weight") ? policies.pick([0, 1, 2, 5]) : 0;
  const said: KeyPolicy = {
    ...(concurrency === 0 || !setting.said.has("concurrency") ? {} : { concurrency }),
    ...(max === 0 || !setting.said.has("rate") ? {} : { rate: { max, duration: WINDOW_MS } }),
    ...(mostWaiting === 0 ? {} : { maxWaiting: { max: mostWaiting, drop: policies.pick(["newest", "oldest"]) } }),
    ...(weight === 0 ? {} : { weight }),
  };
  return Object.keys(said).length === 0 ? { concurrency: 1 } : said;
}
