import { EventEmitter } from "node:events";
import { systemClock } from "@x/redlock-core";
import { callQuietly } from "@x/redlock-core/kit";
import { AutoExtension, BY_THIRDS, batchScript } from "@x/redlock-core/protocol";
import { Acquisition, Call } from "./calls.ts";
import { endOf, HeldLock, leftMs, withEnd } from "./lease.ts";
import { type CustomScripts, lockWith } from "./settings.ts";
import { type Caller, newCaller, quitClients } from "./shared-engine.ts";
import {
  type Client,
  type EngineSettings,
  ExecutionError,
  type ExecutionResult,
  type ExecutionStats,
  type RedlockAbortSignal,
  ResourceLockedError,
  type Settings,
  type SomeSettings,
} from "./types.ts";

/** A lock that was acquired or extended. */
export class Lock extends HeldLock {
  readonly redlock: Redlock;
  readonly resources: string[];
  declare readonly value: string;
  readonly attempts: readonly Promise<ExecutionStats>[];

  constructor(
    redlock: Redlock,
    resources: string[],
    value: string,
    attempts: readonly Promise<ExecutionStats>[],
    expiration: number,
    fencingToken?: number,
  ) {
    super(value, expiration, fencingToken);
    this.redlock = redlock;
    // A copy. Untyped code may pass a single resource as a string.
    this.resources = Array.isArray(resources) ? [...resources] : [resources];
    this.attempts = attempts;
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
  readonly #caller: Caller;

  /**
   * Creates a `Redlock` with one client per independent Redis node or Cluster.
   * @throws TypeError for custom scripts, because the promises depend on the engine's own script.
   */
  constructor(clients: Iterable<Client>, settings: SomeSettings & EngineSettings = {}, scripts: CustomScripts = {}) {
    super();
    // An `error` event without a listener would end the process.
    this.on("error", () => undefined);
    this.#caller = newCaller(clients, settings, scripts, (error) => {
      if (!(error instanceof ResourceLockedError)) callQuietly(() => this.emit("error", error));
    });
    this.clients = this.#caller.clients;
    this.settings = this.#caller.settings;
    const text = { value: batchScript.source, hash: batchScript.sha1 };
    this.scripts = { acquireScript: text, extendScript: text, releaseScript: text };
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
    const call = new Acquisition(this.#caller, resources, settings);
    const { token, end, fencingToken } = await call.acquire(duration);
    return withEnd(new Lock(this, resources, token, call.attempts, 0, fencingToken), end);
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
    const call = new Call(this.#caller, lock.resources, settings);
    await call.release(lock);
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
    const call = new Call(this.#caller, existing.resources, settings);
    const end = await call.extend(existing, duration);
    existing.expiration = 0;
    const { value, fencingToken } = existing;
    return withEnd(new Lock(this, existing.resources, value, call.attempts, 0, fencingToken), end);
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
    const call = new Call(this.#caller, resources, given);
    call.checkDuration(duration);
    if (typeof routine !== "function") throw new TypeError("INVARIANT: routine is not a function.");
    const { automaticExtensionThreshold: thresholdMs } = call.settings;
    if (thresholdMs > duration - 100) {
      throw new RangeError(
        "A lock `duration` must be at least 100ms greater than the `automaticExtensionThreshold` setting.",
      );
    }
    let lock = await this.acquire(resources, duration, call.settings);
    const controller = new AbortController();
    const signal: RedlockAbortSignal = controller.signal;
    const extension = new AutoExtension(
      systemClock,
      {
        remaining: () => leftMs(endOf(lock)),
        keepAlive: true,
        expiredError: () => new ExecutionError("The lock expired before it could be extended.", []),
        extend: async () => {
          lock = await this.extend(lock, duration, { ...call.settings, retryCount: 0 });
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
}

const LOCK = lockWith<Lock>("resources");
