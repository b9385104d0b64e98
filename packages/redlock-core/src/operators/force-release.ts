/**
 * `forceRelease()` takes a lock from its holder. scripts/force-release.lua.ts describes what happens to the lock's key.
 */
import type { Engine } from "../lock/engine.ts";
import { runEverywhere } from "../rounds/run.ts";
import { CLAMP_US } from "../rules/ballot.ts";
import { FENCE, sideKeyOf } from "../rules/keys.ts";
import { GRANT_TTL_MS } from "../rules/operation.ts";
import { forceReleaseScript } from "../scripts/force-release.lua.ts";

/** Resolves with true if a quorum of nodes has taken the lock from its holder. Never rejects because of a node. */
export async function forceRelease(engine: Engine, resource: string): Promise<boolean> {
  const { options } = engine;
  const target = engine.targets.of([resource]);
  const { key, register } = engine.targets.fencingPlaceOf(target);
  const [lockKey = ""] = target.keys;
  const replies = await runEverywhere(engine, forceReleaseScript, {
    keys: [key, lockKey, sideKeyOf(lockKey, FENCE), ...engine.targets.lineKeysOf(target)],
    args: [
      // Within this time the holder's next extension is refused, or its lease has ended.
      String(2 * options.maxTtl),
      String(GRANT_TTL_MS),
      engine.countsReceivers ? "1" : "0",
      // A node that numbers its grants itself is ahead of its own clock only by its stored number.
      String(engine.isAlone ? 0 : CLAMP_US),
      register,
    ],
    timeoutMs: options.nodeTimeout,
  });
  const takenFrom = replies.filter((reply) => reply.ok && reply.value === 1).length;
  return takenFrom >= engine.quorum;
}
