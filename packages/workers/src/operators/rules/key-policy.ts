/** Pure: what operators say of one key, instead of the options of the workers. */
import { integer, Schema, type ShapeOf } from "@x/redlock-core/kit";
import { type KeyRate, type LaneRules, mayShare } from "../../bullmq/rules/compose.ts";
import { MAX_SLOTS, MAX_WAITING, MAX_WEIGHT, type MaxWaiting, RATE } from "../../options.ts";
import type { WorkerSetup } from "./worker-setup.ts";

/** What holds for one key instead of the option `perKey` of the workers. What is left out is as they have it. */
export interface KeyPolicy {
  /** At most so many jobs of the key (1 to 100) run at a time. More than 1 needs `onFailure: "skip"`. */
  readonly concurrency?: number | undefined;
  /** At most `max` (1 to 10000) jobs of the key start in any `duration` ms (1 to a day). */
  readonly rate?: KeyRate | undefined;
  /** At most `max` (1 to 1000000) jobs wait for the key; `drop` says which one fails otherwise (default `"newest"`). */
  readonly maxWaiting?: MaxWaiting | undefined;
  /** The turn of the key has so many starts (1 to 100). It needs `between: "rotate"`. */
  readonly weight?: number | undefined;
}

const POLICY = new Schema({
  concurrency: integer({ min: 1, max: MAX_SLOTS, unit: "" }).optional(),
  rate: RATE,
  maxWaiting: MAX_WAITING,
  weight: integer({ min: 1, max: MAX_WEIGHT, unit: "" }).optional(),
} satisfies ShapeOf<KeyPolicy>);

/** Returns the policy that was given. Throws TypeError and RangeError, also for one that says nothing. */
export function resolvePolicy(given: unknown): KeyPolicy {
  const policy = POLICY.resolve(given, "policy");
  if (Object.values(policy).every((value) => value === undefined)) {
    throw new RangeError(`policy must have one of ${POLICY.names.join(", ")}, got {}`);
  }
  return policy;
}

type Rules = Pick<LaneRules, "onFailure" | "line" | "merge" | "rotate">;

/** Throws RangeError if the policy has what would have no effect in a worker. `whose` says which one. */
export function checkPolicy(
  { concurrency = 1, maxWaiting, weight }: KeyPolicy,
  { whose, ...rules }: Rules & Whose,
): void {
  const { line, merge, rotate } = rules;
  if (weight !== undefined && rotate === undefined) {
    throw new RangeError(`policy.weight must be left out with between "arrival" of ${whose}, got ${weight}`);
  }
  if (concurrency > 1 && !mayShare(rules)) {
    throw new RangeError(
      `policy.concurrency must be 1 with onFailure or whenBusy of ${whose}, which give a key to one job at a time, got ${concurrency}`,
    );
  }
  if (maxWaiting !== undefined && line !== undefined && line.as !== "backlog") {
    throw new RangeError(
      `policy.maxWaiting must be left out with whenBusy of ${whose}, which lets one wait at most, got ${maxWaiting.max}`,
    );
  }
  if (maxWaiting?.drop === "oldest" && merge !== undefined) {
    throw new RangeError(`policy.maxWaiting.drop must be "newest" with whenBusy "merge" of ${whose}, got "oldest"`);
  }
}

/** The most characters of a damaged policy that a message shows. */
const LONGEST_SHOWN = 100;

interface Whose {
  readonly whose: string;
}

/** Returns the rules of a worker, as it has told the others. */
export function rulesOf({ at, onFailure, perKey }: WorkerSetup): Rules & Whose {
  const told: Partial<Pick<Rules, "line" | "merge" | "rotate">> = storedObject(perKey ?? "{}") ?? {};
  return { onFailure, line: told.line, merge: told.merge, rotate: told.rotate, whose: at };
}

/**
 * Returns the stored policy of a key. Undefined if there is none, or if the entry is only kept until further slots are
 * free.
 * @throws TypeError if the text is not that of a policy: the entry was damaged, or was written by hand
 */
export function parsePolicy(text: string): KeyPolicy | undefined {
  const policy = storedObject(text === "" ? "{}" : text);
  if (policy === undefined) {
    const shown = JSON.stringify(text.slice(0, LONGEST_SHOWN));
    throw new TypeError(`the stored policy is damaged, set or remove it: ${shown}`);
  }
  return Object.keys(policy).length === 0 ? undefined : policy;
}

/** Returns the object that a stored text is in JSON, or undefined. */
export function storedObject(text: string): object | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
