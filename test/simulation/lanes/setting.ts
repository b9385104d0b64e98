/** The setting of a schedule, drawn from its seed: the rules of the lane, the keys, and the weight of each step. */

import type { SeededRandom } from "../../../packages/testing/src/world.ts";
import type { LaneRules, LineRules, OnFailure } from "../../../packages/workers/src/bullmq/rules/compose.ts";
import type { KeyPolicy } from "../../../packages/workers/src/operators/rules/key-policy.ts";
import type { KeyFunction, StoredJob } from "../../../packages/workers/src/rules/stored-job.ts";

export interface LaneData {
  /** The job's key, or its keys. */
  readonly k: string | readonly string[];
}

/** Weights of the steps that every schedule takes. */
const ALWAYS = { add: 6, fetch: 8, finish: 6, fail: 1, wait: 2 } as const;
/**
 * Groups of steps. A schedule draws a few groups, with great weights, or many groups, with small weights: a rare
 * combination of two faults would otherwise always be disturbed by a third.
 */
const SOMETIMES = [
  { "fail more": 3, retry: 1 },
  { "add delayed": 1.5 },
  { delay: 1 },
  { "send back": 1 },
  { yield: 1, wake: 1 },
  { "spawn child": 1 },
  { kill: 1 },
  { stall: 1.5, "late end": 3 },
  { "finish elsewhere": 1 },
  { remove: 2 },
  { "remove holder": 3 },
  { clean: 1 },
  { drain: 0.15, obliterate: 0.1 },
  { promote: 1 },
  { "add to front": 1.5 },
  { "change priority": 1 },
  { "next period": 1 },
  { "list keys": 1 },
  { "pause key": 1, "resume key": 1 },
  { "pause for": 2, "resume key": 0.5 },
  { "window passes": 2 },
  { "back off": 1.5 },
  { pause: 0.5, resume: 1 },
  { "plain lock": 1.5, "plain unlock": 1.5 },
  { "lock lapses": 1 },
  { "lose line": 0.4 },
  { "lose holders": 0.4 },
  { "lose counter": 0.2 },
] as const;
/** Steps that some schedules take in addition. */
const POLICIES = { "set policy": 1.5, "remove policy": 0.7 } as const;

/** Steps of schedules with calls for all waiting jobs. */
const MERGING = { gather: 4, settle: 2, "late call": 1 } as const;

/** Steps that only a focus contains. */
type Focused = "key fails" | "cancel" | "watch" | "exclude";

type KeyOf<Group> = Group extends unknown ? keyof Group : never;
export type Step =
  | Focused
  | keyof typeof ALWAYS
  | KeyOf<(typeof SOMETIMES)[number]>
  | keyof typeof POLICIES
  | keyof typeof MERGING;
export const STEPS: readonly Step[] = [ALWAYS, ...SOMETIMES, POLICIES, MERGING].flatMap(
  (group) => Object.keys(group) as Step[],
);

const GROUP_COUNTS = [2, 3, 5, 10];
const FEWEST_GROUPS = 2;
const POLICIES_CHANCE = 0.4;

/** When the first job in line is examined again, in virtual ms. */
export const NEAR_MS = 100;
const FAR_MS = 3_600_000;
const BURST = 60;
/** Window of a key's rate. The counter of starts expires in real time, so the window is longer than any schedule. */
export const WINDOW_MS = 600_000;

export interface LaneSetting {
  readonly rules: LaneRules;
  /** Finds the keys of a job for the lane. */
  readonly keyOf: KeyFunction;
  readonly keys: readonly string[];
  /** Whether the scripts acquire the locks of keys. */
  readonly hasLocks: boolean;
  /** Chance that a job has several keys. */
  readonly severalChance: number;
  readonly priorities: number;
  /**
   * How many jobs of the queue may start in a period (`starts`) and run at a time (`running`). Infinity for any number.
   */
  readonly starts: number;
  readonly running: number;
  /** Chance that a job gets the ID of a removed job. */
  readonly sameIdChance: number;
  /** Number of jobs of one key that are added at the start. */
  readonly burst: number;
  readonly weights: ReadonlyMap<Step, number>;
  /** What the policies of keys may contain. */
  readonly said: ReadonlySet<keyof KeyPolicy>;
}

/** Fixes a part of the setting, to meet situations that are otherwise rare. */
export interface Focus {
  readonly name: string;
  readonly onFailure?: OnFailure;
  /** Replaces the steps that only some schedules take. */
  readonly steps: Partial<Readonly<Record<Step, number>>>;
  readonly keys?: readonly string[];
  readonly severalChance?: number;
  readonly sameIdChance?: number;
  readonly hasLocks?: boolean;
  readonly starts?: number;
  readonly burst?: number;
  /** How many jobs of a key may start in a window. */
  readonly rate?: number;
  readonly line?: LineRules;
  /** How many jobs of a key may run at a time. */
  readonly slots?: number;
  /** The greatest number of jobs in one call. */
  readonly merge?: number;
  /** Whether keys take turns, and how many starts the turn of a key has. */
  readonly rotate?: LaneRules["rotate"];
  /** What the policies of keys may contain. Default: concurrency and rate. */
  readonly says?: readonly (keyof KeyPolicy)[];
}

