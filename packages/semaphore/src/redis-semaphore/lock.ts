/**
 * The base class of all locks of redis-semaphore: identifiers, attempts, refreshes, and the report of a loss.
 *
 * A lock counts as held until its lease ends by this process's clocks. The lease starts before the request that
 * acquired or refreshed the lock.
 */
import { randomUUID } from "node:crypto";
import { systemClock } from "@x/redlock-core";
import { readClock, sleep } from "@x/redlock-core/kit";
import { AutoExtension, DEFAULT_DRIFT_FACTOR, type LeaseEnd, leaseEnd, remainingMs } from "@x/redlock-core/protocol";

/** The lock is lost: a node has reported the loss, or the lease has ended. */
export class LostLockError extends Error {}

/** The lock was not free within `acquireTimeout`, or in `acquireAttemptsLimit` attempts. */
export class TimeoutError extends Error {}

export type LockLostCallback = (this: Lock, err: LostLockError) => void;

export interface TimeoutOptions {
  /** The lease, in ms. Default 10000. */
  lockTimeout?: number;
  /** How long `acquire` tries, in ms. Default 10000. */
  acquireTimeout?: number;
  /** Largest number of attempts of `acquire`. Default Infinity. */
  acquireAttemptsLimit?: number;
  /** The pause between two tries, in ms. Default 10. */
  retryInterval?: number;
  /** The time between two refreshes, in ms; 0 for none. Default a third of `lockTimeout`. */
  refreshInterval?: number;
}

export interface LockOptions extends TimeoutOptions {
  /** The same as `identifier` with `acquiredExternally`. */
  externallyAcquiredIdentifier?: string;
  /** Ending of the random identifier, after a hyphen. */
  identifierSuffix?: string;
  /** Identifier of the holder. Default: a random identifier. */
  identifier?: string;
  /** Whether the lock of this identifier is taken over from another process instead of being acquired. */
  acquiredExternally?: true;
  /** Called when the lock is lost. Default: throws, which causes an unhandled rejection. */
  onLockLost?: LockLostCallback;
}

export const defaultTimeoutOptions: Required<Omit<TimeoutOptions, "refreshInterval">> = {
  lockTimeout: 10_000,
  acquireTimeout: 10_000,
  acquireAttemptsLimit: Number.POSITIVE_INFINITY,
  retryInterval: 10,
};

const REFRESHES_IN_LEASE = 3;

export abstract class Lock {
  protected abstract readonly _kind: string;
  protected abstract readonly _key: string;
  protected readonly _identifier: string;
  protected readonly _lockTimeout: number;
  readonly #options: Required<Omit<TimeoutOptions, "lockTimeout">>;
  readonly #onLockLost: LockLostCallback;
  #isAcquired = false;
  #isExternal: boolean;
  /** Whether there is something to release. A release that failed leaves it. */
  #isKept: boolean;
  #end: LeaseEnd = readClock(systemClock);
  #refreshing: AutoExtension | undefined;

