import { EventEmitter } from "node:events";
import { callQuietly, readClock, shaped } from "@x/redlock-core/kit";
import {
  AutoExtension,
  batchScript,
  type LeaseEnd,
  leaseEnd,
  type RenewalPolicy,
  remainingMs,
} from "@x/redlock-core/protocol";
import { acquire } from "./acquisition.ts";
import { NO_QUORUM, Retries, untilOver } from "./retries.ts";
import {
  type CustomScripts,
  checkDuration,
  clientsOf,
  DEFAULT_SETTINGS,
  engineSettingsOf,
  refuseScripts,
  settingsOf,
} from "./settings.ts";
import { quitClients, type SharedEngine, sharedEngine } from "./shared-engine.ts";
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
import { VoteCount } from "./vote-count.ts";

/**
 * Stands for an unknown fencing token of a lock that was constructed by the caller. An extension of this lock repairs
 * no client.
 */
const NO_FENCING_TOKEN = -1;

/** Private facts about a lock. Unknown for a lock that was constructed by the caller. */
interface KnownLease {
  /** End of the lease by all clocks. `expiration` only contains the wall clock. */
  readonly end: LeaseEnd;
  /** Longest duration requested for the lock's value, with or without an answer. The keys may live for this long. */
  readonly longestMs: number;
}

const leases = new WeakMap<Lock, KnownLease>();

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

interface ScriptText {
  readonly value: string;
  readonly hash: string;
}

type Routine<Result> = (signal: RedlockAbortSignal) => Promise<Result>;

/**
 * Result of an operation. After `for` or `against`, another attempt may help. `never` means that a quorum has reported
 * another holder.
 */
interface Voted {
  readonly decision: "for" | "against" | "never";
  readonly stats: Promise<ExecutionStats>;
}

/**
 * The class of node-redlock 5 on the engine of `@x/redlock-core`. Emits `error` for each client that failed, even if a
 * quorum was reached, but not for contention. Without a listener these errors are ignored.
 */
export class Redlock extends EventEmitter {
  readonly clients: Set<Client>;
  readonly settings: Settings;
  /** The engine's only script, which performs all three operations. */
  readonly scripts: {
    readonly acquireScript: ScriptText;
    readonly extendScript: ScriptText;
    readonly releaseScript: ScriptText;
  };
  readonly #engineSettings: EngineSettings;
  /** The engine used last. */
  #engine: SharedEngine | undefined;
  readonly #onError = (error: Error): void => this.#emitError(error);

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
    refuseScripts(scripts);
    this.settings = settingsOf(settings, DEFAULT_SETTINGS);
    this.#engineSettings = engineSettingsOf(settings);
    const text = { value: batchScript.source, hash: batchScript.sha1 };
    this.scripts = { acquireScript: text, extendScript: text, releaseScript: text };
    this.#shared();
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
    const merged = settingsOf(settings, this.settings);
    checkDuration(duration, merged.driftFactor, this.#engineSettings.maxTtl);
    const { token, ...acquired } = await acquire(this.#shared(), {
      resources,
      duration,
      settings: merged,
      onError: this.#onError,
    });
    return this.#lock(resources, { ...acquired, value: token, longestMs: duration });
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
    const merged = settingsOf(settings, this.settings);
    const end = endOf(lock, this.#shared());
    lock.expiration = 0;
    return await this.#retry(merged, end, () => this.#releaseOnce(lock));
  }

