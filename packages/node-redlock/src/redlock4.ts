/**
 * This file has the methods of node-redlock 4 over the class of node-redlock 5. These are callbacks beside promises,
 * `lock` and `unlock`, one error class, and counts of attempts instead of votes.
 */
import { EventEmitter } from "node:events";
import { callbackify } from "node:util";
import { type Check, callQuietly, shaped } from "@x/redlock-core/kit";
import { resolveResources } from "@x/redlock-core/protocol";
/** @ts-ignore -- whoever has no use for disposers has no types of bluebird, and gets no error */
import type { Disposer as BluebirdDisposer } from "bluebird";
import { Lock as Lock5, Redlock as Redlock5 } from "./redlock.ts";
import { OBJECT } from "./settings.ts";
import { quitClients } from "./shared-engine.ts";
import {
  type Client,
  type EngineSettings,
  ExecutionError,
  type ExecutionStats,
  ResourceLockedError,
  type SomeSettings,
} from "./types.ts";

/** The options of node-redlock 4. An option that is not a number counts as left out, as in node-redlock. */
export interface Options
  extends EngineSettings,
    Pick<SomeSettings, "driftFactor" | "retryCount" | "retryDelay" | "retryJitter"> {}

export type LockOptions = Pick<Options, "retryCount" | "retryDelay">;

// oxlint-disable typescript/no-explicit-any -- as @types/redlock has it, so that code written for that compiles
/** `error` is an `Error` or null. */
export type Callback<Value = void> = (error: any, value?: Value) => void;

/** What `quit()` of each client resolved with: an array, which @types/redlock calls `void`. */
type Replies = any;
// oxlint-enable typescript/no-explicit-any

/** A disposer of bluebird, for its `Promise.using`. Without `@types/bluebird` it is `any`. */
// oxlint-disable-next-line typescript/no-generated-empty-object-type -- bluebird's class shows none of its members
export type Disposer = BluebirdDisposer<Lock>;

/** What `Redlock.Promise` makes promises with. bluebird's have `disposer`. */
interface PromiseMaker {
  readonly prototype: object;
  resolve<Value>(value: Promise<Value>): Promise<Value>;
}

interface Disposable {
  disposer(dispose: (lock: Lock) => unknown): Disposer;
}

/** A resource could not be locked, extended or unlocked. */
export class LockError extends Error {
  override readonly name = "LockError" as const;
  /** How often it was attempted; 0 if nothing was sent. */
  attempts: number;

  constructor(message = "Failed to lock the resource.", attempts = 0, options?: ErrorOptions) {
    super(message, options);
    this.attempts = attempts;
  }
}

/** A lock that was acquired. An extension changes it and keeps it. */
export class Lock {
  readonly redlock: Redlock;
  resource: string | string[];
  value: string;
  /** The time until which the lock may be trusted, in ms since the epoch; 0 once it is unlocked. */
  expiration: number;
  attempts: number;
  attemptsRemaining: number;
  /** The fencing token, which node-redlock does not have: see `Lock.fencingToken` of the core. */
  readonly fencingToken: number | undefined;

