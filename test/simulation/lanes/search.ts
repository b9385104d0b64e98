/** Runs schedules one after the other until a schedule breaks an invariant. */
import type { LaneCode } from "./load.ts";
import { type LaneResult, runLaneSchedule } from "./schedule.ts";
import type { Focus } from "./setting.ts";
import { LaneWorld } from "./world.ts";

export interface LaneSearch {
  readonly runs: number;
  readonly seconds: number;
  readonly handedOut: number;
  readonly parked: number;
  readonly violation: LaneResult | undefined;
}

/** Searches the seeds `<seed>/1`, `<seed>/2`, … A seed with a slash is a single schedule. */
export async function searchLanes(
  code: LaneCode,
  options: {
    readonly seed: string;
    readonly runs: number;
    readonly focus?: Focus;
    readonly onResult?: (result: LaneResult, done: number) => void;
    /** A world to reuse, whose Redis knows the scripts of the previous schedules. Default: a new world. */
    readonly world?: LaneWorld;
  },
): Promise<LaneSearch> {
  const startedMs = performance.now();
  await using own = options.world === undefined ? await LaneWorld.start() : undefined;
  const world = (options.world ?? own) as LaneWorld;
  let [handedOut, parked, runs] = [0, 0, 0];
  let violation: LaneResult | undefined;
  const isOne = options.seed.includes("/");
  while (violation === undefined && runs < (isOne ? 1 : options.runs)) {
    runs += 1;
    const seed = isOne ? options.seed : `${options.seed}/${runs}`;
    const result = await runLaneSchedule(world, code, { ...options, seed });
    handedOut += result.handedOut;
    parked += result.parked;
    if (result.violation !== undefined) violation = result;
    options.onResult?.(result, runs);
  }
  return { runs, seconds: (performance.now() - startedMs) / 1_000, handedOut, parked, violation };
}
