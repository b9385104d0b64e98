/** Pure: the operators' policy for one key, which replaces options of the workers. */
import { integer, Schema, type ShapeOf } from "@x/redlock-core/kit";
import { type KeyRate, type LaneRules, mayShare } from "../../bullmq/rules/compose.ts";
import { MAX_SLOTS, MAX_WAITING, MAX_WEIGHT, type MaxWaiting, RATE } from "../../options.ts";
import type { WorkerSetup } from "./worker-setup.ts";

/** Replaces the workers' option `perKey` for one key. Members that are left out keep the workers' values. */
export interface KeyPolicy {
  /** How many jobs of the key may run at the same time, from 1 to 100. More than 1 requires `onFailure: "skip"`. */
  readonly concurrency?: number | undefined;
  /** At most `max` (1 to 10000) jobs of the key start within any `duration` ms (1 to a day). */
  readonly rate?: KeyRate | undefined;
  /**
   * At most `max` (1 to 1000000) jobs wait for the key. `drop` selects the job that fails if another one arrives
   * (default `"newest"`).
   */
  readonly maxWaiting?: MaxWaiting | undefined;
  /** Number of starts in a turn of the key, from 1 to 100. Requires `between: "rotate"`. */
  readonly weight?: number | undefined;
}

const POLICY = new Schema({
  concurrency: integer({ min: 1, max: MAX_SLOTS, unit: "" }).optional(),
  rate: RATE,
  maxWaiting: MAX_WAITING,
  weight: integer({ min: 1, max: MAX_WEIGHT, unit: "" }).optional(),
} satisfies ShapeOf<KeyPolicy>);

/** Returns the given policy. Throws `TypeError` or `RangeError` if it is invalid or empty. */
export function resolvePolicy(given: unknown): KeyPolicy {
  const policy = POLICY.resolve(given, "policy");
  if (Object.values(policy).every((value) => value === undefined)) {
    throw new RangeError(`policy must have one of ${POLICY.names.join(", ")}, got {}`);
  }
  return policy;
}

type Rules = Pick<LaneRules, "onFailure" | "line" | "merge" | "rotate">;

/**
 * Throws `RangeError` if a part of the policy would have no effect in a worker. `owner` names the worker in the
 * message.
 */
export function checkPolicy(
  { concurrency = 1, maxWaiting, weight }: KeyPolicy,
  { owner, ...rules }: Rules & Owned,
): void {
  const { line, merge, rotate } = rules;
  if (weight !== undefined && rotate === undefined) {
    throw new RangeError(`policy.weight must be left out with between "arrival" of ${owner}, got ${weight}`);
  }
  if (concurrency > 1 && !mayShare(rules)) {
    throw new RangeError(
      `policy.concurrency must be 1 with onFailure or whenBusy of ${owner}, which give a key to one job at a time, got ${concurrency}`,
    );
  }
  if (maxWaiting !== undefined && line !== undefined && line.as !== "backlog") {
    throw new RangeError(
      `policy.maxWaiting must be left out with whenBusy of ${owner}, which lets at most one job wait, got ${maxWaiting.max}`,
    );
  }
  if (maxWaiting?.drop === "oldest" && merge !== undefined) {
    throw new RangeError(`policy.maxWaiting.drop must be "newest" with whenBusy "merge" of ${owner}, got "oldest"`);
  }
}

/** Maximum number of characters of a damaged policy in a message. */
const MAX_SHOWN = 100;

interface Owned {
  readonly owner: string;
}

export function rulesOf({ at, onFailure, perKey }: WorkerSetup): Rules & Owned {
  const stored: Partial<Pick<Rules, "line" | "merge" | "rotate">> = storedObject(perKey ?? "{}") ?? {};
  return { onFailure, line: stored.line, merge: stored.merge, rotate: stored.rotate, owner: at };
}

/**
 * Returns the stored policy of a key. Undefined if there is none, or if the stored policy is empty and only kept until
 * further slots are free. The note that jobs of the key overlap is not a part of the policy.
 * @throws TypeError if the text is not a policy, because the entry was damaged or written by hand.
 */
export function parsePolicy(text: string): KeyPolicy | undefined {
  const policy = storedObject(text === "" ? "{}" : text);
  if (policy === undefined) {
    const shown = JSON.stringify(text.slice(0, MAX_SHOWN));
    throw new TypeError(`the stored policy is damaged, set or remove it: ${shown}`);
  }
  const { overlaps: _overlaps, ...members } = policy as KeyPolicy & { readonly overlaps?: boolean };
  return Object.keys(members).length === 0 ? undefined : members;
}

/** Parses a JSON text. Returns undefined if it is not the text of an object. */
export function storedObject(text: string): object | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}
