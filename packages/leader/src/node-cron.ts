/**
 * Each tick of node-cron runs on one replica: the one that claims it on a quorum of the lock nodes.
 *
 * Guaranteed: while a claim lasts, no other replica is told to run the same tick. A claim is never given back, because
 * a replica whose clock is behind asks for a tick when the others have already ended it.
 *
 * Not guaranteed: that a tick runs. The replica that claimed it may crash, and without a quorum nobody runs it. Ticks
 * that must run belong into `@x/leader/scheduler`.
 */
import { LockHeldError, type Redlock } from "@x/redlock-core";
import { integer, protocolOf, redlock, Schema, type ShapeOf, text } from "@x/redlock-core/protocol";

export interface CoordinatorOptions {
  /**
   * How long a claim is kept, in ms. Default: the `maxTtl` of the `Redlock` (60000); 3000 or more, at most that. It
   * must be more than the clocks of the replicas differ, and than any of them is late. A task's `distributedLease`
   * counts instead where it is longer, up to `maxTtl`.
   */
  readonly claimFor?: number | undefined;
  /** What the names of the claims begin with. Default "node-cron:". */
  readonly prefix?: string | undefined;
}

/** The coordinator is what `setRunCoordinator` of node-cron 4.5 and later takes. */
export interface RunCoordinator {
  /** Resolves to true in the one replica that has claimed the tick. */
  readonly shouldRun: (key: string, ttlMs: number) => Promise<boolean>;
}

/** The claims of some replicas met, so that nobody has a quorum. They settle it within this time. */
const SETTLE_MS = 2_000;

/** More than `SETTLE_MS`: nobody may be granted a claim that another has had and that has ended meanwhile. */
const SHORTEST_CLAIM_MS = 3_000;

const KEY = text({ min: 1 });
const DURATION = integer({ min: 1 });

/**
 * Returns a coordinator for node-cron's `setRunCoordinator`, or for the option `runCoordinator` of one task. The tasks
 * need `distributed: true` and a `name` of their own.
 *
 * Its `shouldRun` rejects with a `QuorumUnreachableError` when no quorum of nodes answers. node-cron then logs the
 * error and skips the tick.
 * @throws TypeError or RangeError for a wrong option, and for a `Redlock` whose `maxTtl` is below 3000.
 */
export function coordinator(locks: Redlock, options: CoordinatorOptions = {}): RunCoordinator {
  const { maxTtl } = redlock.of("redlock", locks).options;
  integer({ min: SHORTEST_CLAIM_MS }).of("redlock.options.maxTtl", maxTtl);
  const schema = new Schema({
    claimFor: integer({ min: SHORTEST_CLAIM_MS, max: maxTtl }).default(maxTtl),
    prefix: text({ max: 256 }).default("node-cron:"),
  } satisfies ShapeOf<CoordinatorOptions>);
  const { claimFor, prefix } = schema.resolve(options);

  const claims: RunCoordinator = {
    shouldRun: async (key, ttlMs) => {
      const resource = prefix + KEY.of("key", key);
      const ttl = Math.min(Math.max(claimFor, DURATION.of("ttlMs", ttlMs)), maxTtl);
      const claim = (await locks.tryAcquire(resource, { ttl })) ?? (await settle(locks, resource, ttl));
      if (claim === null) return false;
      protocolOf(claim).leave();
      return true;
    },
  };
  return Object.freeze(claims);
}

/** Waits for a quorum to agree on who has the claim. */
async function settle(locks: Redlock, resource: string, ttl: number): ReturnType<Redlock["tryAcquire"]> {
  const { verdict } = await locks.inspect(resource);
  if (verdict === "held") return null;
  try {
    return await locks.acquire(resource, { ttl, timeout: SETTLE_MS });
  } catch (error) {
    if (error instanceof LockHeldError) return null;
    throw error;
  }
}
