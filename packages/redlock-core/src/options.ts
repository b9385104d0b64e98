/** Pure: options, their defaults, and the rules they obey. Resolved once into a frozen, complete object. */
import type { Clock } from "./clock.ts";
import { checkNames, type Known } from "./known.ts";
import type { Random } from "./random.ts";
import { driftMs } from "./validity.ts";

export interface RedlockOptions {
  /** Lease of a lock in ms. Default 30000; 50 or more, at most `maxTtl`. */
  readonly ttl?: number | undefined;
  /**
   * The longest lease that any client of these nodes asks for, in ms: a node that restarted or lost its data casts no vote for
   * that long. All clients must use the same value. Default 60000, or `ttl` if that is longer.
   */
  readonly maxTtl?: number | undefined;
  /** What the clocks of a client and a node may drift apart, as a share of the lease. Default 0.01; 0 to 0.5. */
  readonly driftFactor?: number | undefined;
  /** How long one request may go unanswered by a node, in ms. Default 500; 1 or more. */
  readonly nodeTimeout?: number | undefined;
  /** How long `acquire` and `using` wait for a lock that is held, in ms. Default 10000; 0: one attempt; Infinity: for ever. */
  readonly timeout?: number | undefined;
  /** Put before every resource to make its key. Default "", as other Redlock libraries have it. */
  readonly keyPrefix?: string | undefined;
  /** Whether `acquire` and `tryAcquire` keep their locks alive until released. `using` always does. Default false. */
  readonly autoExtend?: boolean | undefined;
  /** End of auto-extension: no lock is held for longer than this, in ms. Default Infinity. */
  readonly maxHold?: number | undefined;
  /**
   * Whether a node that restarted or lost its data casts no vote before `maxTtl` has passed. Default true for three and
   * more nodes, false for one or two and for a Cluster. False is your claim that no node ever forgets a lock.
   */
  readonly quarantine?: boolean | undefined;
  /** Pause before the next attempt when nodes failed, in ms; doubled per failure up to a second. Default 50. */
  readonly retryDelay?: number | undefined;
  /** Random share added to every pause, in ms. Default 50. */
  readonly retryJitter?: number | undefined;
  /** For how long nodes remember the last fencing token of a resource, in ms. Default 86400000 (a day); at least `maxTtl`. */
  readonly fenceTtl?: number | undefined;
  /** Time, for tests and simulators. Default: the process's clocks. */
  readonly clock?: Clock | undefined;
  /** Randomness, for tests and simulators. Default: OpenSSL and `Math.random`. */
  readonly random?: Random | undefined;
}

/** What one call may say differently. */
export interface AcquireOptions {
  /** Lease in ms. Default: the option of the `Redlock`. */
  readonly ttl?: number | undefined;
  /** How long to wait in ms; 0: one attempt; Infinity: for ever. Default: the option of the `Redlock`. */
  readonly timeout?: number | undefined;
  /** Ends the wait at once; the call rejects with `signal.reason`. */
  readonly signal?: AbortSignal | undefined;
  /** Keeps the lock alive until released. Default: the option of the `Redlock`; always with `using`. */
  readonly autoExtend?: boolean | undefined;
  /** No auto-extension beyond this, in ms. Default: the option of the `Redlock`. */
  readonly maxHold?: number | undefined;
  /**
   * The place in the queue, in microseconds since the epoch; the smallest is first. Default: now. Whoever was told by `untilTurn`
   * that it is its turn claims it with the same order, in whatever process.
   */
  readonly order?: number | undefined;
}

export interface ResolvedOptions {
  readonly ttl: number;
  readonly maxTtl: number;
  readonly driftFactor: number;
  readonly nodeTimeout: number;
  readonly timeout: number;
  readonly keyPrefix: string;
  readonly autoExtend: boolean;
  readonly maxHold: number;
  readonly quarantine: boolean;
  readonly retryDelay: number;
  readonly retryJitter: number;
  readonly fenceTtl: number;
}

export interface ResolvedAcquireOptions {
  readonly ttl: number;
  readonly timeout: number;
  readonly signal: AbortSignal | undefined;
  readonly autoExtend: boolean;
  readonly maxHold: number;
  readonly order: number | undefined;
}

