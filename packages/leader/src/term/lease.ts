/**
 * The lease of a term: a lock, which its `Redlock` renews on this event loop.
 *
 * A renewal that fails decides nothing, because the next one may succeed. The loss is decided by the deadline, or by
 * `lost` when a quorum said that the lock is not ours.
 */
import {
  type Clock,
  type Lock,
  LockHeldError,
  LockLostError,
  QuorumUnreachableError,
  type Redlock,
  type Vote,
} from "@x/redlock-core";
import {
  everyPeriod,
  type Instant,
  type LinkedSignal,
  linkSignals,
  onAbort,
  type PlacedOptions,
  protocolOf,
} from "@x/redlock-core/protocol";
import type { ResolvedOptions } from "../options.ts";

export interface RenewalListener {
  renewed(tookMs: number): void;
  failed(error: unknown): void;
  /** The lock is known not to be ours any more. */
  lost(): void;
}

export interface Lease {
  readonly fencingToken: number;
  /** The value of the lock on the nodes. */
  readonly token: string;
  /** Its requests and those of the election's `Redlock` reach a node in the order in which they were made. */
  readonly isInOrder: boolean;
  /** All clocks, read before the request was sent that granted the lock, or last renewed it. */
  readonly start: Instant;
  /** Milliseconds for which the lock itself is valid; 0 or below: over. */
  remaining(): number;
  /** Renews every `retryPeriod` until `leave` or `release`. */
  keep(listener: RenewalListener): void;
  /** Stops renewing and lets the lease run out, whatever is closed meanwhile. */
  leave(): void;
  /** Gives the lock up at once; true if a quorum says that it was ours until now. Never rejects. */
  release(): Promise<boolean>;
}

export interface LeaseSource {
  /**
   * Waits for the lock until `signal` aborts; `refused` is called with the votes of each attempt that fails. Rejects
   * when too few nodes have answered for a while: call it again.
   */
  acquire(signal: AbortSignal, refused: (votes: readonly Vote[]) => void): Promise<Lease>;
  /** One attempt; undefined if another has it, or its turn. */
  tryAcquire(signal: AbortSignal): Promise<Lease | undefined>;
  close(): Promise<void>;
}

/** Leases whose renewals run on this event loop. `note`: what the nodes say of the holder from the grant on. */
export function localLeases(redlock: Redlock, options: ResolvedOptions, clock: Clock, note: string): LeaseSource {
  const own = { ttl: options.leaseDuration, autoExtend: false, maxHold: Number.POSITIVE_INFINITY };
  return {
    async acquire(signal: AbortSignal, refused: (votes: readonly Vote[]) => void): Promise<Lease> {
      const askedMs = clock.wallMs();
      let waiting: LinkedSignal | undefined;
      let silentSinceMs: number | undefined;
      const isSilent = (): boolean =>
        silentSinceMs !== undefined && clock.monotonicMs() - silentSinceMs >= patienceMs(options);
      const stopListening = redlock.on("wait", ({ resources, votes }) => {
        if (resources[0] !== options.resource) return;
        refused(votes);
        const answers = votes.filter(({ vote }) => vote !== "failed");
        silentSinceMs = answers.length >= redlock.quorum ? undefined : (silentSinceMs ?? clock.monotonicMs());
        if (isSilent()) waiting?.abort(SILENCE);
      });
      try {
        let lock = await firstAttempt(redlock, options.resource, { ...own, signal }, note);
        while (lock === null) {
          signal.throwIfAborted();
          // By the last attempt the nodes' silence is an error, with all that is known of it.
          const isLast = isSilent();
          const timeout = isLast ? options.retryPeriod : HELD_PATIENCE_MS;
          const linked = linkSignals(signal);
          waiting = isLast ? undefined : linked;
          const order = protocolOf(redlock).orderAt(askedMs);
          const waitOptions = { ...own, order, timeout, signal: linked.signal };
          const acquiring = protocolOf(redlock).acquire(options.resource, waitOptions, note);
          lock = await unlessHeld(acquiring).finally(() => linked.unlink());
        }
        return new LocalLease(lock, options.retryPeriod);
      } finally {
        stopListening();
      }
    },
    async tryAcquire(signal: AbortSignal): Promise<Lease | undefined> {
      const lock = await oneAttempt(redlock, options.resource, { ...own, signal }, note);
      return lock === null ? undefined : new LocalLease(lock, options.retryPeriod);
    },
    close: () => Promise.resolve(),
  };
}

