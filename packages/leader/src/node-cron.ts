/**
 * Each tick of node-cron runs on one replica: the replica that claims the tick on a quorum of the lock nodes.
 *
 * Guaranteed: while a claim lasts, no other replica runs the same tick. A claim is never released, because a replica
 * whose clock is behind asks for a tick after the other replicas have ended it.
 *
 * Not guaranteed: that a tick runs. The replica that claimed the tick may crash, and without a quorum no replica runs
 * the tick. Ticks that must run belong in `@x/leader/scheduler`.
 */
import { LockHeldError, type Redlock } from "@x/redlock-core";
import { integer, Schema, type ShapeOf, text } from "@x/redlock-core/kit";
import { protocolOf, redlock } from "@x/redlock-core/protocol";

export interface CoordinatorOptions {
  /**
   * Lifetime of a claim in ms. Default: the `maxTtl` of the `Redlock` (60000). Range 3000 to `maxTtl`. A claim must
   * last longer than the clocks of the replicas differ, and longer than any replica is late. If a task's
   * `distributedLease` is longer, it replaces this option, up to `maxTtl`.
   */
  readonly claimFor?: number | undefined;
  /** Beginning of the claims' names. Default "node-cron:". */
  readonly prefix?: string | undefined;
}

/** The argument of `setRunCoordinator` of node-cron 4.5 and later. */
export interface RunCoordinator {
  /** Resolves with true in the replica that has claimed the tick. */
  readonly shouldRun: (key: string, ttlMs: number) => Promise<boolean>;
}

/** If claims of several replicas collide, so that no claim has a quorum, the replicas decide within this time. */
const SETTLE_MS = 2_000;

/** Longer than `SETTLE_MS`, so that a claim cannot end while another replica still tries to get it. */
const SHORTEST_CLAIM_MS = 3_000;

const KEY = text({ min: 1 });
const DURATION = integer({ min: 1 });

/**
 * Returns a coordinator for node-cron's `setRunCoordinator`, or for the option `runCoordinator` of one task. The tasks
 * need `distributed: true` and a `name` of their own.
 *
 * `shouldRun` rejects with a `QuorumUnreachableError` if no quorum of nodes answers. node-cron then logs the error and
 * skips the tick.
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

/** Waits until a quorum agrees on the owner of the claim. Null if another replica owns the claim. */
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
