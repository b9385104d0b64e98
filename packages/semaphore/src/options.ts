/** Pure: options, their defaults, and the rules they obey. */
import type { Redlock } from "@x/redlock-core";
import {
  abortSignal,
  boolean,
  type Check,
  callback,
  DAY_MS,
  integer,
  Schema,
  type ShapeOf,
  text,
} from "@x/redlock-core/kit";
import { resourceName, redlock as someRedlock } from "@x/redlock-core/protocol";

/** Options of the leases of a semaphore or read-write lock. A call may override each option. */
export interface LeaseOptions {
  /**
   * How long a lease lasts without an extension, in ms. At least 50, at most the option `maxTtl` of the `Redlock`.
   * Default: the option `ttl` of the `Redlock`.
   */
  readonly ttl?: number | undefined;
  /**
   * How long `acquire` and `using` wait, in ms. With 0 the calls ask once; with Infinity they wait forever. Default:
   * the option of the `Redlock`.
   */
  readonly timeout?: number | undefined;
  /**
   * Whether `acquire` and `tryAcquire` extend their leases until the release. `using` extends its lease unless the call
   * passes false. Default: the option of the `Redlock`.
   */
  readonly autoExtend?: boolean | undefined;
  /**
   * Longest time for which a lease is held, including extensions, in ms. At least 1, may be Infinity. Default: the
   * option of the `Redlock`.
   */
  readonly maxHold?: number | undefined;
}

export interface SemaphoreOptions extends LeaseOptions {
  /** Number of permits of the semaphore, from 1 to 1000000. All clients of a semaphore must use the same number. */
  readonly permits: number;
}

export interface AccessOptions extends LeaseOptions {
  /** Signal that ends the wait immediately. The call then rejects with `signal.reason`. */
  readonly signal?: AbortSignal | undefined;
}

export interface PermitOptions extends AccessOptions {
  /** Number of permits that the call acquires together. Default 1; at most the number of the semaphore. */
  readonly permits?: number | undefined;
}

export interface LatchOptions {
  /** How long the latch is kept after the last `set` or `countDown`, in ms. Default 86400000, a day; at least 1000. */
  readonly keepFor?: number | undefined;
}

export interface WaitOptions {
  /**
   * How long the call waits, in ms. With 0 the call reads the latch once; with Infinity the call waits forever.
   * Default: the option of the `Redlock`.
   */
  readonly timeout?: number | undefined;
  /** Signal that ends the wait immediately. The call then rejects with `signal.reason`. */
  readonly signal?: AbortSignal | undefined;
}

type ResolvedLease = { readonly [Name in keyof LeaseOptions]-?: NonNullable<LeaseOptions[Name]> };

export const MAX_PERMITS = 1_000_000;
const MIN_TTL_MS = 50;

const PERMITS = integer({ min: 1, max: MAX_PERMITS, unit: "" });

/** The maximum bounds the latch's hash, which contains a field for each count-down. */
export const SET_COUNT: Check<number> = integer({ min: 0, max: MAX_PERMITS, unit: "" });
export const ID: Check<string> = text({ min: 1, max: 512 });

export const ROUTINE: Check<(...args: never[]) => unknown> = callback();

/** Checks the `Redlock` and the name that every constructor takes. */
export function checkPlace(redlock: Redlock, name: string): void {
  someRedlock.of("redlock", redlock);
  resourceName.of("name", name);
}

/** Checks the `Redlock` and the name of a class that needs a single node. */
export function checkSinglePlace(redlock: Redlock, name: string): void {
  checkPlace(redlock, name);
  if (redlock.nodeCount === 1) return;
  throw new RangeError(
    `redlock must have one node, or one Cluster, got ${redlock.nodeCount} nodes: permits of independent nodes add up to more than there are`,
  );
}

const TIMING = {
  ttl: integer({ min: MIN_TTL_MS }).optional(),
  timeout: integer({ min: 0, orInfinity: true }).optional(),
  autoExtend: boolean.optional(),
  maxHold: integer({ min: 1, orInfinity: true }).optional(),
} satisfies ShapeOf<LeaseOptions>;