  protected constructor(options: LockOptions = {}) {
    const { identifier, acquiredExternally, externallyAcquiredIdentifier, identifierSuffix } = options;
    if (identifier !== undefined && (typeof identifier !== "string" || identifier === ""))
      throw new Error("identifier must be not empty random string");
    if (acquiredExternally && identifier === undefined)
      throw new Error("acquiredExternally=true meanless without custom identifier");
    if (externallyAcquiredIdentifier && (identifier !== undefined || acquiredExternally))
      throw new Error("Invalid usage. Use custom identifier and acquiredExternally: true");
    const { lockTimeout = defaultTimeoutOptions.lockTimeout } = options;
    this._lockTimeout = lockTimeout;
    this._identifier =
      identifier || externallyAcquiredIdentifier || [randomUUID(), identifierSuffix].filter(Boolean).join("-");
    this.#isExternal = Boolean(acquiredExternally || externallyAcquiredIdentifier);
    this.#isKept = this.#isExternal;
    this.#onLockLost =
      options.onLockLost ??
      ((error) => {
        throw error;
      });
    this.#options = {
      acquireTimeout: options.acquireTimeout ?? defaultTimeoutOptions.acquireTimeout,
      acquireAttemptsLimit: options.acquireAttemptsLimit ?? defaultTimeoutOptions.acquireAttemptsLimit,
      retryInterval: options.retryInterval ?? defaultTimeoutOptions.retryInterval,
      refreshInterval: options.refreshInterval ?? Math.round(lockTimeout / REFRESHES_IN_LEASE),
    };
  }

  get identifier(): string {
    return this._identifier;
  }

  /** Whether the lock is held and its lease has not ended. */
  get isAcquired(): boolean {
    return this.#isAcquired && !this.#isOver;
  }

  /** Stops the refreshes, so that the lock ends with its lease. */
  stopRefresh(): void {
    this.#refreshing?.stop();
  }

  /** Acquires the lock. Rejects with `TimeoutError` if the lock was not free in time. */
  async acquire(abortSignal?: AbortSignal): Promise<void> {
    if (!(await this.tryAcquire(abortSignal))) throw new TimeoutError(`Acquire ${this._kind} ${this._key} timeout`);
  }

  /** Acquires the lock within `acquireTimeout`. Resolves with false if the lock was not free in time. */
  async tryAcquire(abortSignal?: AbortSignal): Promise<boolean> {
    if (!(await (this.#isExternal ? this.#attempt(() => this._refresh()) : this.#untilAcquired(abortSignal))))
      return false;
    this.#isAcquired = true;
    this.#isKept = true;
    this.#isExternal = false;
    this.stopRefresh();
    if (this.#options.refreshInterval > 0) this.#startRefresh();
    return true;
  }

  /** Releases the lock. After a failure, `release` may be called again. */
  async release(): Promise<void> {
    this.stopRefresh();
    this.#isAcquired = false;
    this.#isExternal = false;
    if (!this.#isKept) return;
    this.#isKept = false;
    try {
      await this._release();
    } catch (error) {
      this.#isKept = true;
      throw error;
    }
  }

  /** Tries once. */
  protected abstract _acquire(): Promise<boolean>;
  /** Resolves with false if the lock is lost. Rejects if the state of the lock is unknown. */
  protected abstract _refresh(): Promise<boolean>;
  protected abstract _release(): Promise<void>;

  get #isOver(): boolean {
    return this.#remaining() <= 0;
  }

  #remaining(): number {
    return remainingMs(this.#end, readClock(systemClock));
  }

  #startRefresh(): void {
    const { refreshInterval } = this.#options;
    const next = (ms: number): number => ms + refreshInterval;
    const lostError = (): Error => new LostLockError(`Lost ${this._kind} for key ${this._key}`);
    let isLost = false;
    this.#refreshing = new AutoExtension(
      systemClock,
      {
        remaining: () => (isLost ? 0 : this.#remaining()),
        keepAlive: false,
        expiredError: lostError,
        extend: async () => {
          const isOurs = await this.#attempt(() => this._refresh()).catch(() => undefined);
          isLost = isOurs === false;
          if (isOurs !== true) throw lostError();
        },
      },
      { dueMs: next, retryMs: next },
      (error) => void this.#lose(error),
    );
  }

  async #untilAcquired(signal: AbortSignal | undefined): Promise<boolean> {
    const { acquireTimeout, acquireAttemptsLimit, retryInterval } = this.#options;
    const endMs = systemClock.monotonicMs() + acquireTimeout;
    for (let attempts = 0; attempts < acquireAttemptsLimit && systemClock.monotonicMs() < endMs; attempts += 1) {
      signal?.throwIfAborted();
      if (await this.#attempt(() => this._acquire())) {
        if (!this.#isOver) return true;
        await this._release();
      }
      await sleep(systemClock, retryInterval, signal);
    }
    return false;
  }

  async #attempt(ask: () => Promise<boolean>): Promise<boolean> {
    const asked = readClock(systemClock);
    const isOurs = await ask();
    if (isOurs) this.#end = leaseEnd(asked, this._lockTimeout, DEFAULT_DRIFT_FACTOR);
    return isOurs;
  }

  /** Rejects only with an error of `onLockLost`, which users throw to end the process. */
  async #lose(error: LostLockError): Promise<void> {
    this.#isAcquired = false;
    this.#isKept = false;
    this.#onLockLost.call(this, error);
  }
}
