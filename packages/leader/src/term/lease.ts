/** How a candidate acquires the lock of an election, and what a term has of it. */
import { type Lock, LockHeldError, QuorumUnreachableError, type Redlock, type Vote } from "@x/redlock-core";
import { type Lease, type LinkedSignal, linkSignals, type PlacedOptions, protocolOf } from "@x/redlock-core/protocol";

/** What a term needs of its lock. The lease of a lock has it, and one that a renewal thread keeps. */
export type TermLease = Pick<
  Lease,
  "token" | "fencingToken" | "start" | "validUntil" | "signal" | "lossReason" | "keep" | "leave" | "release"
>;

export type Refused = (votes: readonly Vote[]) => void;

export interface LeaseSource {
  /**
   * Waits for the lock until `signal` aborts, and calls `refused` with the votes of each attempt that fails. Without
   * `refused` it makes one attempt, and resolves undefined if another has the lock, or its turn.
   *
   * It rejects when too few nodes have answered for a while: call it again.
   */
  acquire(signal: AbortSignal, refused?: Refused): Promise<TermLease | undefined>;
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

/** Acquires leases whose renewals run on this event loop. */
export function localLeases(redlock: Redlock, options: LeaseOptions): LeaseSource {
  const protocol = protocolOf(redlock);
  const { resource, leaseDuration: ttl, retryPeriod, note } = options;
  const ask = async (place: PlacedOptions): Promise<Lock | undefined> => {
    const own = { ttl, autoExtend: false, maxHold: Number.POSITIVE_INFINITY };
    try {
      return await protocol.acquire(resource, { ...own, ...place }, note);
    } catch (error) {
      const isHeld = error instanceof LockHeldError && error !== place.signal?.reason;
      if (isHeld || error === SILENCE) return undefined;
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
    async acquire(signal: AbortSignal, refused?: Refused): Promise<TermLease | undefined> {
      const lock = await (refused === undefined ? askOnce(signal) : wait(signal, refused));
      return lock && protocolOf(lock);
    },
    close: () => Promise.resolve(),
  };
}

/** Too few nodes answered one attempt. Those that follow wait for them. */
function unlessUnreachable(error: unknown): undefined {
  if (!(error instanceof QuorumUnreachableError)) throw error;
}
