import { EventEmitter } from "node:events";
import { callQuietly, readClock } from "@x/redlock-core/kit";
import { AutoExtension, BY_THIRDS, batchScript, type LeaseEnd, leaseEnd, remainingMs } from "@x/redlock-core/protocol";
import { acquire } from "./acquisition.ts";
import { Call, type Outcome } from "./call.ts";
import {
  type CustomScripts,
  checkDuration,
  clientsOf,
  DEFAULT_SETTINGS,
  ENGINE_SETTINGS,
  lockWith,
  SCRIPTS,
  settingsOf,
} from "./settings.ts";
import { quitClients, type SharedEngine, type SharedSettings, sharedEngine } from "./shared-engine.ts";
import {
  type Client,
  type EngineSettings,
  ExecutionError,
  type ExecutionResult,
  type ExecutionStats,
  type RedlockAbortSignal,
  type Settings,
  type SomeSettings,
} from "./types.ts";

/**
 * Stands for an unknown fencing token of a lock that was constructed by the caller. An extension of this lock repairs
 * no client.
 */
const NO_FENCING_TOKEN = -1;

/** Private facts about a lock. */
interface Lease {
  /** End of the lease by all clocks. `expiration` only contains the wall clock. */
  readonly end: LeaseEnd;
  /** Longest duration requested for the lock's value, with or without an answer. The keys may live for this long. */
  readonly longestMs: number;
}

/** Leases of the locks. A lock that the caller constructed has none until it is extended. */
const leases = new WeakMap<Lock, Lease>();

/** A lock that was acquired or extended. */
export class Lock {
  readonly redlock: Redlock;
  readonly resources: string[];
  readonly value: string;
  readonly attempts: readonly Promise<ExecutionStats>[];
  /**
   * Time until which the lock may be trusted, in ms since the epoch. 0 after the lock was released, or replaced by an
   * extension.
   */
  expiration: number;
  /**
   * Fencing token, strictly greater than the token of every earlier grant of each of the resources (see
   * `Lock.fencingToken` of the core). Undefined if the lock was constructed by the caller.
   */
  readonly fencingToken: number | undefined;

  constructor(
    redlock: Redlock,
    resources: string[],
    value: string,
    attempts: readonly Promise<ExecutionStats>[],
    expiration: number,
    fencingToken?: number,
  ) {
    this.redlock = redlock;
    this.resources = resources;
    this.value = value;
    this.attempts = attempts;
    this.expiration = expiration;
    this.fencingToken = fencingToken;
  }

  /** See `Redlock.release`. */
  release(): Promise<ExecutionResult> {
    return this.redlock.release(this);
  }

  /** See `Redlock.extend`. */
  extend(duration: number): Promise<Lock> {
    return this.redlock.extend(this, duration);
  }
}

type Routine<Result> = (signal: RedlockAbortSignal) => Promise<Result>;

/**
 * The class of node-redlock 5 on the engine of `@x/redlock-core`. Emits `error` for each client that failed, even if a
 * quorum was reached, but not for contention. Without a listener these errors are ignored.
 */
export class Redlock extends EventEmitter {
  readonly clients: Set<Client>;
  readonly settings: Settings;
  /** The engine's only script, which performs all three operations. */
  readonly scripts: Readonly<Record<keyof CustomScripts, { readonly value: string; readonly hash: string }>>;
  readonly #engineSettings: SharedSettings;
  /** Emits the error of a client. A listener that throws breaks nothing. */
  readonly #onError = (error: Error): void => callQuietly(() => this.emit("error", error));

