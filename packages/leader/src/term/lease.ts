/**
 * The lease of a term: a lock, which its `Redlock` renews on this event loop.
 *
 * A renewal that fails decides nothing, because the next one may succeed. The loss is decided by the deadline, or by
 * `lost` when a quorum said that the lock is not ours.
 */
import {
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
  /** Whether its requests and the `Redlock`'s reach a node in the order in which they were made. */
  readonly isInOrder: boolean;
  /** All clocks, read before the request was sent that granted the lock, or last renewed it. */
  readonly start: Instant;
  /** Returns the milliseconds for which the lock itself is valid; at 0 or below it is over. */
  remaining(): number;
  /** Renews every `retryPeriod` until `leave` or `release`. */
  keep(listener: RenewalListener): void;
  /** Stops renewing and lets the lease run out, whatever is closed meanwhile. */
  leave(): void;
  /** Gives the lock up at once. Resolves true if a quorum says that it was ours until now, and never rejects. */
  release(): Promise<boolean>;
}

export type Refused = (votes: readonly Vote[]) => void;

export interface LeaseSource {
  /**
   * Waits for the lock until `signal` aborts, and calls `refused` with the votes of each attempt that fails. Without
   * `refused` it makes one attempt, and resolves undefined if another has the lock, or its turn.
   *
   * It rejects when too few nodes have answered for a while: call it again.
   */
  acquire(signal: AbortSignal, refused?: Refused): Promise<Lease | undefined>;
  close(): Promise<void>;
}

export interface LeaseOptions {
  readonly resource: string;
  readonly leaseDuration: number;
  readonly retryPeriod: number;
  /** What the nodes say of the holder from the grant on. */
  readonly note: string;
}

/** To ask anew costs three requests, and finds out nothing while nodes answer. */
const HELD_PATIENCE_MS = 120_000;
const SHORTEST_PATIENCE_MS = 10_000;
const SILENCE = new Error("no quorum of nodes has answered for long");

/** A clock that is not known to be right gives nobody a place before others. */
const BEHIND_ALL: number = Number.MAX_SAFE_INTEGER;

/** Makes leases whose renewals run on this event loop. `isPaused` tells whether to leave a renewal out. */
export function localLeases(redlock: Redlock, options: LeaseOptions, isPaused = (): boolean => false): LeaseSource {
  const protocol = protocolOf(redlock);
  const { resource, leaseDuration: ttl, retryPeriod, note } = options;
  const ask = async (place: PlacedOptions): Promise<Lock | undefined> => {
    const own = { ttl, autoExtend: false, maxHold: Number.POSITIVE_INFINITY };
    try {
      return await protocol.acquire(resource, { ...own, ...place }, note);
    } catch (error) {
      if (error instanceof LockHeldError || error === SILENCE) return undefined;
      throw error;
    }
  };
  const askOnce = (signal: AbortSignal): Promise<Lock | undefined> => ask({ signal, place: BEHIND_ALL, timeout: 0 });
  const wait = async (signal: AbortSignal, refused: Refused): Promise<Lock> => {
    const { clock } = protocol;
    const askedMs = clock.wallMs();
    const patienceMs = Math.max(4 * ttl, SHORTEST_PATIENCE_MS);
    let waiting: LinkedSignal | undefined;
    let silentSinceMs: number | undefined;
    const isSilent = (): boolean => clock.monotonicMs() - (silentSinceMs ?? Number.POSITIVE_INFINITY) >= patienceMs;
    const stopListening = redlock.on("wait", ({ resources, votes }) => {
      if (resources[0] !== resource) return;
      refused(votes);
      const answers = votes.filter(({ vote }) => vote !== "failed");
      silentSinceMs = answers.length >= redlock.quorum ? undefined : (silentSinceMs ?? clock.monotonicMs());
      if (isSilent()) waiting?.abort(SILENCE);
    });
    try {
      // By a refusal the nodes tell how far this clock is off, and so which place is the candidate's (`placeAt`).
      let lock = await askOnce(signal).catch(unlessUnreachable);
      while (lock === undefined) {
        // By the last attempt the nodes' silence is an error, with all that is known of it.
        const isLast = isSilent();
        const linked = linkSignals(signal);
        waiting = isLast ? undefined : linked;
        const timeout = isLast ? retryPeriod : HELD_PATIENCE_MS;
        const place = protocol.placeAt(askedMs);
        lock = await ask({ signal: linked.signal, place, timeout }).finally(() => linked.unlink());
      }
      return lock;
    } finally {
      stopListening();
    }
  };
  return {
    async acquire(signal: AbortSignal, refused?: Refused): Promise<Lease | undefined> {
      const lock = await (refused === undefined ? askOnce(signal) : wait(signal, refused));
      return lock && new LocalLease(lock, retryPeriod, isPaused);
    },
    close: () => Promise.resolve(),
  };
}

/** Too few nodes answered one attempt. Those that follow wait for them. */
function unlessUnreachable(error: unknown): undefined {
  if (!(error instanceof QuorumUnreachableError)) throw error;
}

class LocalLease implements Lease {
  readonly isInOrder = true;
  readonly fencingToken: number;
  readonly token: string;
  readonly #lock: Lock;
  readonly #retryPeriodMs: number;
  readonly #isPaused: () => boolean;
  #stopListening: () => void = () => undefined;

  constructor(lock: Lock, retryPeriodMs: number, isPaused: () => boolean) {
    this.fencingToken = lock.fencingToken;
    this.token = lock.token;
    this.#lock = lock;
    this.#retryPeriodMs = retryPeriodMs;
    this.#isPaused = isPaused;
  }

  get start(): Instant {
    return protocolOf(this.#lock).start;
  }

  remaining(): number {
    return this.#lock.remaining();
  }

  /**
   * Work may go on when the lock is lost, to a clock that jumped or a `Redlock` that is closed. So it is released by
   * `release` or not at all.
   *
   * The lock's own validity may end first. That is told as a failure, because the deadline decides; only another's
   * claim is a loss.
   */
  keep(listener: RenewalListener): void {
    const { signal } = this.#lock;
    const onAborted = (): void => {
      const reason: unknown = signal.reason;
      if (reason instanceof LockLostError && reason.reason === "expired") listener.failed(reason);
      else listener.lost();
    };
    protocolOf(this.#lock).keep({
      ...everyPeriod(this.#retryPeriodMs),
      isPaused: this.#isPaused,
      onRenewed: (tookMs) => listener.renewed(tookMs),
      onFailed: (error) => listener.failed(error),
    });
    if (signal.aborted) onAborted();
    else this.#stopListening = onAbort(signal, onAborted);
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
