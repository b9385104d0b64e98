/** A schedule of the lanes as text: its setting, and every step. */
import type { LaneResult } from "./schedule.ts";

export function laneText({ seed, setting, log }: LaneResult): string {
  const { rules, keys, severalChance, priorities, starts, running, weights } = setting;
  const kinds = [...weights].map(([step, weight]) => `${step} ${weight.toFixed(1)}`);
  return [
    `seed ${seed}`,
    `onFailure ${rules.onFailure}, keys ${keys.join(", ")} by ${rules.path === undefined ? "function" : "path"}, ` +
      `several in ${severalChance * 100} % of the jobs, priorities up to ${priorities}, ` +
      `starts up to ${starts}, at once ${running}, slots ${rules.slots ?? 1}, ` +
      `rate ${rules.rate?.max ?? "none"}, line ${JSON.stringify(rules.line) ?? "any"}, ` +
      `rotation ${JSON.stringify(rules.rotate) ?? "none"}, ` +
      `at most ${rules.merge?.size ?? 1} for a call`,
    `steps: ${kinds.join(", ")}`,
    "",
    ...log,
    "",
  ].join("\n");
}
