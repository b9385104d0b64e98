/** Pure: the options with their defaults and rules. Options are resolved once into a complete, frozen object. */
import { type Clock, DAY_MS } from "../kit/clock.ts";
import type { Random } from "../kit/random.ts";
import { abortSignal, boolean, choice, integer, number, objectWith, text } from "../kit/schema/check.ts";
import { type Complete, Schema, type ShapeOf } from "../kit/schema/schema.ts";
import { DEFAULT_DRIFT_FACTOR, driftMs } from "../rules/validity.ts";

/**
 * Behavior of `using` inside another `using` that holds the resource, where the inner call would wait for itself:
 * - `refuse`: the call rejects with `ReentrancyError` immediately.
 * - `join`: the routine runs under the outer lock. Concurrent joined calls run one after another.
 * - `wait`: the call waits until its `timeout`. No asynchronous context is kept, so calls inside do not know the outer
 *   call.
 */
export type Reentrancy = "refuse" | "join" | "wait";

export interface RedlockOptions {
  /** Lease of a lock, in ms. Default 30000; at least 50, at most `maxTtl`. */
  readonly ttl?: number | undefined;
  /**
   * Longest lease that any client of these nodes requests, in ms. All clients must use the same value, because a node
   * that has restarted or lost its data does not vote for this long.
   *
   * Default 60000, or `ttl` if longer. At least `ttl`, at most 86400000, a day.
   */
  readonly maxTtl?: number | undefined;
  /** Possible drift between the clocks of a client and a node, as a share of the lease. Default 0.01; 0 to 0.5. */
  readonly driftFactor?: number | undefined;
  /** How long a node may leave a request unanswered, in ms. Default 500; from 1 to 86400000. */
  readonly nodeTimeout?: number | undefined;
  /**
   * How long `acquire` and `using` wait for a lock that is held, in ms. Default 10000. With 0 a call makes one attempt;
   * with Infinity it waits forever.
   */
  readonly timeout?: number | undefined;
  /** Text before every resource in its key. Default "", as in other libraries for Redlock. */
  readonly keyPrefix?: string | undefined;
  /**
   * Text that shows operators who holds a lock, such as the service with its host and process ID. The nodes store the
   * text unencrypted for a day. A name adds no cost to a lock. At most 200 characters. Default "": none.
   */
  readonly name?: string | undefined;
  /**
   * Whether `acquire` and `tryAcquire` extend their locks automatically until the release. `using` always does, unless
   * the call sets the option to false. Default false.
   */
  readonly autoExtend?: boolean | undefined;
  /** Longest time for which a lock is held, in ms. Automatic extension ends then. Default Infinity; at least 1. */
  readonly maxHold?: number | undefined;
  /** Behavior of `using` inside a `using` of the same resource. Default "refuse". */
  readonly reentrancy?: Reentrancy | undefined;
  /**
   * Whether a node that has restarted or lost its data must not vote until `maxTtl` has passed. Set false only if no
   * node ever forgets a lock.
   *
   * Default true for three and more nodes; false for one or two nodes and for a Cluster.
   */
  readonly quarantine?: boolean | undefined;
  /**
   * Pause before the next attempt after nodes have failed, in ms. The pause doubles with each failure. No pause is
   * longer than a second, even with a longer `retryDelay`. Default 50.
   */
  readonly retryDelay?: number | undefined;
  /** Upper limit of the random time that is added to every pause, in ms. Default 50. */
  readonly retryJitter?: number | undefined;
  /** Source of time, replaced by tests and simulators. Default: the clocks of the process. */
  readonly clock?: Clock | undefined;
  /** Source of randomness, replaced by tests and simulators. Default: OpenSSL and `Math.random`. */
  readonly random?: Random | undefined;
}

/** Options of a single call. */
export interface AcquireOptions {
  /** Lease in ms. At least 50, at most `maxTtl`. Default: the option of the `Redlock`. */
  readonly ttl?: number | undefined;
  /**
   * How long the call waits, in ms. With 0 the call makes one attempt; with Infinity it waits forever. Default: the
   * option of the `Redlock`.
   */
  readonly timeout?: number | undefined;
  /** Signal that ends the wait immediately. The call then rejects with `signal.reason`. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Whether the lock is extended automatically until the release. Default: true for `using`, otherwise the option of
   * the `Redlock`.
   */
  readonly autoExtend?: boolean | undefined;
  /**
   * Longest time for which the lock is held, in ms. Automatic extension ends then. Default: the option of the
   * `Redlock`.
   */
  readonly maxHold?: number | undefined;
}