  /**
   * Creates a `Redlock` with one client per independent Redis node or Cluster.
   * @throws TypeError for custom scripts, because the promises depend on the engine's own script.
   */
  constructor(clients: Iterable<Client>, settings: SomeSettings & EngineSettings = {}, scripts: CustomScripts = {}) {
    super();
    // An `error` event without a listener would end the process.
    this.on("error", () => undefined);
    this.clients = clientsOf(clients);
    if (this.clients.size === 0) throw new Error("Redlock must be instantiated with at least one redis client.");
    SCRIPTS.resolve(scripts, "scripts");
    this.settings = settingsOf(settings, DEFAULT_SETTINGS);
    this.#engineSettings = { ...ENGINE_SETTINGS.pick(settings), driftFactor: this.settings.driftFactor };
    const text = { value: batchScript.source, hash: batchScript.sha1 };
    this.scripts = { acquireScript: text, extendScript: text, releaseScript: text };
    sharedEngine(this.clients, this.#engineSettings);
  }

  /** Calls `quit()` on all clients, and closes the additional connections to their servers. */
  async quit(): Promise<void> {
    await quitClients([...this.clients]);
  }

  /**
   * Acquires a lock on all resources or none, for `duration` ms, an integer. The lock is valid when the call resolves.
   *
   * Rejects with `ExecutionError` if none of the `settings.retryCount + 1` attempts reached a quorum.
   */
  async acquire(resources: string[], duration: number, settings?: SomeSettings): Promise<Lock> {
    const call = this.#call(resources, settings);
    checkDuration(duration, call.settings.driftFactor, this.#engineSettings.maxTtl);
    const { token, fencingToken, end } = await acquire(call, duration);
    const lock = new Lock(this, listOf(resources), token, call.attempts, 0, fencingToken);
    return keep(lock, { end, longestMs: duration });
  }

  /**
   * Releases the lock on all clients. Rejects with `ExecutionError` in two cases:
   * - Fewer clients than a quorum can still have the lock. The call rejects immediately.
   * - Too few clients answered. The call rejects after the retries, and at the latest when the lock has expired.
   *
   * The error may be ignored. Clients that could not be reached receive the release when they are connected again, and
   * the lock expires without it.
   */
  async release(lock: Lock, settings?: SomeSettings): Promise<ExecutionResult> {
    LOCK.of("lock", lock);
    const call = this.#call(lock.resources, settings);
    const { end, longestMs } = leaseOf(lock, call.shared);
    lock.expiration = 0;
    await call.repeat(end, () => call.release(lock.value, longestMs));
    return { attempts: call.attempts };
  }

  /**
   * Extends a valid lock to `duration` ms from now, and resolves with a new lock that replaces it. An extension never
   * shortens the lock on the clients.
   *
   * Rejects with `ExecutionError` if the lock is no longer valid, or if no quorum extended the lock while it was valid.
   */
  async extend(existing: Lock, duration: number, settings?: SomeSettings): Promise<Lock> {
    LOCK.of("existing", existing);
    const call = this.#call(existing.resources, settings);
    checkDuration(duration, call.settings.driftFactor, this.#engineSettings.maxTtl);
    const { end } = leaseOf(existing, call.shared);
    if (remainingMs(end, readClock(call.shared.protocol.clock)) <= 0)
      throw new ExecutionError("Cannot extend an already-expired lock.", []);
    await call.repeat(end, () => extendOnce(call, existing, duration));
    const { value, fencingToken } = existing;
    const extended = new Lock(this, listOf(existing.resources), value, call.attempts, 0, fencingToken);
    keep(extended, leaseOf(existing, call.shared));
    existing.expiration = 0;
    return extended;
  }

  /**
   * Acquires the lock like `acquire`, calls `routine` with a signal, and always releases the lock. Once the routine is
   * called, the call settles like the routine: a failed release never replaces the routine's result or error.
   *
   * The lock is extended while the routine runs. If the lock is lost, the signal aborts with `signal.error` set, at the
   * latest when the validity ends.
   */
  async using<Result>(
    resources: string[],
    duration: number,
    settings: SomeSettings,
    routine?: Routine<Result>,
  ): Promise<Result>;
  async using<Result>(resources: string[], duration: number, routine: Routine<Result>): Promise<Result>;
  async using<Result>(
    resources: string[],
    duration: number,
    settingsOrRoutine: SomeSettings | Routine<Result> | undefined,
    optionalRoutine?: Routine<Result>,
  ): Promise<Result> {
    const routine = optionalRoutine ?? settingsOrRoutine;
    const given = typeof settingsOrRoutine === "function" ? undefined : settingsOrRoutine;
    const { settings, shared } = this.#call(resources, given);
    checkDuration(duration, settings.driftFactor, this.#engineSettings.maxTtl);
    if (typeof routine !== "function") throw new TypeError("INVARIANT: routine is not a function.");
    const { automaticExtensionThreshold: thresholdMs } = settings;
    if (thresholdMs > duration - 100) {
      throw new RangeError(
        "A lock `duration` must be at least 100ms greater than the `automaticExtensionThreshold` setting.",
      );
    }
    const lock = await this.acquire(resources, duration, settings);
    const controller = new AbortController();
    const signal: RedlockAbortSignal = controller.signal;
    const { clock } = shared.protocol;
    const extension = new AutoExtension(
      clock,
      {
        remaining: () => remainingMs(leaseOf(lock, shared).end, readClock(clock)),
        keepAlive: true,
        expiredError: () => new ExecutionError("The lock expired before it could be extended.", []),
        extend: async () => {
          const once = this.#call(resources, settings);
          const outcome = await extendOnce(once, lock, duration);
          return outcome === "done" ? { kind: "extended" } : { kind: outcome, error: once.error() };
        },
      },
      { ...BY_THIRDS, dueMs: (sinceMs, ttlMs) => sinceMs + ttlMs - thresholdMs },
      (error) => {
        signal.error = error;
        controller.abort(error);
      },
    );
    try {
      return await routine(signal);
    } finally {
      extension.stop();
      await this.release(lock, { retryCount: 0 }).catch(() => undefined);
    }
  }

  #call(resources: string[], given: SomeSettings | undefined): Call {
    const settings = settingsOf(given, this.settings);
    return new Call(sharedEngine(this.clients, this.#engineSettings), resources, settings, this.#onError);
  }
}

/** Extends a lock once. The keys may live for `duration` even if no client answers. */
async function extendOnce(call: Call, lock: Lock, duration: number): Promise<Outcome> {
  const { end, longestMs: knownMs } = leaseOf(lock, call.shared);
  const longestMs = Math.max(knownMs, duration);
  leases.set(lock, { end, longestMs });
  const { value: token, fencingToken = NO_FENCING_TOKEN } = lock;
  const asked = readClock(call.shared.protocol.clock);
  const outcome = await call.extend({ token, fencingToken, ttlMs: duration, end });
  if (outcome === "done") keep(lock, { end: leaseEnd(asked, duration, call.settings.driftFactor), longestMs });
  return outcome;
}

const LOCK = lockWith<Lock>("resources");

/** Sets the lease of a lock, and its public end. */
function keep(lock: Lock, lease: Lease): Lock {
  lock.expiration = lease.end.wallMs;
  leases.set(lock, lease);
  return lock;
}

/**
 * Returns the lease of a lock. The end of an unknown lock, and of a lock whose `expiration` the caller has changed, is
 * known by the wall clock only.
 */
function leaseOf(lock: Lock, { protocol, redlock }: SharedEngine): Lease {
  const known = leases.get(lock);
  if (known?.end.wallMs === lock.expiration) return known;
  const now = readClock(protocol.clock);
  const end = { ...now, wallMs: lock.expiration, monotonicMs: now.monotonicMs + (lock.expiration - now.wallMs) };
  return { end, longestMs: known?.longestMs ?? redlock.options.maxTtl };
}

/** Returns a copy of the resources. Untyped code may pass a single resource as a string. */
function listOf(resources: string | string[]): string[] {
  return [resources].flat();
}
