/** How a candidate acquires the lock of an election, and the lease that a term uses. */
import { type Lock, LockHeldError, QuorumUnreachableError, type Redlock, type Vote } from "@x/redlock-core";
import { type LinkedSignal, linkSignals } from "@x/redlock-core/kit";
import { type Lease, type PlacedOptions, protocolOf } from "@x/redlock-core/protocol";

/**
 * The part of a lease that a term uses. The lease of a lock and the lease of a renewal thread both provide this part.
 */
export type TermLease = Pick<
  Lease,
  "token" | "fencingToken" | "start" | "validUntil" | "signal" | "lossReason" | "keep" | "leave" | "release"
>;

export type OnRefused = (votes: readonly Vote[]) => void;

export interface LeaseSource {
  /**
   * Waits for the lock until `signal` aborts, and calls `refused` with the votes of each failed attempt. Without
   * `refused`, makes one attempt. Resolves undefined if another candidate holds the lock or waits in front.
   *
   * Rejects when too few nodes have answered for a while. Call the method again.
   */
  acquire(signal: AbortSignal, refused?: OnRefused): Promise<TermLease | undefined>;
  close(): Promise<void>;
}

export interface LeaseOptions {
  readonly resource: string;
  readonly leaseDuration: number;
  readonly retryPeriod: number;
  /** Note about the holder that the nodes store together with the grant. */
  readonly note: string;
}

/** A new acquisition costs three requests, and learns nothing while nodes answer. */
const HELD_PATIENCE_MS = 120_000;
const SHORTEST_PATIENCE_MS = 10_000;
const SILENCE = new Error("no quorum of nodes has answered for long");

/** Place behind all other candidates, for an attempt that cannot know how wrong its clock is. */
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
  const wait = async (signal: AbortSignal, refused: OnRefused): Promise<Lock> => {
    const { clock } = protocol;
    const askedMs = clock.wallMs();
    const patienceMs = Math.max(4 * ttl, SHORTEST_PATIENCE_MS);
    let waiting: LinkedSignal | undefined;
    let silentSinceMs: number | undefined;
    const isSilent = (): boolean => clock.monotonicMs() - (silentSinceMs ?? Number.POSITIVE_INFINITY) >= patienceMs;
    const stopListening = redlock.on("refused", ({ resources, votes }) => {
      if (resources[0] !== resource) return;
      refused(votes);
      const answers = votes.filter(({ vote }) => vote !== "failed");
      silentSinceMs = answers.length >= redlock.quorum ? undefined : (silentSinceMs ?? clock.monotonicMs());
      if (isSilent()) waiting?.abort(SILENCE);
    });
    try {
      // A refusal contains the nodes' time, from which `placeAt` computes the candidate's place in line.
      let lock = await askOnce(signal).catch(unlessUnreachable);
      while (lock === undefined) {
        // If the nodes stay silent, the last attempt rejects with an error that lists each node's failure.
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
    async acquire(signal: AbortSignal, refused?: OnRefused): Promise<TermLease | undefined> {
      const lock = await (refused === undefined ? askOnce(signal) : wait(signal, refused));
      return lock && protocolOf(lock);
    },
    close: () => Promise.resolve(),
  };
}

/** Ignores that too few nodes answered the first attempt, because the next attempts wait for the nodes. */
function unlessUnreachable(error: unknown): undefined {
  if (!(error instanceof QuorumUnreachableError)) throw error;
}
