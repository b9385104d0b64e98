/**
 * Pure: options, defaults, and the relations between options. Options are resolved once, into a frozen and complete
 * object.
 */
import {
  type Complete,
  callback,
  integer,
  number,
  type Option,
  Schema,
  type ShapeOf,
  show,
  textLike,
} from "@x/redlock-core/kit";
import { validityMs } from "@x/redlock-core/protocol";
import { type Cooldown, type Durations, defaultDurations } from "./rules/timings.ts";
import { durationMs, durationOrNoneMs, electionName, LEADER, name, proclaimedValue } from "./rules/values.ts";

/** The options of an election. All durations are integer milliseconds. */
export interface LeaderElectionOptions {
  /**
   * The name of the election, of 1 to 4,089 bytes. There is at most one leader per name. The lock's resource is
   * `leader:<name>`.
   */
  readonly name: string;
  /**
   * The name of this candidate, which observers see, of 1 to 4,096 characters. Default `<hostname>/<pid>`.
   *
   * Two candidates may have the same ID, because a random token of each grant decides the ownership.
   */
  readonly id?: string | undefined;
  /**
   * A text for observers, such as an address, of at most 4,096 characters. `term.proclaim()` changes the text. Default:
   * none.
   */
  readonly value?: string | undefined;
  /**
   * The lease on the lock nodes. A crashed leader is replaced within this time. Range 100 to the `Redlock`'s `maxTtl`.
   * Default 15,000.
   */
  readonly leaseDuration?: number | undefined;
  /**
   * The term ends when this has passed since the *start* of the last successful renewal. Default two thirds of the
   * lease.
   *
   * The clocks' drift must fit: `renewDeadline + drift < leaseDuration`. A task must stop within the rest of the lease.
   */
  readonly renewDeadline?: number | undefined;
  /**
   * The time from the beginning of a renewal, successful or not, to the beginning of the next renewal. Default 2/15 of
   * the lease. At most half of `renewDeadline`, and with the `Redlock`'s `nodeTimeout` less than `renewDeadline`.
   */
  readonly retryPeriod?: number | undefined;
  /** The random spread of the pauses between attempts and of cooldowns, 0 to 1. Default 0.2. */
  readonly jitter?: number | undefined;
  /**
   * After a term that did not end with a clean resignation, the winner holds the lease this long before it leads. The
   * work of a frozen predecessor can end in this time. Range 0 to 600,000. Default 0.
   */
  readonly lockDelay?: number | undefined;
  /**
   * Called before each campaign and with each renewal. If the function returns false or fails, the process does not
   * campaign, or resigns. Default: always eligible.
   */
  readonly eligible?: (() => boolean | Promise<boolean>) | undefined;
  /**
   * The thread that renews the lease.
   *
   * - `main` (default): the thread of this event loop.
   * - `worker`: a worker thread, which keeps the lease of a blocked event loop for up to `maxBlock`.
   */
  readonly renewal?: "main" | { readonly worker: WorkerRenewal } | undefined;
  /**
   * The pause of this candidate after a failed task or a resignation. The pause doubles with each failure in a row.
   * Default: 1,000 ms after the first failure, up to 60,000 ms.
   */
  readonly cooldown?: CooldownOptions | undefined;
}

export interface CooldownOptions {
  /** The pause after the first failure, in ms. Default 1,000. */
  readonly initial?: number | undefined;
  /** The longest pause, in ms, at least `initial`. Default 60,000, or `initial` if `initial` is longer. */
  readonly max?: number | undefined;
}

export interface WorkerRenewal {
  /**
   * The URL of a module. The default export must be a function that returns a `Redlock` for the same nodes, or a
   * promise of the `Redlock`. Clients cannot be sent to a thread.
   */
  readonly redlock: URL | string;
  /**
   * The longest block of the event loop during which the lease is renewed, in ms, from 100. Choose the time after which
   * you would restart a process that hangs.
   */
  readonly maxBlock: number;
}

export interface ResolvedOptions extends Complete<Omit<LeaderElectionOptions, "renewal">, "value" | "eligible"> {
  readonly resource: string;
  readonly driftFactor: number;
  readonly worker: (WorkerRenewal & { readonly redlock: string }) | undefined;
  readonly cooldown: Cooldown;
}