/** Options of a call by a sibling package, which may set the place in the line. */
export interface PlacedOptions extends AcquireOptions {
  /**
   * Place in the line, in microseconds since the epoch. The smallest place comes first. Default: now.
   *
   * After `RedlockProtocol.waitForTurn` has announced a turn, any process may claim the turn with the same place.
   */
  readonly place?: number | undefined;
}

/** Options of a single call of `using`. */
export interface UsingOptions extends AcquireOptions {
  /** Behavior of the call inside a `using` of the same resource. Default: the option of the `Redlock`. */
  readonly reentrancy?: Reentrancy | undefined;
}

/** Complete and frozen options. */
export type ResolvedOptions = Complete<Omit<RedlockOptions, "clock" | "random">>;

export interface ResolvedAcquireOptions extends Pick<ResolvedOptions, "ttl" | "timeout" | "autoExtend" | "maxHold"> {
  readonly signal: AbortSignal | undefined;
  readonly place: number | undefined;
  /** See `RedlockProtocol.acquire`. */
  readonly note?: string | undefined;
}

export interface ResolvedUsingOptions extends ResolvedAcquireOptions {
  readonly reentrancy: Reentrancy;
  /** Whether the call itself sets its `ttl`. */
  readonly hasOwnTtl: boolean;
}

/** A shorter lease would leave no time after the drift, the round trip and the resolution of timers. */
const MIN_TTL_MS = 50;

/** Options of node-redlock with another name here. */
const REPLACED: Readonly<Record<string, string>> = {
  retryCount: "timeout",
  automaticExtensionThreshold: "autoExtend",
};

function replacementOf(name: string): string | undefined {
  const replacement = Object.hasOwn(REPLACED, name) ? REPLACED[name] : undefined;
  return replacement === undefined
    ? undefined
    : `"${replacement}" replaces it; @x/node-redlock takes the options of node-redlock`;
}

const TTL = integer({ min: MIN_TTL_MS, max: DAY_MS });
const TIMEOUT = integer({ min: 0, orInfinity: true });
const MAX_HOLD = integer({ min: 1, orInfinity: true });

const REENTRANCY = choice(["refuse", "join", "wait"]);

const SHAPE = {
  ttl: TTL.default(30_000),
  maxTtl: TTL.optional(),
  driftFactor: number({ min: 0, max: 0.5 }).default(DEFAULT_DRIFT_FACTOR),
  nodeTimeout: integer({ min: 1, max: DAY_MS }).default(500),
  timeout: TIMEOUT.default(10_000),
  keyPrefix: text().default(""),
  name: text({ max: 200 }).default(""),
  autoExtend: boolean.default(false),
  maxHold: MAX_HOLD.default(Number.POSITIVE_INFINITY),
  reentrancy: REENTRANCY.default("refuse"),
  quarantine: boolean.optional(),
  retryDelay: integer({ min: 0, max: DAY_MS }).default(50),
  retryJitter: integer({ min: 0, max: DAY_MS }).default(50),
  clock: objectWith<Clock>(["monotonicMs", "wallMs", "suspendedMs", "schedule", "defer"]).optional(),
  random: objectWith<Random>(["token", "fraction"]).optional(),
} satisfies ShapeOf<RedlockOptions>;

const CALL_SHAPE = {
  ttl: TTL.optional(),
  timeout: TIMEOUT.optional(),
  signal: abortSignal.optional(),
  autoExtend: boolean.optional(),
  maxHold: MAX_HOLD.optional(),
} satisfies ShapeOf<AcquireOptions>;

const PLACE = integer({ min: 0, unit: "µs" }).optional();

const USING_SHAPE = { ...CALL_SHAPE, reentrancy: REENTRANCY.optional() } satisfies ShapeOf<UsingOptions>;

const OF_CALLS = "it is an option of acquire, tryAcquire and using";
const OPTIONS = new Schema(SHAPE, (name) => replacementOf(name) ?? (name in CALL_SHAPE ? OF_CALLS : undefined));
const ofRedlock = (name: string): string | undefined =>
  replacementOf(name) ?? (name in SHAPE ? "it is an option of new Redlock" : undefined);
const PER_CALL: Schema<typeof CALL_SHAPE> = new Schema(CALL_SHAPE, (name) =>
  name in USING_SHAPE ? "it is an option of new Redlock and using" : ofRedlock(name),
);
const PLACED_SHAPE = { ...CALL_SHAPE, place: PLACE } satisfies ShapeOf<PlacedOptions>;
const PER_PLACED: Schema<typeof PLACED_SHAPE> = new Schema(PLACED_SHAPE, ofRedlock);
const PER_USING: Schema<typeof USING_SHAPE> = new Schema(USING_SHAPE, ofRedlock);

