/** Pure: options, defaults, and the relations between them. Resolved once into a frozen, complete object. */
import type { Cooldown } from "./cooldown.ts";
import type { LeaderLogger } from "./diagnostics.ts";
import { type Durations, defaultDurations, driftMs } from "./timings.ts";

/** All durations are integer milliseconds. */
export interface LeaderElectionOptions {
  /** Name of the election; at most one leader per name. The lock's resource is `leader:<name>`. */
  readonly name: string;
  /**
   * Shown to observers. Default `<hostname>/<pid>`. Two candidates with the same id are harmless: ownership rests on a random
   * token per grant.
   */
  readonly id?: string;
  /** Published to observers, for instance an address. Change it with `term.proclaim()`. Default: none. */
  readonly value?: string;
  /** The lease on the lock nodes. Range 100 to the `Redlock`'s `maxTtl`. Default 15,000. A crashed leader is replaced within it. */
  readonly leaseDuration?: number;
  /**
   * The term ends when this has passed since the *start* of the last successful renewal. Default two thirds of the lease.
   * Must leave the clocks their drift: `renewDeadline + drift < leaseDuration`. The rest is what a task has to stop in.
   */
  readonly renewDeadline?: number;
  /** Between renewals, and between tries after a failed one. Default 2/15 of the lease. At least two tries must fit before the deadline. */
  readonly retryPeriod?: number;
  /** Spread of the pauses between tries and of cooldowns, 0 to 1. Default 0.2. */
  readonly jitter?: number;
  /**
   * After a term that did not end with a clean resignation, the winner holds the lease this long before it leads: time for
   * the work of a frozen predecessor to run out. Range 0 to 600,000. Default 0.
   */
  readonly lockDelay?: number;
  /** A winner gives way, once per vacancy, to a waiting candidate of higher priority. Integer, 0 to 1,000. Default 0. */
  readonly priority?: number;
  /** Asked before each campaign and with each renewal. `false` (or a rejection): do not campaign, or resign. Default: always. */
  readonly eligible?: () => boolean | Promise<boolean>;
  /**
   * Where renewals run. `main` (default): on this event loop. `worker`: in a worker thread that keeps the lease through a
   * blocked event loop, for `maxBlock` and no longer. `redlock` is the URL of a module whose default export is a
   * function that returns a `Redlock` for the same nodes (or a promise of one): clients cannot be sent to a thread.
   */
  readonly renewal?: "main" | { readonly worker: WorkerRenewal };
  /** After a failed task, or a resignation, this candidate stays out for a while; doubles with each failure in a row. Default 1,000 to 60,000. */
  readonly cooldown?: Partial<Cooldown>;
  /** Gets a line for each change of leadership and each error. A pino logger fits. Default: nothing is logged. */
  readonly logger?: LeaderLogger;
  /** A number in [0, 1), for jitter and instance names. Default `Math.random`. */
  readonly random?: () => number;
  /** Milliseconds since the machine booted, suspended time included. Default `os.uptime()`. */
  readonly uptime?: () => number;
}

export interface WorkerRenewal {
  readonly redlock: URL | string;
  /** Range 100 and up. Must be shorter than a minute is long for a watchdog of yours; there is no upper bound here. */
  readonly maxBlock: number;
}

export interface ResolvedOptions extends Durations {
  readonly name: string;
  readonly resource: string;
  readonly id: string;
  readonly value: string | undefined;
  readonly driftMs: number;
  readonly jitter: number;
  readonly lockDelay: number;
  readonly priority: number;
  readonly eligible: (() => boolean | Promise<boolean>) | undefined;
  readonly worker: { readonly redlock: string; readonly maxBlock: number } | undefined;
  readonly cooldown: Cooldown;
  readonly logger: LeaderLogger | undefined;
}

/** What the options are measured against. */
export interface OptionFacts {
  readonly defaultId: string;
  readonly maxTtl: number;
  readonly driftFactor: number;
  readonly nodeTimeout: number;
}

const SHORTEST_LEASE_MS = 100;
const LONGEST_LOCK_DELAY_MS = 600_000;
const HIGHEST_PRIORITY = 1_000;
/** Redis Pub/Sub messages and side keys carry it; more belongs into a store of its own. */
const LONGEST_TEXT = 4_096;

export function resolveOptions(given: LeaderElectionOptions, facts: OptionFacts): ResolvedOptions {
  if (typeof given !== "object" || given === null) throw new TypeError(`options must be an object, got ${show(given)}`);
  const name = text("name", given.name);
  const id = given.id === undefined ? facts.defaultId : text("id", given.id);
  const value = given.value === undefined ? undefined : proclaimedValue(given.value);
  const leaseDuration = optionalInteger(
    "leaseDuration",
    given.leaseDuration,
    SHORTEST_LEASE_MS,
    facts.maxTtl,
    "maxTtl of the Redlock",
  );
  optionalInteger("renewDeadline", given.renewDeadline, 1);
  optionalInteger("retryPeriod", given.retryPeriod, 1);
  const durations = defaultDurations({
    ...(leaseDuration === undefined ? {} : { leaseDuration }),
    ...(given.renewDeadline === undefined ? {} : { renewDeadline: given.renewDeadline }),
    ...(given.retryPeriod === undefined ? {} : { retryPeriod: given.retryPeriod }),
  });
  const drift = driftMs(durations.leaseDuration, facts.driftFactor);
  checkRelations(durations, drift, facts);
  return Object.freeze({
    ...durations,
    name,
    resource: `leader:${name}`,
    id,
    value,
    driftMs: drift,
    jitter: share("jitter", given.jitter ?? 0.2),
    lockDelay: optionalInteger("lockDelay", given.lockDelay, 0, LONGEST_LOCK_DELAY_MS) ?? 0,
    priority: optionalInteger("priority", given.priority, 0, HIGHEST_PRIORITY) ?? 0,
    eligible: optionalFunction("eligible", given.eligible),
    worker: resolveRenewal(given.renewal),
    cooldown: resolveCooldown(given.cooldown),
    logger: given.logger,
  });
}