/** Facts that the options are compared with. */
interface OptionFacts {
  readonly defaultId: string;
  readonly maxTtl: number;
  readonly driftFactor: number;
  readonly nodeTimeout: number;
}

const SHORTEST_LEASE_MS = 100;
const LONGEST_LOCK_DELAY_MS = 600_000;
const DEFAULT_COOLDOWN: Cooldown = { initial: 1_000, max: 60_000 };

const COOLDOWN = new Schema({
  initial: durationOrNoneMs.default(DEFAULT_COOLDOWN.initial),
  max: durationOrNoneMs.optional(),
} satisfies ShapeOf<CooldownOptions>);

/** Only URLs of these schemes appear in messages of the thread. Other URLs might contain a password. */
const MODULE = textLike("the URL of a module", isModule);

function isModule(url: string): boolean {
  if (!/^(file|data|https?):/.test(url) || !URL.canParse(url)) return false;
  const { username, password } = new URL(url);
  return username === "" && password === "";
}

const RENEWAL = new Schema({
  worker: new Schema({
    redlock: {
      rule: MODULE.rule,
      fallback: undefined,
      of: (option: string, given: unknown): string => MODULE.of(option, given instanceof URL ? given.href : given),
    },
    maxBlock: integer({ min: 100 }),
  }).inside(),
});

const renewal: Option<ResolvedOptions["worker"]> = {
  rule: '"main" or { worker: { redlock, maxBlock } }',
  fallback: undefined,
  of(option: string, given: unknown): ResolvedOptions["worker"] {
    if (given === undefined || given === "main") return undefined;
    if (typeof given === "object" && given !== null) return RENEWAL.resolve(given, option).worker;
    throw new TypeError(`${option} must be ${this.rule}, got ${show(given)}`);
  },
};

const OPTIONS = new Schema({
  name: electionName,
  id: name.optional(),
  value: proclaimedValue.optional(),
  leaseDuration: integer({ min: SHORTEST_LEASE_MS }).optional(),
  renewDeadline: durationMs.optional(),
  retryPeriod: durationMs.optional(),
  jitter: number({ min: 0, max: 1 }).default(0.2),
  lockDelay: integer({ min: 0, max: LONGEST_LOCK_DELAY_MS }).default(0),
  eligible: callback<() => boolean | Promise<boolean>>().optional(),
  renewal,
  cooldown: COOLDOWN.inside(),
} satisfies ShapeOf<Omit<LeaderElectionOptions, "renewal">> & { readonly renewal: Option<ResolvedOptions["worker"]> });

export function resolveOptions(given: LeaderElectionOptions, facts: OptionFacts): ResolvedOptions {
  const { id = facts.defaultId, renewal: worker, cooldown, ...own } = OPTIONS.resolve(given);
  const durations = defaultDurations(own);
  checkRelations(durations, facts);
  const { driftFactor } = facts;
  const resource = LEADER + own.name;
  return Object.freeze({ ...own, ...durations, id, resource, driftFactor, worker, cooldown: cooldownOf(cooldown) });
}

function checkRelations(durations: Durations, facts: OptionFacts): void {
  const { leaseDuration, renewDeadline, retryPeriod } = durations;
  if (leaseDuration > facts.maxTtl) {
    throw new RangeError(`leaseDuration must be <= maxTtl of the Redlock (${facts.maxTtl}), got ${leaseDuration}`);
  }
  const longestMs = validityMs(leaseDuration, facts.driftFactor);
  if (renewDeadline >= longestMs)
    throw new RangeError(`renewDeadline must be < leaseDuration − drift (${longestMs}), got ${renewDeadline}`);
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

function cooldownOf(given: ReturnType<typeof COOLDOWN.resolve>): Cooldown {
  const { initial, max = Math.max(initial, DEFAULT_COOLDOWN.max) } = given;
  if (max < initial) throw new RangeError(`cooldown.max must be >= cooldown.initial (${initial}), got ${max}`);
  return Object.freeze({ initial, max });
}