  /**
   * Extends a valid lock to `duration` ms from now, and resolves with a new lock that replaces it. An extension never
   * shortens the lock on the clients.
   *
   * Rejects with `ExecutionError` if the lock is no longer valid, or if no quorum extended the lock while it was valid.
   */
  async extend(existing: Lock, duration: number, settings?: SomeSettings): Promise<Lock> {
    LOCK.of("existing", existing);
    const merged = settingsOf(settings, this.settings);
    checkDuration(duration, merged.driftFactor, this.#engineSettings.maxTtl);
    const shared = this.#shared();
    const { clock } = shared.protocol;
    const end = endOf(existing, shared);
    if (remainingMs(end, readClock(clock)) <= 0) throw new ExecutionError("Cannot extend an already-expired lock.", []);
    let asked = readClock(clock);
    const { attempts } = await this.#retry(merged, end, async () => {
      asked = readClock(clock);
      return await this.#extendOnce(existing, { duration, end });
    });
    existing.expiration = 0;
    return this.#lock(existing.resources, {
      value: existing.value,
      fencingToken: existing.fencingToken,
      attempts,
      end: leaseEnd(asked, duration, merged.driftFactor),
      longestMs: longestMsOf(existing, shared),
    });
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
    const given = typeof settingsOrRoutine === "function" ? {} : settingsOrRoutine;
    const settings = settingsOf(given, this.settings);
    const routine = optionalRoutine ?? settingsOrRoutine;
    checkDuration(duration, settings.driftFactor, this.#engineSettings.maxTtl);
    if (typeof routine !== "function") throw new TypeError("INVARIANT: routine is not a function.");
    if (settings.automaticExtensionThreshold > duration - 100) {
      throw new RangeError(
        "A lock `duration` must be at least 100ms greater than the `automaticExtensionThreshold` setting.",
      );
    }
    const lock = await this.acquire(resources, duration, settings);
    const controller = new AbortController();
    const signal: RedlockAbortSignal = controller.signal;
    const extension = this.#autoExtend(lock, { duration, settings }, (error) => {
      signal.error = error;
      controller.abort(error);
    });
    try {
      return await routine(signal);
    } finally {
      extension.stop();
      lock.expiration = 0;
      await this.#releaseOnce(lock);
    }
  }

  #shared(): SharedEngine {
    const settings = { ...this.#engineSettings, driftFactor: this.settings.driftFactor };
    if (this.#engine?.isUsable !== true || !this.#engine.serves(this.clients, settings)) {
      this.#engine = sharedEngine(this.clients, settings);
    }
    return this.#engine;
  }

  /** Creates the handle of a lock. Untyped code may pass a single resource as a string. */
  #lock(
    resources: string | readonly string[],
    facts: {
      readonly value: string;
      readonly fencingToken: number | undefined;
      readonly attempts: readonly Promise<ExecutionStats>[];
      readonly end: LeaseEnd;
      readonly longestMs: number;
    },
  ): Lock {
    const { value, fencingToken, attempts, longestMs } = facts;
    const end = withWholeMs(facts.end);
    const names = typeof resources === "string" ? [resources] : [...resources];
    const lock = new Lock(this, names, value, attempts, end.wallMs, fencingToken);
    leases.set(lock, { end, longestMs });
    return lock;
  }

  #autoExtend(
    lock: Lock,
    options: { readonly duration: number; readonly settings: Settings },
    onLost: (error: Error) => void,
  ): AutoExtension {
    const { clock } = this.#shared().protocol;
    const { duration, settings } = options;
    let end = endOf(lock, this.#shared());
    return new AutoExtension(
      clock,
      {
        remaining: () => remainingMs(end, readClock(clock)),
        keepAlive: true,
        expiredError: () => new ExecutionError("The lock expired before it could be extended.", []),
        extend: async () => {
          const asked = readClock(clock);
          const { decision, stats } = await this.#extendOnce(lock, { duration, end });
          if (decision === "for") {
            end = leaseEnd(asked, duration, settings.driftFactor);
            const shown = withWholeMs(end);
            lock.expiration = shown.wallMs;
            leases.set(lock, { end: shown, longestMs: longestMsOf(lock, this.#shared()) });
            return { kind: "extended" };
          }
          return { kind: decision === "never" ? "lost" : "failed", error: new ExecutionError(NO_QUORUM, [stats]) };
        },
      },
      extendBeforeEnd(settings.automaticExtensionThreshold),
      onLost,
    );
  }

  /**
   * Repeats an operation until it succeeds or cannot succeed any more, or until the retries or the lock's time are used
   * up.
   */
  async #retry(settings: Settings, end: LeaseEnd, operation: () => Promise<Voted>): Promise<ExecutionResult> {
    const shared = this.#shared();
    const retries = new Retries(shared, settings);
    for (;;) {
      const { decision, stats } = await operation();
      retries.note(stats);
      if (decision === "for") return { attempts: retries.attempts };
      if (decision === "never" || retries.isLast) throw retries.error();
      const pause = retries.startPause();
      if (remainingMs(end, readClock(shared.protocol.clock)) <= pause.leftMs) throw retries.error();
      await untilOver(pause);
      pause.dispose();
    }
  }

  async #releaseOnce(lock: Lock): Promise<Voted> {
    const shared = this.#shared();
    const steps = shared.protocol.stepsOf(lock.resources);
    const votes = new VoteCount(shared, steps.resourceCount, this.#onError);
    const isReleased = await steps.release({ token: lock.value, ttlMs: longestMsOf(lock, shared) }, votes.onAnswer);
    await votes.settled();
    const isPointless = votes.refusals > shared.clients.length - shared.quorum;
    return { decision: isReleased ? "for" : isPointless ? "never" : "against", stats: votes.stats };
  }

  async #extendOnce(lock: Lock, { duration, end }: { duration: number; end: LeaseEnd }): Promise<Voted> {
    const shared = this.#shared();
    const steps = shared.protocol.stepsOf(lock.resources);
    const votes = new VoteCount(shared, steps.resourceCount, this.#onError);
    const longestMs = Math.max(longestMsOf(lock, shared), duration);
    leases.set(lock, { end: endOf(lock, shared), longestMs });
    const { value: token, fencingToken = NO_FENCING_TOKEN } = lock;
    const { kind } = await steps.extend({ token, fencingToken, ttlMs: duration, end }, votes.onAnswer);
    await votes.settled();
    return { decision: kind === "extended" ? "for" : kind === "lost" ? "never" : "against", stats: votes.stats };
  }

  /** Emits an error. A listener that throws breaks nothing. */
  #emitError(error: Error): void {
    callQuietly(() => this.emit("error", error));
  }
}

const LOCK = shaped<Lock>(
  "a Lock",
  ({ resources, value, expiration }) =>
    resources !== undefined && typeof value === "string" && typeof expiration === "number",
);

/** Failed extensions are repeated after this share of the remaining time, so that several fit before the end. */
const RETRY_SHARE = 1 / 8;
const MIN_RETRY_MS = 10;

function extendBeforeEnd(thresholdMs: number): Pick<RenewalPolicy, "dueMs" | "retryMs"> {
  return {
    dueMs: (sinceMs, ttlMs) => sinceMs + ttlMs - thresholdMs,
    retryMs: (startedMs, nowMs, ttlMs) => nowMs + Math.max((startedMs + ttlMs - nowMs) * RETRY_SHARE, MIN_RETRY_MS),
  };
}

/** Returns the end of the lease with the wall clock rounded as in `expiration`. */
function withWholeMs(end: LeaseEnd): LeaseEnd {
  return { ...end, wallMs: Math.floor(end.wallMs) };
}

/** Returns the longest duration of a lock. For a lock constructed by the caller this is `maxTtl`. */
function longestMsOf(lock: Lock, { maxTtl }: SharedEngine): number {
  return leases.get(lock)?.longestMs ?? maxTtl;
}

/** Returns the end of a lock. The caller may have changed `expiration`, usually to 0. */
function endOf(lock: Lock, { protocol }: SharedEngine): LeaseEnd {
  const known = leases.get(lock)?.end;
  if (known?.wallMs === lock.expiration) return known;
  const now = readClock(protocol.clock);
  return { ...now, wallMs: lock.expiration, monotonicMs: now.monotonicMs + (lock.expiration - now.wallMs) };
}