function checkRelations(durations: Durations, drift: number, facts: OptionFacts): void {
  const { leaseDuration, renewDeadline, retryPeriod } = durations;
  if (leaseDuration > facts.maxTtl) {
    throw new RangeError(`leaseDuration must be <= maxTtl of the Redlock (${facts.maxTtl}), got ${leaseDuration}`);
  }
  if (renewDeadline >= leaseDuration - drift) {
    throw new RangeError(
      `renewDeadline must be < leaseDuration − drift (${leaseDuration - drift}), got ${renewDeadline}`,
    );
  }
  if (2 * retryPeriod > renewDeadline) {
    throw new RangeError(
      `retryPeriod must be <= renewDeadline / 2 (${Math.floor(renewDeadline / 2)}), got ${retryPeriod}`,
    );
  }
  if (retryPeriod + facts.nodeTimeout >= renewDeadline) {
    throw new RangeError(
      `retryPeriod + nodeTimeout of the Redlock (${retryPeriod} + ${facts.nodeTimeout}) must be < renewDeadline, got ${renewDeadline}`,
    );
  }
}

function resolveRenewal(given: LeaderElectionOptions["renewal"]): ResolvedOptions["worker"] {
  if (given === undefined || given === "main") return undefined;
  const worker = typeof given === "object" && given !== null ? given.worker : undefined;
  if (typeof worker !== "object" || worker === null) {
    throw new TypeError(`renewal must be "main" or { worker: { redlock, maxBlock } }, got ${show(given)}`);
  }
  const redlock = worker.redlock instanceof URL ? worker.redlock.href : text("renewal.worker.redlock", worker.redlock);
  if (!URL.canParse(redlock))
    throw new RangeError(`renewal.worker.redlock must be the URL of a module, got ${show(redlock)}`);
  return Object.freeze({ redlock, maxBlock: integer("renewal.worker.maxBlock", worker.maxBlock, 100) });
}

const DEFAULT_COOLDOWN: Cooldown = { initial: 1_000, max: 60_000 };

function resolveCooldown(given: Partial<Cooldown> | undefined): Cooldown {
  const initial = optionalInteger("cooldown.initial", given?.initial, 0) ?? DEFAULT_COOLDOWN.initial;
  const max = optionalInteger("cooldown.max", given?.max, 0) ?? Math.max(initial, DEFAULT_COOLDOWN.max);
  if (max < initial) throw new RangeError(`cooldown.max must be >= cooldown.initial (${initial}), got ${max}`);
  return Object.freeze({ initial, max });
}

export function proclaimedValue(given: unknown): string {
  if (typeof given !== "string") throw new TypeError(`value must be a string, got ${show(given)}`);
  if (given.length > LONGEST_TEXT)
    throw new RangeError(`value must have at most ${LONGEST_TEXT} characters, got ${given.length}`);
  return given;
}

export function text(option: string, given: unknown): string {
  if (typeof given !== "string") throw new TypeError(`${option} must be a string, got ${show(given)}`);
  if (given === "" || given.length > LONGEST_TEXT) {
    throw new RangeError(`${option} must have 1 to ${LONGEST_TEXT} characters, got ${given.length}`);
  }
  return given;
}

export function integer(
  option: string,
  given: unknown,
  least: number,
  most: number = Number.MAX_SAFE_INTEGER,
  whose = "",
): number {
  if (typeof given !== "number") throw new TypeError(`${option} must be a number, got ${show(given)}`);
  if (!Number.isSafeInteger(given) || given < least || given > most) {
    const bounds = most === Number.MAX_SAFE_INTEGER ? `>= ${least}` : `from ${least} to ${most}`;
    throw new RangeError(`${option} must be an integer ${bounds}${whose === "" ? "" : ` (${whose})`}, got ${given}`);
  }
  return given;
}

export function optionalInteger(
  option: string,
  given: unknown,
  least: number,
  most?: number,
  whose?: string,
): number | undefined {
  return given === undefined ? undefined : integer(option, given, least, most, whose);
}

export function optionalFunction<Fn>(option: string, given: Fn | undefined): Fn | undefined {
  if (given !== undefined && typeof given !== "function")
    throw new TypeError(`${option} must be a function, got ${show(given)}`);
  return given;
}

export function oneOf<Choice extends string>(
  option: string,
  given: unknown,
  choices: readonly Choice[],
  fallback: Choice,
): Choice {
  if (given === undefined) return fallback;
  const choice = choices.find((candidate) => candidate === given);
  if (choice !== undefined) return choice;
  const rule = `${option} must be one of ${choices.map((each) => `"${each}"`).join(", ")}, got ${show(given)}`;
  throw typeof given === "string" ? new RangeError(rule) : new TypeError(rule);
}

export function optionalBoolean(option: string, given: unknown): boolean | undefined {
  if (given !== undefined && typeof given !== "boolean")
    throw new TypeError(`${option} must be a boolean, got ${show(given)}`);
  return given;
}

function share(option: string, given: unknown): number {
  if (typeof given !== "number") throw new TypeError(`${option} must be a number, got ${show(given)}`);
  if (!(given >= 0 && given <= 1)) throw new RangeError(`${option} must be from 0 to 1, got ${given}`);
  return given;
}

export function show(given: unknown): string {
  return typeof given === "string" ? JSON.stringify(given) : String(given);
}
