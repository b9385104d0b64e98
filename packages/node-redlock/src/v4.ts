/**
 * node-redlock 4 on the engine of `@x/redlock-core`, with the class, methods, callbacks, options, defaults and errors
 * of `redlock` 4.2.0. A migration changes one import:
 *
 * ```ts
 * import Redlock from "@x/node-redlock/v4";
 * ```
 */
import { EventEmitter } from "node:events";
import { callbackify } from "node:util";
import { callQuietly } from "@x/redlock-core/kit";
/** @ts-ignore -- code without disposers compiles without the types of bluebird */
import type { Disposer as BluebirdDisposer } from "bluebird";
import { Acquisition, Call } from "./calls.ts";
import { HeldLock, withEnd } from "./lease.ts";
import { lockWith, numbersIn, OBJECT } from "./settings.ts";
import { type Caller, newCaller, quitClients } from "./shared-engine.ts";
import { type Client, type EngineSettings, ExecutionError, ResourceLockedError, type SomeSettings } from "./types.ts";

export type { Client, EngineSettings };

/** The options of node-redlock 4. An option that is not a number counts as left out, as in node-redlock. */
export interface Options
  extends EngineSettings,
    Pick<SomeSettings, "driftFactor" | "retryCount" | "retryDelay" | "retryJitter"> {}

/** A resource, or several resources that are locked together. */
type Resource = string | string[];

/** Options of one call. As in node-redlock 4, an option with the value 0 counts as left out. */
export type LockOptions = Pick<Options, "retryCount" | "retryDelay">;

// oxlint-disable typescript/no-explicit-any -- as in @types/redlock, so that existing code compiles
/** `error` is an `Error` or null. */
export type Callback<Value = void> = (error: any, value?: Value) => void;

/** Results of `quit()` of the clients: an array, which @types/redlock declares as `void`. */
type Replies = any;
// oxlint-enable typescript/no-explicit-any

/** A disposer of bluebird for its `Promise.using`. Without `@types/bluebird` this type is `any`. */
// oxlint-disable-next-line typescript/no-generated-empty-object-type -- bluebird's class shows none of its members
export type Disposer = BluebirdDisposer<Lock>;

/** A constructor of promises. bluebird's promises have `disposer`. */
interface PromiseMaker {
  readonly prototype: object;
  resolve<Value>(value: Promise<Value>): Promise<Value>;
}

/** A resource could not be locked, extended or unlocked. */
export class LockError extends Error {
  override readonly name = "LockError" as const;
  /** Number of attempts. 0 if nothing was sent. */
  attempts: number;

  constructor(message = "Failed to lock the resource.", attempts = 0, options?: ErrorOptions) {
    super(message, options);
    this.attempts = attempts;
  }
}

/** A lock that was acquired. An extension updates this object. */
export class Lock extends HeldLock {
  readonly redlock: Redlock;
  resource: Resource;
  attempts: number;
  attemptsRemaining: number;

  constructor(
    redlock: Redlock,
    resource: Resource,
    value: string,
    expiration: number,
    attempts: number,
    attemptsRemaining = 0,
    fencingToken?: number,
  ) {
    super(value, expiration, fencingToken);
    this.redlock = redlock;
    this.resource = resource;
    this.attempts = attempts;
    this.attemptsRemaining = attemptsRemaining;
  }

  /** See `Redlock.unlock`. */
  unlock(callback?: Callback): Promise<void> {
    return this.redlock.unlock(this, callback);
  }

  /** See `Redlock.extend`. */
  extend(ttl: number, callback?: Callback<Lock>): Promise<Lock> {
    return this.redlock.extend(this, ttl, callback);
  }
}

/**
 * The class of node-redlock 4 on the engine of `@x/redlock-core`. Emits `clientError` for each client that failed, even
 * if a quorum was reached.
 */
export class Redlock extends EventEmitter {
  static readonly Lock: typeof Lock = Lock;
  static readonly LockError: typeof LockError = LockError;
  /** Creates all promises. Default: `Promise`. Set bluebird if your code calls its `done`, `spread` or `disposer`. */
  static Promise: PromiseMaker = Promise;

  readonly servers: readonly Client[];
  readonly driftFactor: number;
  readonly retryCount: number;
  readonly retryDelay: number;
  readonly retryJitter: number;
  readonly #caller: Caller;

