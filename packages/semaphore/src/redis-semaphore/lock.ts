/**
 * What all locks of redis-semaphore have in common: identifiers, attempts, refreshes, and how a loss is told.
 *
 * A lock is believed in until its lease ends by this process's clocks, counted from before the request that granted or
 * refreshed it.
 */
import { randomUUID } from "node:crypto";
import { systemClock } from "@x/redlock-core";
import {
  AutoExtension,
  DEFAULT_DRIFT_FACTOR,
  type LeaseEnd,
  leaseEnd,
  readClock,
  remainingMs,
  sleep,
} from "@x/redlock-core/protocol";

/** The lock is lost: a node says that it is not ours any more, or its time is over. */
export class LostLockError extends Error {}

/** The lock was not free within `acquireTimeout`, or `acquireAttemptsLimit`. */
export class TimeoutError extends Error {}

export type LockLostCallback = (this: Lock, err: LostLockError) => void;

export interface TimeoutOptions {
  /** The lease, in ms. Default 10000. */
  lockTimeout?: number;
  /** How long `acquire` tries, in ms. Default 10000. */
  acquireTimeout?: number;
  /** How often `acquire` tries. Default Infinity. */
  acquireAttemptsLimit?: number;
  /** The pause between two tries, in ms. Default 10. */
  retryInterval?: number;
  /** The time between two refreshes, in ms; 0 for none. Default a third of `lockTimeout`. */
  refreshInterval?: number;
}

export interface LockOptions extends TimeoutOptions {
  /** The same as `identifier` with `acquiredExternally`. */
  externallyAcquiredIdentifier?: string;
  /** What a random identifier ends with. */
  identifierSuffix?: string;
  /** Who holds the lock. Default: a random one. */
  identifier?: string;
  /** Whether a lock of this identifier is taken over from another process, in place of being acquired. */
  acquiredExternally?: true;
  /** Is called when the lock is lost. Default: throws, which is an unhandled rejection. */
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

  /** Whether the lock is held, and its lease not over. */
  get isAcquired(): boolean {
    return this.#isAcquired && !this.#isOver;
  }

  /** Stops refreshing: the lock then ends with its lease. */
  stopRefresh(): void {
    this.#refreshing?.stop();
  }

  /** Acquires, and throws `TimeoutError` if that was not possible in time. */
  async acquire(abortSignal?: AbortSignal): Promise<void> {
    if (!(await this.tryAcquire(abortSignal))) throw new TimeoutError(`Acquire ${this._kind} ${this._key} timeout`);
  }

  /** Acquires within `acquireTimeout`, and resolves with whether that was possible. */
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

  /** Releases what is held. If that fails, it may be called again. */
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
  /** Resolves with false if the lock is not ours any more; rejects if that is not known. */
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
    this.#refreshing = new AutoExtension(
      systemClock,
      {
        remaining: () => this.#remaining(),
        keepAlive: false,
        expiredError: lostError,
        extend: async () => {
          const isOurs = await this.#attempt(() => this._refresh()).catch(() => undefined);
          if (isOurs === true) return { kind: "extended" };
          return { kind: isOurs === undefined ? "failed" : "lost", error: lostError() };
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

  /** Rejects only with what `onLockLost` throws, which is its way to end the process. */
  async #lose(error: LostLockError): Promise<void> {
    this.#isAcquired = false;
    this.#isKept = false;
    this.#onLockLost.call(this, error);
  }
}