/** Below this the drift margin, the round trip and the timers' resolution leave nothing to hold. */
const MIN_TTL_MS = 50;
const DAY_MS = 86_400_000;
const KNOWN: Known<RedlockOptions> = {
  ttl: true,
  maxTtl: true,
  driftFactor: true,
  nodeTimeout: true,
  timeout: true,
  keyPrefix: true,
  autoExtend: true,
  maxHold: true,
  quarantine: true,
  retryDelay: true,
  retryJitter: true,
  fenceTtl: true,
  clock: true,
  random: true,
};

const KNOWN_PER_CALL: Known<AcquireOptions> = {
  ttl: true,
  timeout: true,
  signal: true,
  autoExtend: true,
  maxHold: true,
  order: true,
};

export function resolveOptions(
  options: RedlockOptions,
  nodes: { readonly count: number; readonly isCluster: boolean },
): ResolvedOptions {
  objectOf("options", options);
  checkMembers("clock", options.clock, ["monotonicMs", "wallMs", "schedule", "defer"]);
  checkMembers("random", options.random, ["token", "fraction"]);
  checkNames(options, KNOWN, { known: KNOWN_PER_CALL, of: "acquire, tryAcquire and using" });
  const driftFactor = number("driftFactor", or(options.driftFactor, 0.01), { min: 0, max: 0.5 });
  const ttl = integer("ttl", or(options.ttl, 30_000), { min: MIN_TTL_MS, max: DAY_MS });
  const maxTtl = integer("maxTtl", or(options.maxTtl, Math.max(60_000, ttl)), { min: MIN_TTL_MS, max: DAY_MS });
  checkTtl("ttl", ttl, maxTtl, driftFactor);
  const quarantine = boolean("quarantine", or(options.quarantine, nodes.count >= 3 && !nodes.isCluster));
  if (quarantine && nodes.isCluster) {
    throw new RangeError("quarantine must be false for a Cluster (the node's hash lives in another slot), got true");
  }
  return Object.freeze({
    ttl,
    maxTtl,
    driftFactor,
    nodeTimeout: integer("nodeTimeout", or(options.nodeTimeout, 500), { min: 1, max: DAY_MS }),
    timeout: duration("timeout", or(options.timeout, 10_000)),
    keyPrefix: string("keyPrefix", or(options.keyPrefix, "")),
    autoExtend: boolean("autoExtend", or(options.autoExtend, false)),
    maxHold: duration("maxHold", or(options.maxHold, Number.POSITIVE_INFINITY), 1),
    quarantine,
    retryDelay: integer("retryDelay", or(options.retryDelay, 50), { min: 0, max: DAY_MS }),
    retryJitter: integer("retryJitter", or(options.retryJitter, 50), { min: 0, max: DAY_MS }),
    fenceTtl: integer("fenceTtl", or(options.fenceTtl, DAY_MS), { min: maxTtl, max: Number.MAX_SAFE_INTEGER }),
  });
}

export function resolveAcquireOptions(
  options: AcquireOptions | undefined,
  defaults: ResolvedOptions,
  autoExtendDefault: boolean,
): ResolvedAcquireOptions {
  if (options === undefined) {
    return {
      ttl: defaults.ttl,
      timeout: defaults.timeout,
      signal: undefined,
      autoExtend: autoExtendDefault,
      maxHold: defaults.maxHold,
      order: undefined,
    };
  }
  objectOf("options", options);
  checkNames(options, KNOWN_PER_CALL, { known: KNOWN, of: "new Redlock" });
  if (options.signal !== undefined && !(options.signal instanceof AbortSignal)) {
    throw new TypeError(`signal must be an AbortSignal, got ${describe(options.signal)}`);
  }
  return {
    ttl: resolveTtl(options.ttl, defaults),
    timeout: duration("timeout", or(options.timeout, defaults.timeout)),
    signal: options.signal,
    autoExtend: boolean("autoExtend", or(options.autoExtend, autoExtendDefault)),
    maxHold: duration("maxHold", or(options.maxHold, defaults.maxHold), 1),
    order: options.order === undefined ? undefined : resolveOrder(options.order),
  };
}

export function resolveTtl(ttl: number | undefined, defaults: ResolvedOptions): number {
  if (ttl === undefined) return defaults.ttl;
  integer("ttl", ttl, { min: MIN_TTL_MS, max: DAY_MS });
  checkTtl("ttl", ttl, defaults.maxTtl, defaults.driftFactor);
  return ttl;
}

export function resolveOrder(order: number): number {
  return integer("order", order, { min: 0, max: Number.MAX_SAFE_INTEGER }, "µs");
}