  /**
   * Creates a `Redlock` with one client per independent Redis node or Cluster.
   * @throws TypeError for custom scripts, because the promises depend on the engine's own script.
   */
  constructor(clients: Iterable<Client>, options: Options = {}) {
    super();
    const { driftFactor, retryCount, retryDelay, retryJitter, ...others }: Options = OBJECT.of("options", options);
    const { lockScript, unlockScript, extendScript, ...engineSettings } = others as Record<string, undefined>;
    const settings = { ...engineSettings, ...numbersIn({ driftFactor, retryCount, retryDelay, retryJitter }) };
    const scripts = { acquireScript: lockScript, releaseScript: unlockScript, extendScript };
    this.#caller = newCaller(clients, settings, scripts, (error) => {
      // A key of another type is not contention in node-redlock 4.
      const shown = error instanceof ResourceLockedError ? error.cause : error;
      if (shown !== undefined) callQuietly(() => this.emit("clientError", shown));
    });
    this.servers = [...this.#caller.clients];
    const complete = this.#caller.settings;
    this.driftFactor = complete.driftFactor;
    this.retryCount = complete.retryCount;
    this.retryDelay = complete.retryDelay;
    this.retryJitter = complete.retryJitter;
  }

  /** Calls `quit()` on all clients, and closes the additional connections to their servers. */
  quit(callback?: Callback<Replies>): Promise<Replies> {
    return promised(callback, () => quitClients(this.servers));
  }

  /**
   * Locks one resource, or all of several resources, for `ttl` ms. The lock is valid when the call resolves. Rejects
   * with a `LockError` if no attempt reached a quorum.
   */
  lock(resource: Resource, ttl: number, callback?: Callback<Lock>): Promise<Lock> {
    return this.lockWithOptions(resource, ttl, {}, callback);
  }

  /** Locks like `lock`, with options for this call. */
  lockWithOptions(resource: Resource, ttl: number, options: LockOptions, callback?: Callback<Lock>): Promise<Lock> {
    return promised(callback, async () => {
      // In node-redlock 4, 0 also counts as left out.
      const { retryCount, retryDelay }: LockOptions = OBJECT.of("options", options);
      const settings = { retryCount: retryCount || this.retryCount, retryDelay: retryDelay || this.retryDelay };
      const call = new Acquisition(this.#caller, resource, settings);
      const { token, end, fencingToken } = await call
        .acquire(ttl)
        .catch(rethrow(() => `Exceeded ${settings.retryCount} attempts to lock the resource "${String(resource)}".`));
      const attempts = call.attempts.length;
      const remaining = settings.retryCount - attempts;
      return withEnd(new Lock(this, [resource].flat(), token, 0, attempts, remaining, fencingToken), end);
    });
  }

  /** Alias of `lock`. */
  acquire(resource: Resource, ttl: number, callback?: Callback<Lock>): Promise<Lock> {
    return this.lock(resource, ttl, callback);
  }

  /** Alias of `lockWithOptions`. */
  acquireWithOptions(resource: Resource, ttl: number, options: LockOptions, callback?: Callback<Lock>): Promise<Lock> {
    return this.lockWithOptions(resource, ttl, options, callback);
  }

  /**
   * Locks like `lock`, for bluebird's `Promise.using`, which unlocks. `onError` is called if the unlock fails.
   * @throws TypeError unless `Redlock.Promise` is bluebird.
   */
  disposer(resource: Resource, ttl: number, onError: Callback = () => undefined): Disposer {
    if (!("disposer" in Redlock.Promise.prototype)) {
      throw new TypeError("disposer() needs bluebird's promises: set Redlock.Promise to bluebird");
    }
    const locked = this.lock(resource, ttl) as Promise<Lock> & { disposer(dispose: (lock: Lock) => unknown): Disposer };
    return locked.disposer((lock) => this.unlock(lock).catch(onError));
  }

  /**
   * Unlocks on all clients. Rejects with a `LockError` if no quorum confirms that the lock was held until now: another
   * holder has the lock, the lock has expired, or too few clients answered.
   */
  unlock(lock: Lock, callback?: Callback): Promise<void> {
    return promised(callback, async () => {
      const { resource } = LOCK.of("lock", lock);
      await new Call(this.#caller, resource, { retryCount: 0 })
        .release(lock)
        .catch(rethrow(() => `Unable to fully release the lock on resource "${String(resource)}".`));
    });
  }

  /** Alias of `unlock`. */
  release(lock: Lock, callback?: Callback): Promise<void> {
    return this.unlock(lock, callback);
  }

  /**
   * Extends a valid lock to `ttl` ms from now, and resolves with the same object. Rejects with a `LockError` if the
   * lock is no longer valid, or if no quorum extended the lock while it was valid.
   */
  extend(lock: Lock, ttl: number, callback?: Callback<Lock>): Promise<Lock> {
    return promised(callback, async () => {
      const { resource } = LOCK.of("lock", lock);
      const end = await new Call(this.#caller, resource, undefined).extend(lock, ttl).catch(
        rethrow((attempts) => {
          const reason = attempts === 0 ? " because the lock has already expired." : ": it is not ours any more.";
          return `Cannot extend lock on resource "${String(resource)}"${reason}`;
        }),
      );
      return withEnd(lock, end);
    });
  }
}

export { Redlock as default };

const LOCK = lockWith<Lock>("resource");

/** The types with their names in @types/redlock: `Redlock.Lock`. */
export declare namespace Redlock {
  export type Lock = import("./v4.ts").Lock;
  export type LockError = import("./v4.ts").LockError;
  export type Options = import("./v4.ts").Options;
  export type Callback<Value> = import("./v4.ts").Callback<Value>;
  export type CompatibleRedisClient = Client;
}

/** Returns a function that throws an error of version 5 as an error of version 4. */
function rethrow(message: (attempts: number) => string): (error: unknown) => never {
  return (error) => {
    if (!(error instanceof ExecutionError)) throw error;
    const attempts = error.attempts.length;
    throw new LockError(message(attempts), attempts, { cause: error });
  };
}

/**
 * Returns a promise of the configured kind. With a callback, the callback receives the outcome, and the promise need
 * not be handled.
 */
function promised<Value>(callback: Callback<Value> | undefined, call: () => Promise<Value>): Promise<Value> {
  const promise = Redlock.Promise.resolve(call());
  if (typeof callback === "function") callbackify(() => promise)(callback);
  return promise;
}
