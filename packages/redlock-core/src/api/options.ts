/** Pure: options, their defaults, and the rules they obey. They are resolved once into a frozen, complete object. */
import { type Clock, DAY_MS } from "../kit/clock.ts";
import type { Random } from "../kit/random.ts";
import { abortSignal, boolean, choice, integer, number, objectWith, text } from "../kit/schema/check.ts";
import { type Complete, Schema, type ShapeOf } from "../kit/schema/schema.ts";
import { DEFAULT_DRIFT_FACTOR, driftMs } from "../rules/validity.ts";

/**
 * What `using` does inside a `using` that holds the resource, where it would wait for itself:
 * - `refuse`: it rejects with `ReentrancyError` at once.
 * - `join`: its routine runs under the outer lock. Joined calls that run side by side take turns.
 * - `wait`: it waits until its `timeout`. No asynchronous context is kept, and calls inside do not know of it.
 */
export type Reentrancy = "refuse" | "join" | "wait";

export interface RedlockOptions {
  /** The lease of a lock, in ms. Default 30000; 50 or more, at most `maxTtl`. */
  readonly ttl?: number | undefined;
  /**
   * The longest lease that any client of these nodes asks for, in ms. All clients must use the same value, because a
   * node that restarted or lost its data casts no vote for that long.
   *
   * Default 60000, or `ttl` if that is longer.
   */
  readonly maxTtl?: number | undefined;
  /** How far the clocks of a client and a node may drift apart, as a share of the lease. Default 0.01; 0 to 0.5. */
  readonly driftFactor?: number | undefined;
  /** How long a node may leave one request unanswered, in ms. Default 500; 1 or more. */
  readonly nodeTimeout?: number | undefined;
  /**
   * How long `acquire` and `using` wait for a lock that is held, in ms. Default 10000. With 0 they make one attempt;
   * with Infinity they wait for ever.
   */
  readonly timeout?: number | undefined;
  /** The text put before every resource to make its key. Default "", as in other Redlock libraries. */
  readonly keyPrefix?: string | undefined;
  /**
   * A text that tells operators who holds a lock, such as the service, its host and process id. The nodes keep it in
   * plain text for a day. It costs a lock nothing. Default "": none.
   */
  readonly name?: string | undefined;
  /**
   * Whether `acquire` and `tryAcquire` keep their locks alive until they are released. `using` does, unless its call
   * says false. Default false.
   */
  readonly autoExtend?: boolean | undefined;
  /** When auto-extension ends: no lock is held for longer than this, in ms. Default Infinity. */
  readonly maxHold?: number | undefined;
  /** What `using` does inside a `using` of the same resource. Default "refuse". */
  readonly reentrancy?: Reentrancy | undefined;
  /**
   * Whether a node that restarted or lost its data casts no vote before `maxTtl` has passed. False is your claim that
   * no node ever forgets a lock.
   *
   * Default true for three and more nodes; false for one or two nodes and for a Cluster.
   */
  readonly quarantine?: boolean | undefined;
  /**
   * The pause before the next attempt when nodes failed, in ms. It doubles with each failure, up to a second. Default
   * 50.
   */
  readonly retryDelay?: number | undefined;
  /** The random share added to every pause, in ms. Default 50. */
  readonly retryJitter?: number | undefined;
  /** The source of time, replaced by tests and simulators. Default: the process's clocks. */
  readonly clock?: Clock | undefined;
  /** The source of randomness, replaced by tests and simulators. Default: OpenSSL and `Math.random`. */
  readonly random?: Random | undefined;
}

/** The options that one call may set for itself. */
export interface AcquireOptions {
  /** The lease, in ms. Default: the option of the `Redlock`. */
  readonly ttl?: number | undefined;
  /**
   * How long the call waits, in ms. With 0 it makes one attempt; with Infinity it waits for ever. Default: the option
   * of the `Redlock`.
   */
  readonly timeout?: number | undefined;
  /** A signal that ends the wait at once; the call then rejects with `signal.reason`. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Whether the lock is kept alive until it is released. Default: true for `using`, otherwise the option of the
   * `Redlock`.
   */
  readonly autoExtend?: boolean | undefined;
  /**
   * When auto-extension ends: the lock is held for no longer than this, in ms. Default: the option of the `Redlock`.
   */
  readonly maxHold?: number | undefined;
}

/** The options of a sibling's call, which may have a place in line. */
export interface PlacedOptions extends AcquireOptions {
  /**
   * The place in line, in microseconds since the epoch; the smallest is first. Default: now.
   *
   * After `RedlockProtocol.waitForTurn` has announced a turn, any process may claim it with the same place.
   */
  readonly place?: number | undefined;
}

/** The options that one call of `using` may set for itself. */
export interface UsingOptions extends AcquireOptions {
  /** What the call does inside a `using` of the same resource. Default: the option of the `Redlock`. */
  readonly reentrancy?: Reentrancy | undefined;
}

/** The options in force, complete and frozen. */
export type ResolvedOptions = Complete<Omit<RedlockOptions, "clock" | "random">>;

export interface ResolvedAcquireOptions extends Pick<ResolvedOptions, "ttl" | "timeout" | "autoExtend" | "maxHold"> {
  readonly signal: AbortSignal | undefined;
  readonly place: number | undefined;
  /** See `RedlockProtocol.acquire`. */
  readonly note?: string | undefined;
}

export interface ResolvedUsingOptions extends ResolvedAcquireOptions {
  readonly reentrancy: Reentrancy;
  /** Whether the call itself asks for its `ttl`. */
  readonly hasOwnTtl: boolean;
}

/** A shorter lease leaves nothing to hold after the drift margin, the round trip and the timers' resolution. */
const MIN_TTL_MS = 50;

/** These options of node-redlock have another name here. */
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

/** These are the options of `waitForTurn`, which neither locks nor ends by itself. */
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
    throw new RangeError("quarantine must be false for a Cluster (the node's hash lives in another slot), got true");
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

/** Resolves the options of one attempt, which does not wait. */
export function resolveTryOptions(
  given: Omit<AcquireOptions, "timeout"> | undefined,
  defaults: ResolvedOptions,
): ResolvedAcquireOptions {
  return oneTry(given, resolveAcquireOptions(given, defaults));
}

/** Resolves the options of a sibling's one attempt. */
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