/** Options of `waitForTurn`, which does not lock and has no timeout. */
const UNTIL_TURN = new Schema({ place: PLACE, signal: CALL_SHAPE.signal }, (name) =>
  name in CALL_SHAPE ? OF_CALLS : undefined,
);

interface RedlockSettings {
  readonly options: ResolvedOptions;
  readonly clock: Clock | undefined;
  readonly random: Random | undefined;
}

export function resolveOptions(
  given: RedlockOptions,
  nodes: { readonly count: number; readonly isCluster: boolean },
): RedlockSettings {
  const { clock, random, ...own } = OPTIONS.resolve(given);
  const { ttl, driftFactor, maxTtl = Math.max(60_000, ttl) } = own;
  checkTtl(ttl, maxTtl, driftFactor);
  const quarantine = own.quarantine ?? (nodes.count >= 3 && !nodes.isCluster);
  if (quarantine && nodes.isCluster) {
    throw new RangeError("quarantine must be false for a Cluster (the node's hash is in another slot), got true");
  }
  return { options: Object.freeze({ ...own, maxTtl, quarantine }), clock, random };
}

export function resolveAcquireOptions(
  given: AcquireOptions | undefined = {},
  defaults: ResolvedOptions,
): ResolvedAcquireOptions {
  PER_CALL.checkNames(given);
  return valuesOf(given, defaults, defaults.autoExtend);
}

/** Resolves the options of a sibling's call. */
export function resolvePlacedOptions(given: PlacedOptions, defaults: ResolvedOptions): ResolvedAcquireOptions {
  PER_PLACED.checkNames(given);
  return { ...valuesOf(given, defaults, defaults.autoExtend), place: PER_PLACED.get(given, "place") };
}

export function resolveUsingOptions(
  given: UsingOptions | undefined = {},
  defaults: ResolvedOptions,
): ResolvedUsingOptions {
  PER_USING.checkNames(given);
  return {
    ...valuesOf(given, defaults, true),
    reentrancy: PER_USING.get(given, "reentrancy") ?? defaults.reentrancy,
    hasOwnTtl: PER_CALL.get(given, "ttl") !== undefined,
  };
}

function valuesOf(
  given: AcquireOptions,
  defaults: ResolvedOptions,
  autoExtendDefault: boolean,
): ResolvedAcquireOptions {
  return {
    ttl: resolveTtl(PER_CALL.get(given, "ttl"), defaults),
    timeout: PER_CALL.get(given, "timeout") ?? defaults.timeout,
    signal: PER_CALL.get(given, "signal"),
    autoExtend: PER_CALL.get(given, "autoExtend") ?? autoExtendDefault,
    maxHold: PER_CALL.get(given, "maxHold") ?? defaults.maxHold,
    place: undefined,
  };
}

/** Resolves the options of a single attempt, which does not wait. */
export function resolveTryOptions(
  given: Omit<AcquireOptions, "timeout"> | undefined,
  defaults: ResolvedOptions,
): ResolvedAcquireOptions {
  return oneTry(given, resolveAcquireOptions(given, defaults));
}

/** Resolves the options of a sibling's single attempt. */
export function resolvePlacedTry(
  given: Omit<PlacedOptions, "timeout">,
  defaults: ResolvedOptions,
): ResolvedAcquireOptions {
  return oneTry(given, resolvePlacedOptions(given, defaults));
}

function oneTry(given: AcquireOptions | undefined, resolved: ResolvedAcquireOptions): ResolvedAcquireOptions {
  if (given !== undefined && PER_CALL.get(given, "timeout") !== undefined)
    throw new TypeError('unknown option "timeout": tryAcquire does not wait, acquire does');
  return { ...resolved, timeout: 0 };
}

export function resolveTurnOptions(given: Pick<PlacedOptions, "place" | "signal">): {
  readonly place: number | undefined;
  readonly signal: AbortSignal | undefined;
} {
  return UNTIL_TURN.resolve(given);
}

export function resolveTtl(given: number | undefined, defaults: ResolvedOptions): number {
  if (given === undefined) return defaults.ttl;
  const ttl = TTL.of("ttl", given);
  checkTtl(ttl, defaults.maxTtl, defaults.driftFactor);
  return ttl;
}

function checkTtl(ttl: number, maxTtl: number, driftFactor: number): void {
  if (ttl > maxTtl) throw new RangeError(`ttl must be <= maxTtl (${maxTtl} ms), got ${ttl}`);
  const drift = driftMs(ttl, driftFactor);
  if (ttl <= drift) throw new RangeError(`ttl must be > drift (${drift} ms), got ${ttl}`);
}