/** How long one request may take, in ms; 1 or more. */
export function resolveNodeTimeout(timeout: number | undefined, defaults: ResolvedOptions): number {
  return timeout === undefined ? defaults.nodeTimeout : integer("timeout", timeout, { min: 1, max: DAY_MS });
}

/** The one resource of an operator's call. */
export function resolveResource(resource: string): string {
  checkResource(resource);
  return resource;
}

/** The resources of one lock: one name or a list of distinct names, none empty. */
export function resolveResources(resources: string | readonly string[]): readonly string[] {
  if (typeof resources === "string") {
    checkResource(resources);
    return [resources];
  }
  if (!Array.isArray(resources))
    throw new TypeError(`resource must be a string or an array of strings, got ${describe(resources)}`);
  if (resources.length === 0) throw new RangeError("resources must name at least one resource, got []");
  for (const resource of resources) checkResource(resource);
  const distinct = new Set<string>(resources);
  if (distinct.size !== resources.length)
    throw new RangeError(`resources must be distinct, got ${JSON.stringify(resources)}`);
  return [...resources];
}

function checkResource(resource: unknown): void {
  if (typeof resource !== "string") throw new TypeError(`resource must be a string, got ${describe(resource)}`);
  if (resource === "") throw new RangeError('resource must not be empty, got ""');
}

function checkTtl(name: string, ttl: number, maxTtl: number, driftFactor: number): void {
  if (ttl > maxTtl) throw new RangeError(`${name} must be <= maxTtl (${maxTtl} ms), got ${ttl}`);
  const drift = driftMs(ttl, driftFactor);
  if (ttl <= drift) throw new RangeError(`${name} must be > drift (${drift} ms), got ${ttl}`);
}

/** Only what is left out takes its default: null is a mistake. */
function or<Value>(value: Value | undefined, fallback: Value): Value {
  return value === undefined ? fallback : value;
}

function objectOf(name: string, value: unknown): void {
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new TypeError(`${name} must be an object, got ${describe(value)}`);
  }
}

interface Range {
  readonly min: number;
  readonly max: number;
}

function number(name: string, value: unknown, { min, max }: Range): number {
  return checked(name, value, `a number from ${min} to ${max}`, (given) => given >= min && given <= max);
}

function integer(name: string, value: unknown, { min, max }: Range, unit = "ms"): number {
  const range = max === Number.MAX_SAFE_INTEGER ? `>= ${min}` : `from ${min} to ${max}`;
  const isInRange = (given: number): boolean => Number.isInteger(given) && given >= min && given <= max;
  return checked(name, value, `an integer ${range} (${unit})`, isInRange);
}

function duration(name: string, value: unknown, min = 0): number {
  if (value === Number.POSITIVE_INFINITY) return value;
  const isInRange = (given: number): boolean => Number.isSafeInteger(given) && given >= min;
  return checked(name, value, `an integer >= ${min} (ms) or Infinity`, isInRange);
}

function checked(name: string, value: unknown, rule: string, isInRange: (given: number) => boolean): number {
  if (typeof value !== "number") throw new TypeError(`${name} must be ${rule}, got ${describe(value)}`);
  if (!isInRange(value)) throw new RangeError(`${name} must be ${rule}, got ${value}`);
  return value;
}

/** An object of the caller's own; only what is left out is the process's. */
function checkMembers(name: string, value: object | undefined, members: readonly string[]): void {
  if (value === undefined) return;
  const found = typeof value === "object" && value !== null ? (value as Readonly<Record<string, unknown>>) : {};
  if (members.every((member) => typeof found[member] === "function")) return;
  throw new TypeError(
    `${name} must have ${members.slice(0, -1).join(", ")} and ${members.at(-1)}, got ${describe(value)}`,
  );
}

function boolean(name: string, value: unknown): boolean {
  if (typeof value !== "boolean") throw new TypeError(`${name} must be a boolean, got ${describe(value)}`);
  return value;
}

function string(name: string, value: unknown): string {
  if (typeof value !== "string") throw new TypeError(`${name} must be a string, got ${describe(value)}`);
  return value;
}

function describe(value: unknown): string {
  if (value === null) return "null";
  if (typeof value === "object") return Array.isArray(value) ? "an array" : "an object";
  return typeof value === "string" ? JSON.stringify(value) : `${value as number}`;
}
