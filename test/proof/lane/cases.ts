/** The explored cases of the lane, and the protections that the exploration needs. */
import { loadLanes } from "../../simulation/lanes/load.ts";
import { LANE_MUTATIONS } from "../../simulation/lanes/mutations.ts";
import { NEAR_MS } from "../../simulation/lanes/setting.ts";
import { VirtualTime } from "../../simulation/lanes/virtual-time.ts";
import { LaneWorld } from "../../simulation/lanes/world.ts";
import { type Explored, exploredOf, type RemovedRule } from "../explored.ts";
import { exploreGraph } from "../graph.ts";
import type { Bounds } from "./state.ts";
import { SmallLane } from "./world.ts";

interface LaneCase {
  readonly name: string;
  readonly bounds: Bounds;
}

const BOUNDS: Bounds = {
  rules: {},
  jobs: [["a"], ["a"]],
  attempts: 2,
  backoffMs: NEAR_MS,
  workers: 2,
  hasLocks: false,
  events: {},
};

const of = (name: string, bounds: Partial<Bounds>): LaneCase => ({ name, bounds: { ...BOUNDS, ...bounds } });

const three = [["a"], ["a"], ["a"]];

const crashes = of("three jobs, a failure, and processes that die or freeze", {
  jobs: three,
  events: { fail: 1, die: 1, freeze: 1 },
});
const severalKeys = of("a job with two keys between two jobs", {
  jobs: [["a"], ["a", "b"], ["b"]],
  events: { fail: 1, die: 1 },
});
const circle = of("three jobs whose keys form a circle", {
  jobs: [
    ["a", "b"],
    ["b", "c"],
    ["c", "a"],
  ],
  workers: 3,
  events: { fail: 1, die: 1 },
});
const locks = of("the locks of keys", { hasLocks: true, events: { fail: 1, die: 1, freeze: 1 } });
const plainLocks = of("locks that plain code acquires", {
  hasLocks: true,
  events: { "plain lock": 2, "lose lock": 1, die: 1 },
});
const immediate = of("immediate retries", { attempts: 3, backoffMs: 0, events: { fail: 2, freeze: 1, die: 1 } });
const lostReplies = of("replies that are lost", { events: { "lose reply": 2, fail: 1 } });
const lostLocks = of("replies that are lost, with locks", { hasLocks: true, events: { "lose reply": 1, die: 1 } });
const block = of("a key that waits for retries", {
  jobs: three,
  rules: { onFailure: "block" },
  events: { fail: 1, die: 1, freeze: 1 },
});
const halt = of("a key that a failure stops", {
  rules: { onFailure: "halt" },
  attempts: 1,
  events: { fail: 1, "retry by hand": 1, die: 1, pause: 1 },
});
const pause = of("paused keys", { events: { pause: 1, "pause for a while": 1, die: 1, fail: 1 } });
const cancel = of("cancelled jobs", { jobs: three, events: { cancel: 2, die: 1 } });
const cancelRunning = of("a cancelled job that fails, delays itself or loses its process", {
  events: { cancel: 1, fail: 1, delay: 1, die: 1 },
});
const removed = of("removed jobs", { jobs: three, events: { remove: 2, die: 1, fail: 1 } });
const slots = of("two jobs at a time", { jobs: three, rules: { slots: 2 }, events: { fail: 1, die: 1 } });
const manySlots = of("four jobs, two at a time, three workers", {
  jobs: [...three, ["a"]],
  rules: { slots: 2 },
  workers: 3,
  events: { die: 1 },
});
const slotLocks = of("two jobs at a time, with locks", {
  jobs: three,
  rules: { slots: 2 },
  hasLocks: true,
  events: { die: 1 },
});
const delays = of("jobs that delay themselves or back off", { jobs: three, events: { delay: 1, "back off": 1 } });
const limit = of("a limit that changes", { jobs: three, events: { "change limit": 2, die: 1 } });
const computed = of("keys that a function computes", {
  jobs: [["a"], ["a"], ["b"]],
  rules: { path: undefined },
  events: { die: 1, fail: 1 },
});
const turns = of("keys that take turns", {
  jobs: [["a"], ["a"], ["b"]],
  rules: { rotate: { weights: {} } },
  events: { die: 1 },
});

const CASES: readonly LaneCase[] = [
  crashes,
  immediate,
  severalKeys,
  circle,
  locks,
  plainLocks,
  lostReplies,
  lostLocks,
  block,
  halt,
  pause,
  cancel,
  cancelRunning,
  removed,
  slots,
  manySlots,
  slotLocks,
  delays,
  limit,
  computed,
  turns,
];

/** Removes a protection of the lane like the simulation. */
function without(protection: string, each: LaneCase): RemovedRule<LaneCase> {
  const mutation = LANE_MUTATIONS.find((other) => other.protection === protection);
  if (mutation === undefined) throw new RangeError(`unknown protection ${protection}`);
  return { rule: protection, patches: mutation.patches, in: each };
}

const RULES: readonly RemovedRule<LaneCase>[] = [
  without("claim of a free key", crashes),
  without("a key is kept for its job", crashes),
  without("place kept in line", crashes),
  without("a process that lost its job passes no key on (finish)", crashes),
  without("a process that lost its job passes no key on (retry)", immediate),
  without("all keys of a job are handed over", severalKeys),
  without("the next job is first on all of its keys", circle),
  without("token compare at the end of a job", locks),
  without("a fencing token is greater than the stored one", locks),
  without("only the holder passes a lock on", plainLocks),
  without("a job keeps its keys while it waits for their lock", plainLocks),
  without("block: the key waits during a backoff", block),
  without("a final failure halts the key", halt),
  without("the holder of a paused key waits", pause),
  without("the first in line is due when a pause ends", pause),
  without("a cancelled job stays cancelled until it has ended", cancelRunning),
  without("a key has no more jobs than slots", slots),
  without("one job of a key is chosen at a time", manySlots),
  without("each slot has its own lock", slotLocks),
  without("a job that backs off goes first afterwards", delays),
  without("a job that was chosen for the only slot is taken before the next job is chosen for another", limit),
  {
    rule: "a policy fills its slots even if the worker of the running job is gone",
    patches: [{ file: "workers/src/scripts/operators.lua.ts", find: " and not isStalled(holder)", replace: "" }],
    in: limit,
  },
];

/** More states than any case has. */
const LIMIT = 100_000;

export const LANE: Explored = exploredOf({
  name: "lane",
  cases: CASES,
  rules: RULES,
  explore: async ({ bounds }, { patches = [], limit: most = LIMIT }) => {
    const code = await loadLanes(patches);
    await using world = await LaneWorld.start();
    using time = new VirtualTime();
    return await exploreGraph(await SmallLane.open(world, code, { bounds, time }), { limit: most });
  },
});