async function unlessHeld(acquiring: Promise<Lock>): Promise<Lock | null> {
  try {
    return await acquiring;
  } catch (error) {
    if (error instanceof LockHeldError || error === SILENCE) return null;
    throw error;
  }
}

/** To ask anew costs three requests, and finds out nothing while nodes answer. */
const HELD_PATIENCE_MS = 120_000;
const SILENCE = new Error("no quorum of nodes has answered for long");

/** A clock that is not known to be right gives nobody a place before others. */
const BEHIND_ALL: number = Number.MAX_SAFE_INTEGER;

/**
 * Takes the lock if it is free and nobody stands in line for it. The candidate does so before it stands in line itself:
 * by a refusal the nodes tell how far this process's clock is off, and so which place is the candidate's (`orderAt`).
 * Whoever asks anew keeps it.
 */
export async function firstAttempt(
  redlock: Redlock,
  resource: string,
  options: PlacedOptions,
  note: string,
): Promise<Lock | null> {
  try {
    return await oneAttempt(redlock, resource, options, note);
  } catch (error) {
    if (error instanceof QuorumUnreachableError) return null;
    throw error;
  }
}

/** Without waiting; null if another has the lock, or its turn. */
export function oneAttempt(
  redlock: Redlock,
  resource: string,
  options: PlacedOptions,
  note: string,
): Promise<Lock | null> {
  return unlessHeld(protocolOf(redlock).acquire(resource, { ...options, order: BEHIND_ALL, timeout: 0 }, note));
}

/** How long a candidate waits without an answer of a quorum: long beside the lease, and bounded, so that it says so. */
export function patienceMs(options: { readonly leaseDuration: number }): number {
  return Math.max(4 * options.leaseDuration, 10_000);
}

class LocalLease implements Lease {
  readonly isInOrder = true;
  readonly fencingToken: number;
  readonly token: string;
  readonly #lock: Lock;
  readonly #retryPeriodMs: number;
  #stopListening: () => void = () => undefined;

  constructor(lock: Lock, retryPeriodMs: number) {
    this.fencingToken = lock.fencingToken;
    this.token = lock.token;
    this.#lock = lock;
    this.#retryPeriodMs = retryPeriodMs;
  }

  get start(): Instant {
    return protocolOf(this.#lock).start;
  }

  remaining(): number {
    return this.#lock.remaining();
  }

  keep(listener: RenewalListener): void {
    this.#stopListening = keepRenewed(this.#lock, this.#retryPeriodMs, listener);
  }

  leave(): void {
    this.#stopListening();
    protocolOf(this.#lock).leave();
  }

  async release(): Promise<boolean> {
    this.leave();
    return this.#lock.release();
  }
}

/**
 * Renews the lock every `periodMs`, and returns a function that ends the telling. Work may go on when the lock is
 * lost, to a clock that jumped or a `Redlock` that is closed. So it is released by `release` or not at all.
 *
 * The lock's own validity may end first. That is told as a failure, because the deadline decides; only another's claim
 * is a loss.
 */
export function keepRenewed(
  lock: Lock,
  periodMs: number,
  listener: RenewalListener,
  isPaused: () => boolean = () => false,
): () => void {
  const onAborted = (): void => {
    const reason: unknown = lock.signal.reason;
    if (reason instanceof LockLostError && reason.reason === "expired") listener.failed(reason);
    else listener.lost();
  };
  protocolOf(lock).keep({
    ...everyPeriod(periodMs),
    isPaused,
    onRenewed: (tookMs) => listener.renewed(tookMs),
    onFailed: (error) => listener.failed(error),
  });
  if (!lock.signal.aborted) return onAbort(lock.signal, onAborted);
  onAborted();
  return () => undefined;
}
