/** Pure: options, defaults, and the relations between them. Resolved once into a frozen, complete object. */
import type { Redlock } from "@x/redlock-core";
import { integer, isRedlock, LONGEST_TEXT, optionalFunction, optionalInteger, share, show, text } from "./checks.ts";
import type { Cooldown } from "./cooldown.ts";
import type { LeaderLogger } from "./diagnostics.ts";
import { checkKnown, type Known } from "./known.ts";
import { type Durations, defaultDurations, driftMs } from "./timings.ts";

/** All durations are integer milliseconds. */
export interface LeaderElectionOptions {
  /** Name of the election; at most one leader per name. The lock's resource is `leader:<name>`. */
  readonly name: string;
  /**
   * Shown to observers. Default `<hostname>/<pid>`. Two candidates with the same id are harmless: ownership rests on a random
   * token per grant.
   */
  readonly id?: string | undefined;
  /** Published to observers, for instance an address. Change it with `term.proclaim()`. Default: none. */
  readonly value?: string | undefined;
  /** The lease on the lock nodes. Range 100 to the `Redlock`'s `maxTtl`. Default 15,000. A crashed leader is replaced within it. */
  readonly leaseDuration?: number | undefined;
  /**
   * The term ends when this has passed since the *start* of the last successful renewal. Default two thirds of the lease.
   * Must leave the clocks their drift: `renewDeadline + drift < leaseDuration`. The rest is what a task has to stop in.
   */
  readonly renewDeadline?: number | undefined;
  /** Between renewals, and between tries after a failed one. Default 2/15 of the lease. At least two tries must fit before the deadline. */
  readonly retryPeriod?: number | undefined;
  /** Spread of the pauses between tries and of cooldowns, 0 to 1. Default 0.2. */
  readonly jitter?: number | undefined;
  /**
   * After a term that did not end with a clean resignation, the winner holds the lease this long before it leads: time for
   * the work of a frozen predecessor to run out. Range 0 to 600,000. Default 0.
   */
  readonly lockDelay?: number | undefined;
  /** A winner gives way, once per vacancy, to a waiting candidate of higher priority. Integer, 0 to 1,000. Default 0. */
  readonly priority?: number | undefined;
  /** Asked before each campaign and with each renewal. `false` (or a rejection): do not campaign, or resign. Default: always. */
  readonly eligible?: (() => boolean | Promise<boolean>) | undefined;
  /**
   * Where renewals run. `main` (default): on this event loop. `worker`: in a worker thread that keeps the lease through a
   * blocked event loop, for `maxBlock` and no longer. `redlock` is the URL of a module whose default export is a
   * function that returns a `Redlock` for the same nodes (or a promise of one): clients cannot be sent to a thread.
   */
  readonly renewal?: "main" | { readonly worker: WorkerRenewal } | undefined;
  /** After a failed task, or a resignation, this candidate stays out for a while; doubles with each failure in a row. Default 1,000 to 60,000. */
  readonly cooldown?: CooldownOptions | undefined;
  /** Gets a line for each change of leadership and each error. A pino logger fits. Default: nothing is logged. */
  readonly logger?: LeaderLogger | undefined;
  /** A number in [0, 1), for jitter and instance names. Default `Math.random`. */
  readonly random?: (() => number) | undefined;
  /** Milliseconds since the machine booted, suspended time included. Default `os.uptime()`. */
  readonly uptime?: (() => number) | undefined;
}

export interface CooldownOptions {
  /** After the first failure, in ms. Default 1,000. */
  readonly initial?: number | undefined;
  /** Never longer than this, in ms. Default 60,000, or `initial` if that is longer. */
  readonly max?: number | undefined;
}

export interface WorkerRenewal {
  readonly redlock: URL | string;
  /** In ms: how long a blocked event loop keeps the lease. Range 100 and up: as long as you would let a process hang before it is restarted. */
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
const KNOWN: Known<LeaderElectionOptions> = {
  name: true,
  id: true,
  value: true,
  leaseDuration: true,
  renewDeadline: true,
  retryPeriod: true,
  jitter: true,
  lockDelay: true,
  priority: true,
  eligible: true,
  renewal: true,
  cooldown: true,
  logger: true,
  random: true,
  uptime: true,
};

export function resolveOptions(given: LeaderElectionOptions, facts: OptionFacts): ResolvedOptions {
  checkKnown(given, KNOWN);
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
  const renewDeadline = optionalInteger("renewDeadline", given.renewDeadline, 1);
  const retryPeriod = optionalInteger("retryPeriod", given.retryPeriod, 1);
  const durations = defaultDurations({ leaseDuration, renewDeadline, retryPeriod });
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
    logger: resolveLogger(given.logger),
  });
}

export function checkRedlock(given: Redlock | undefined): void {
  if (isRedlock(given)) return;
  // Not the value: a URL may have a password in it.
  throw new TypeError(`redlock must be a Redlock (of @x/redlock-core), got ${given === null ? "null" : typeof given}`);
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
  checkKnown(given, { worker: true }, "renewal");
  checkKnown(worker, { redlock: true, maxBlock: true }, "renewal.worker");
  const redlock = worker.redlock instanceof URL ? worker.redlock.href : text("renewal.worker.redlock", worker.redlock);
  if (!URL.canParse(redlock))
    throw new RangeError(`renewal.worker.redlock must be the URL of a module, got ${show(redlock)}`);
  return Object.freeze({ redlock, maxBlock: integer("renewal.worker.maxBlock", worker.maxBlock, 100) });
}

const DEFAULT_COOLDOWN: Cooldown = { initial: 1_000, max: 60_000 };

function resolveCooldown(given: CooldownOptions = {}): Cooldown {
  checkKnown(given, { initial: true, max: true }, "cooldown");
  const initial = optionalInteger("cooldown.initial", given.initial, 0) ?? DEFAULT_COOLDOWN.initial;
  const max = optionalInteger("cooldown.max", given.max, 0) ?? Math.max(initial, DEFAULT_COOLDOWN.max);
  if (max < initial) throw new RangeError(`cooldown.max must be >= cooldown.initial (${initial}), got ${max}`);
  return Object.freeze({ initial, max });
}

function resolveLogger(given: LeaderLogger | undefined): LeaderLogger | undefined {
  if (given === undefined) return undefined;
  const missing = (["info", "warn", "error"] as const).find((level) => typeof given?.[level] !== "function");
  if (missing !== undefined) throw new TypeError(`logger must have a method ${missing}(), got ${show(given)}`);
  return given;
}

export function proclaimedValue(given: unknown): string {
  if (typeof given !== "string") throw new TypeError(`value must be a string, got ${show(given)}`);
  if (given.length > LONGEST_TEXT)
    throw new RangeError(`value must have at most ${LONGEST_TEXT} characters, got ${given.length}`);
  return given;
}