const LINES: readonly LineRules[] = [
  { max: 2, drop: "newest", as: "backlog" },
  { max: 2, drop: "oldest", as: "backlog" },
  { max: 1, drop: "oldest", as: "superseded" },
  { max: 1, drop: "oldest", as: "superseded", interrupts: true },
  { max: 0, drop: "newest", as: "busy" },
];

const ROTATIONS: readonly LaneRules["rotate"][] = [undefined, undefined, { weights: {} }, { weights: { a: 3, c: 2 } }];

/** Draws a setting. `policies` draws settings that were added later, so that older seeds keep their schedules. */
export function drawSetting(
  { random, policies }: { readonly random: SeededRandom; readonly policies: SeededRandom },
  focus?: Focus,
): LaneSetting {
  const onFailure = random.pick(["skip", "block", "halt"] as const);
  const isPath = random.chance(0.7);
  const drawn = {
    keyOf: (job: StoredJob): unknown => (job.data as LaneData).k,
    keys: ["a", "b", "c", "d"].slice(0, random.integer(1, 4)),
    severalChance: random.pick([0, 0, 0.3, 0.6]),
    priorities: random.pick([0, 0, 0, 2]),
    starts: random.pick([Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY, 1, 4]),
    running: random.pick([Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY, 1, 3]),
    sameIdChance: random.pick([0, 0.3, 0.9]),
    burst: random.chance(0.03) ? BURST : 0,
    weights: drawWeights(random),
    hasLocks: random.chance(0.7),
  };
  const max = focus === undefined ? random.pick([0, 0, 1, 3]) : (focus.rate ?? 0);
  const line = focus === undefined && random.chance(0.3) ? random.pick(LINES) : focus?.line;
  const drawnSlots = focus === undefined ? policies.pick([1, 1, 2, 3]) : (focus.slots ?? 1);
  if (policies.chance(POLICIES_CHANCE)) {
    for (const [step, weight] of Object.entries(POLICIES)) drawn.weights.set(step as Step, weight);
  }
  const slots = line?.interrupts === true ? 1 : drawnSlots;
  const drawnMost = focus === undefined ? policies.pick([0, 0, 2, 5, 100]) : (focus.merge ?? 0);
  const most = slots === 1 && (line === undefined || line.as === "backlog") && line?.drop !== "oldest" ? drawnMost : 0;
  const drawnFailure = slots > 1 ? "skip" : (focus?.onFailure ?? onFailure);
  const unfocused = {
    steps: undefined,
    onFailure: undefined,
    name: "",
    rate: 0,
    line: undefined,
    slots: 1,
    merge: 0,
    rotate: undefined,
    says: ["concurrency", "rate", "maxWaiting", "weight"] as const,
  };
  const drawnRotation = focus === undefined ? ROTATIONS[policies.integer(0, 3)] : focus.rotate;
  // With a line of length 0, no job waits for its turn.
  const rotate = line?.max === 0 ? undefined : drawnRotation;
  const {
    steps,
    onFailure: _onFailure,
    name: _name,
    rate: _rate,
    line: _line,
    slots: _slots,
    merge: _merge,
    rotate: _rotate,
    says = ["concurrency", "rate"],
    ...fixed
  } = focus ?? unfocused;
  const unlimited = { starts: Number.POSITIVE_INFINITY, running: Number.POSITIVE_INFINITY };
  return {
    ...drawn,
    ...(focus === undefined ? {} : unlimited),
    ...fixed,
    said: new Set(says),
    rules: {
      path: isPath ? ["k"] : undefined,
      // A retry must not come after the job that has superseded it.
      onFailure: line?.interrupts === true && drawnFailure === "skip" ? "block" : drawnFailure,
      nearMs: NEAR_MS,
      farMs: FAR_MS,
      line,
      slots,
      merge: most === 0 ? undefined : { size: most, wait: 0 },
      rotate,
      rate: max === 0 ? undefined : { max, duration: WINDOW_MS },
    },
    weights: new Map([
      ...(steps === undefined ? drawn.weights : (Object.entries({ ...ALWAYS, ...steps }) as [Step, number][])),
      ...(most === 0 ? [] : (Object.entries(MERGING) as [Step, number][])),
    ]),
  };
}

function drawWeights(random: SeededRandom): Map<Step, number> {
  const weights = new Map<Step, number>(Object.entries(ALWAYS) as [Step, number][]);
  const count = random.pick(GROUP_COUNTS);
  for (let i = 0; i < count; i += 1) {
    for (const [step, weight] of Object.entries(random.pick(SOMETIMES))) {
      weights.set(step as Step, (weight * FEWEST_GROUPS) / Math.sqrt(count));
    }
  }
  return weights;
}

export function drawStep(random: SeededRandom, { weights }: LaneSetting): Step {
  let left = random.fraction() * [...weights.values()].reduce((sum, weight) => sum + weight, 0);
  for (const [step, weight] of weights) {
    left -= weight;
    if (left < 0) return step;
  }
  return "wait";
}
