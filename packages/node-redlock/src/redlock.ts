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
 * This number says that the lock was made by hand and no fencing token is known. An extension of it then repairs no
 * client.
 */
const NO_FENCING_TOKEN = -1;

/** What is known of a lock and not shown. Nothing is known of a lock that was made by hand. */
interface KnownLease {
  /** The end of the lease by all clocks; `expiration` has the wall clock only. */
  readonly end: LeaseEnd;
  /** The longest duration that was asked for under the lock's value, answered or not. Its keys may live for so long. */
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
   * The time until which the lock may be trusted, in ms since the epoch. It is 0 when the lock was released, or
   * replaced by an extension.
   */
  expiration: number;
  /**
   * The fencing token is strictly greater than that of every earlier grant of each of the resources (see
   * `Lock.fencingToken` of the core). It is absent if the lock was made by hand.
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
 * The result of a vote. After `for` or `against` another attempt may help; `never` means that a quorum says that the
 * lock is not ours.
 */
interface Voted {
  readonly decision: "for" | "against" | "never";
  readonly stats: Promise<ExecutionStats>;
}

/**
 * This is node-redlock 5's class on the engine of `@x/redlock-core`. It emits `error` for each client that failed, even
 * if a quorum was reached all the same, but not for contention. Without a listener nothing happens.
 */
export class Redlock extends EventEmitter {
  readonly clients: Set<Client>;
  readonly settings: Settings;
  /** The one script of the engine, which does all three operations. */
  readonly scripts: {
    readonly acquireScript: ScriptText;
    readonly extendScript: ScriptText;
    readonly releaseScript: ScriptText;
  };
  readonly #engineSettings: EngineSettings;
  /** The engine that was used last. */
  #engine: SharedEngine | undefined;
  readonly #onError = (error: Error): void => this.#tell(error);

  /**
   * Uses `clients`, one per independent Redis node or Cluster.
   * @throws TypeError for custom scripts, because the engine's own script is what keeps its promises.
   */
  constructor(clients: Iterable<Client>, settings: SomeSettings & EngineSettings = {}, scripts: CustomScripts = {}) {
    super();
    // Without a listener an `error` event would end the process.
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

  /** Runs `quit()` on all clients, and closes the connections that were opened beside them. */
  async quit(): Promise<void> {
    await quitClients([...this.clients]);
  }

  /**
   * Acquires a lock on all of the resources or none, for `duration` ms. A lock that it resolves with is valid at that
   * moment.
   *
   * It rejects with `ExecutionError` when no attempt of `settings.retryCount + 1` found a quorum.
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
   * Releases the lock on all clients. It rejects with `ExecutionError` in two cases:
   * - The lock was not ours any more on a quorum. The call then rejects at once.
   * - No quorum answered. The call then rejects after the retries, at the latest when the lock has expired.
   *
   * The error may be ignored. Clients that could not be reached are released when they are back, and the lock expires
   * by itself.
   */
  async release(lock: Lock, settings?: SomeSettings): Promise<ExecutionResult> {
    LOCK.of("lock", lock);
    const merged = settingsOf(settings, this.settings);
    const end = endOf(lock, this.#shared());
    lock.expiration = 0;
    return await this.#retry(merged, end, () => this.#releaseOnce(lock));
  }

  /**
   * Extends a valid lock to `duration` ms from now, and resolves with the lock that replaces it. It never shortens
   * the lock on the clients.
   *
   * It rejects with `ExecutionError` if the lock is not valid any more, or if no quorum extended it while it was.
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
   * Acquires the lock, calls `routine` with a signal, and releases the lock whatever happens. The call settles as the
   * routine does: a failed release never replaces its result or its error.
   *
   * The lock is extended while the routine runs. If it is lost, the signal aborts with `signal.error` set, at the
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

  /** Makes the handle of a lock. Code without types may name one resource by a string. */
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
    const end = shownEnd(facts.end);
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
            const shown = shownEnd(end);
            lock.expiration = shown.wallMs;
            leases.set(lock, { end: shown, longestMs: longestMsOf(lock, this.#shared()) });
            return { kind: "extended" };
          }
          return { kind: decision === "never" ? "lost" : "failed", error: new ExecutionError(NO_QUORUM, [stats]) };
        },
      },
      beforeEnd(settings.automaticExtensionThreshold),
      onLost,
    );
  }

  /** Repeats an operation until it succeeds, cannot succeed any more, or its retries or the lock's time are used up. */
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
  #tell(error: Error): void {
    callQuietly(() => this.emit("error", error));
  }
}

const LOCK = shaped<Lock>(
  "a Lock",
  ({ resources, value, expiration }) =>
    resources !== undefined && typeof value === "string" && typeof expiration === "number",
);

/** Tries that failed are repeated after a share of the time that is left, so that there are several before the end. */
const RETRY_SHARE = 1 / 8;
const MIN_RETRY_MS = 10;

function beforeEnd(thresholdMs: number): Pick<RenewalPolicy, "dueMs" | "retryMs"> {
  return {
    dueMs: (sinceMs, ttlMs) => sinceMs + ttlMs - thresholdMs,
    retryMs: (startedMs, nowMs, ttlMs) => nowMs + Math.max((startedMs + ttlMs - nowMs) * RETRY_SHARE, MIN_RETRY_MS),
  };
}

/** Returns the end of the lease as `expiration` has it. */
function shownEnd(end: LeaseEnd): LeaseEnd {
  return { ...end, wallMs: Math.floor(end.wallMs) };
}

/**
 * Returns the longest duration of a lock. Nothing is known of a lock that was made by hand, so `maxTtl` counts for
 * it.
 */
function longestMsOf(lock: Lock, { maxTtl }: SharedEngine): number {
  return leases.get(lock)?.longestMs ?? maxTtl;
}

/** Returns the end of a lock. `expiration` may have been set by hand, above all to 0. */
function endOf(lock: Lock, { protocol }: SharedEngine): LeaseEnd {
  const known = leases.get(lock)?.end;
  if (known?.wallMs === lock.expiration) return known;
  const now = readClock(protocol.clock);
  return { ...now, wallMs: lock.expiration, monotonicMs: now.monotonicMs + (lock.expiration - now.wallMs) };
}