  constructor(
    redlock: Redlock,
    resource: string | string[],
    value: string,
    expiration: number,
    attempts: number,
    attemptsRemaining = 0,
    fencingToken?: number,
  ) {
    this.redlock = redlock;
    this.resource = resource;
    this.value = value;
    this.expiration = expiration;
    this.attempts = attempts;
    this.attemptsRemaining = attemptsRemaining;
    this.fencingToken = fencingToken;
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
 * This is node-redlock 4's class on the engine of `@x/redlock-core`. It emits `clientError` for each client that
 * failed, even if a quorum was reached all the same.
 *
 * Its promises are native ones. Code that uses bluebird's methods of them (`done`, `spread`, `disposer`) sets
 * `Redlock.Promise` to bluebird once.
 */
export class Redlock extends EventEmitter {
  static readonly Lock: typeof Lock = Lock;
  static readonly LockError: typeof LockError = LockError;
  /** Makes the promises that all methods return. Default: the native `Promise`. */
  static Promise: PromiseMaker = Promise;

  readonly servers: readonly Client[];
  readonly driftFactor: number;
  readonly retryCount: number;
  readonly retryDelay: number;
  readonly retryJitter: number;
  readonly #redlock: Redlock5;
  /** What the engine knows of a lock, which its public fields do not show. */
  readonly #held = new WeakMap<Lock, Lock5>();

  /**
   * Uses `clients`, one per independent Redis node or Cluster.
   * @throws TypeError for scripts of your own, because the engine's own script is what keeps its promises.
   */
  constructor(clients: Iterable<Client>, options: Options = {}) {
    super();
    const { driftFactor, retryCount, retryDelay, retryJitter, ...others }: Options = OBJECT.of("options", options);
    const { lockScript, unlockScript, extendScript, ...engineSettings } = others as typeof others & OwnScripts;
    this.#redlock = new Redlock5(
      clients,
      { ...engineSettings, ...numbers({ driftFactor, retryCount, retryDelay, retryJitter }) },
      { acquireScript: lockScript, releaseScript: unlockScript, extendScript },
    );
    const { settings } = this.#redlock;
    this.servers = [...this.#redlock.clients];
    this.driftFactor = settings.driftFactor;
    this.retryCount = settings.retryCount;
    this.retryDelay = settings.retryDelay;
    this.retryJitter = settings.retryJitter;
    this.#redlock.on("error", (error: Error) => this.#tell(error));
  }

  /** Runs `quit()` on all clients, and closes the connections that were opened beside them. */
  quit(callback?: Callback<Replies>): Promise<Replies> {
    return told(quitClients(this.servers), callback);
  }

  /**
   * Locks one resource, or all of several, for `ttl` ms. A lock that it resolves with is valid at that moment. Rejects
   * with a `LockError` when no attempt found a quorum.
   */
  lock(resource: string | string[], ttl: number, callback?: Callback<Lock>): Promise<Lock> {
    return this.lockWithOptions(resource, ttl, {}, callback);
  }

  /** Locks as `lock` does, with options for this call. */
  lockWithOptions(
    resource: string | string[],
    ttl: number,
    options: LockOptions,
    callback?: Callback<Lock>,
  ): Promise<Lock> {
    return told(this.#lock(resource, ttl, options), callback);
  }

  /** The other name of `lock`. */
  acquire(resource: string | string[], ttl: number, callback?: Callback<Lock>): Promise<Lock> {
    return this.lock(resource, ttl, callback);
  }

  /** The other name of `lockWithOptions`. */
  acquireWithOptions(
    resource: string | string[],
    ttl: number,
    options: LockOptions,
    callback?: Callback<Lock>,
  ): Promise<Lock> {
    return this.lockWithOptions(resource, ttl, options, callback);
  }

  /**
   * Locks as `lock` does, for bluebird's `Promise.using`, which unlocks. `onError` is told of an unlock that failed.
   * @throws TypeError unless `Redlock.Promise` is bluebird.
   */
  disposer(resource: string | string[], ttl: number, onError: Callback = () => undefined): Disposer {
    if (!("disposer" in Redlock.Promise.prototype)) {
      throw new TypeError("disposer() needs bluebird's promises: set Redlock.Promise to bluebird");
    }
    const locked = Redlock.Promise.resolve(this.#lock(resource, ttl, {})) as Promise<Lock> & Disposable;
    return locked.disposer((lock) => this.unlock(lock).catch(onError));
  }

  /** Unlocks on all clients. Rejects with a `LockError` if no quorum did: somebody else has the lock, or nobody. */
  unlock(lock: Lock, callback?: Callback): Promise<void> {
    return told(this.#unlock(lock), callback);
  }

  /** The other name of `unlock`. */
  release(lock: Lock, callback?: Callback): Promise<void> {
    return this.unlock(lock, callback);
  }

  /** Extends a valid lock to `ttl` ms from now, and resolves with that lock. Rejects with a `LockError`. */
  extend(lock: Lock, ttl: number, callback?: Callback<Lock>): Promise<Lock> {
    return told(this.#extend(lock, ttl), callback);
  }

  async #lock(given: string | string[], ttl: number, options: LockOptions): Promise<Lock> {
    const resource = listOf(given);
    const { retryCount, retryDelay }: LockOptions = OBJECT.of("options", options);
    // As there: 0 counts as left out.
    const settings = { retryCount: retryCount || this.retryCount, retryDelay: retryDelay || this.retryDelay };
    try {
      const held = await this.#redlock.acquire(resource, ttl, settings);
      const attempts = held.attempts.length;
      const remaining = settings.retryCount - attempts;
      const lock = new Lock(this, resource, held.value, held.expiration, attempts, remaining, held.fencingToken);
      this.#held.set(lock, held);
      void this.#tellOfOtherTypes(held.attempts);
      return lock;
    } catch (error) {
      if (error instanceof ExecutionError) await this.#tellOfOtherTypes(error.attempts);
      throw asLockError(
        error,
        () => `Exceeded ${settings.retryCount} attempts to lock the resource "${String(resource)}".`,
      );
    }
  }

  async #unlock(lock: Lock): Promise<void> {
    const held = this.#asHeld(LOCK.of("lock", lock));
    lock.expiration = 0;
    try {
      await this.#redlock.release(held, { retryCount: 0 });
    } catch (error) {
      throw asLockError(error, () => `Unable to fully release the lock on resource "${String(lock.resource)}".`);
    }
  }

  async #extend(lock: Lock, ttl: number): Promise<Lock> {
    LOCK.of("lock", lock);
    const about = `Cannot extend lock on resource "${String(lock.resource)}"`;
    try {
      const held = await this.#redlock.extend(this.#asHeld(lock), ttl);
      lock.value = held.value;
      lock.expiration = held.expiration;
      this.#held.set(lock, held);
      return lock;
    } catch (error) {
      throw asLockError(error, (attempts) =>
        attempts === 0 ? `${about} because the lock has already expired.` : `${about}: it is not ours any more.`,
      );
    }
  }

  /** Returns the engine's lock, as its public fields say now: users change them, above all `resource`. */
  #asHeld(lock: Lock): Lock5 {
    const resources = listOf(lock.resource);
    const known = this.#held.get(lock);
    if (known !== undefined && known.value === lock.value && String(known.resources) === String(resources)) {
      if (lock.expiration === 0) known.expiration = 0;
      return known;
    }
    return new Lock5(this.#redlock, resources, lock.value, [], lock.expiration, lock.fencingToken);
  }

  /** A key of another type is no contention: node-redlock 4 tells its error for each client and attempt. */
  async #tellOfOtherTypes(attempts: readonly Promise<ExecutionStats>[]): Promise<void> {
    for (const { votesAgainst } of await Promise.all(attempts)) {
      for (const error of votesAgainst.values()) {
        if (error instanceof ResourceLockedError && error.cause instanceof Error) this.#tell(error.cause);
      }
    }
  }

  #tell(error: Error): void {
    callQuietly(() => this.emit("clientError", error));
  }
}

type Lock4 = Lock;
type LockError4 = LockError;
type Options4 = Options;
type Callback4<Value> = Callback<Value>;

/** The types under the names that @types/redlock has: `Redlock.Lock`. */
export declare namespace Redlock {
  export type Lock = Lock4;
  export type LockError = LockError4;
  export type Options = Options4;
  export type Callback<Value> = Callback4<Value>;
  export type CompatibleRedisClient = Client;
}

interface OwnScripts {
  readonly lockScript?: string;
  readonly unlockScript?: string;
  readonly extendScript?: string;
}

const LOCK: Check<Lock> = shaped<Lock>(
  "a Lock",
  ({ resource, value, expiration }) =>
    resource !== undefined && typeof value === "string" && typeof expiration === "number",
);

function listOf(resource: string | string[]): string[] {
  return [...resolveResources(resource, true)];
}

function numbers(options: Readonly<Record<string, unknown>>): Readonly<Record<string, number>> {
  const given = Object.entries(options).filter((entry): entry is [string, number] => typeof entry[1] === "number");
  return Object.fromEntries(given);
}

function asLockError(error: unknown, message: (attempts: number) => string): unknown {
  if (!(error instanceof ExecutionError)) return error;
  const attempts = error.attempts.length;
  return new LockError(message(attempts), attempts, { cause: error });
}

/** Returns a promise of the users' kind, and calls a callback as well: who has one need not look at both. */
function told<Value>(result: Promise<Value>, callback: Callback<Value> | undefined): Promise<Value> {
  const promise = Redlock.Promise.resolve(result);
  if (typeof callback === "function") callbackify(() => promise)(callback);
  return promise;
}