const ACCESS = { ...TIMING, signal: abortSignal.optional() } satisfies ShapeOf<AccessOptions>;

const OF_LATCHES = new Schema({ keepFor: integer({ min: 1_000 }).default(DAY_MS) } satisfies ShapeOf<LatchOptions>);
const PER_WAIT = new Schema({ timeout: TIMING.timeout, signal: ACCESS.signal } satisfies ShapeOf<WaitOptions>);
const OF_LOCKS = new Schema(TIMING);
const OF_SEMAPHORES = new Schema({ ...TIMING, permits: PERMITS } satisfies ShapeOf<SemaphoreOptions>);
const PER_ACCESS = new Schema(ACCESS);
const PER_PERMIT = new Schema({ ...ACCESS, permits: PERMITS.default(1) } satisfies ShapeOf<PermitOptions>);

export function resolveLatchOptions(given: LatchOptions): { readonly keepFor: number } {
  return OF_LATCHES.resolve(given);
}

export function resolveWait(
  given: WaitOptions,
  { options }: Redlock,
): { readonly timeout: number; readonly signal: AbortSignal | undefined } {
  const { timeout = options.timeout, signal } = PER_WAIT.resolve(given);
  return { timeout, signal };
}

export function resolveLockOptions(given: LeaseOptions, { options }: Redlock): ResolvedLease {
  return leaseOf(OF_LOCKS.resolve(given), options);
}

export function resolveSemaphoreOptions(
  given: SemaphoreOptions,
  { options }: Redlock,
): ResolvedLease & { readonly permits: number } {
  const resolved = OF_SEMAPHORES.resolve(given);
  return { ...leaseOf(resolved, options), permits: resolved.permits };
}

interface ResolvedAccess extends ResolvedLease {
  readonly signal: AbortSignal | undefined;
}

/** The calling method: `tryAcquire` refuses a `timeout`, and `using` extends its lease by default. */
export type Manner = "wait" | "try" | "use";

export function resolveAccess(
  given: AccessOptions,
  manner: Manner,
  defaults: ResolvedLease,
  { options }: Redlock,
): ResolvedAccess {
  return accessOf(PER_ACCESS.resolve(given), manner, { ...options, ...defaults });
}

export function resolvePermits(
  given: PermitOptions,
  manner: Manner,
  defaults: ResolvedLease & { readonly permits: number },
  { options }: Redlock,
): ResolvedAccess & { readonly permits: number } {
  const { permits, ...access } = PER_PERMIT.resolve(given);
  if (permits > defaults.permits)
    throw new RangeError(`permits must be at most those of the semaphore (${defaults.permits}), got ${permits}`);
  return { ...accessOf(access, manner, { ...options, ...defaults }), permits };
}

function accessOf(own: AccessOptions, manner: Manner, defaults: LeaseDefaults): ResolvedAccess {
  if (manner === "use") return { ...leaseOf(own, { ...defaults, autoExtend: true }), signal: own.signal };
  if (manner === "wait") return { ...leaseOf(own, defaults), signal: own.signal };
  if (own.timeout !== undefined)
    throw new TypeError('unknown option "timeout": tryAcquire does not wait, acquire does');
  return { ...leaseOf({ ...own, timeout: 0 }, defaults), signal: own.signal };
}

type LeaseDefaults = ResolvedLease & { readonly maxTtl: number };

function leaseOf(own: LeaseOptions, defaults: LeaseDefaults): ResolvedLease {
  const { ttl = defaults.ttl, timeout = defaults.timeout } = own;
  const { autoExtend = defaults.autoExtend, maxHold = defaults.maxHold } = own;
  if (ttl > defaults.maxTtl) throw new RangeError(`ttl must be <= maxTtl (${defaults.maxTtl} ms), got ${ttl}`);
  return { ttl, timeout, autoExtend, maxHold };
}
