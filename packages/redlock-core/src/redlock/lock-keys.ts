/** The keys and channels of the locks of one `Redlock`, for data that a sibling package keeps next to a lock. */

import { integer, text, textLike } from "../kit/schema/check.ts";
import { checkLockKey, lockKeyOf, nodeKeysOf, RESERVED_ENDINGS, SLOT_COUNT, sideKeyOf } from "../rules/keys.ts";
import { resolveResource, type Targets } from "../rules/resources.ts";

const CHANNEL = text({ min: 1 });
const SIDE_KEY_NAME = textLike("the name of a side key", (name) =>
  RESERVED_ENDINGS.some((ending) => `:${name}`.endsWith(ending)),
);
const SLOT = integer({ min: 0, max: SLOT_COUNT - 1, unit: "" });

export class LockKeys {
  readonly #targets: Targets;

  constructor(targets: Targets) {
    this.#targets = targets;
  }

  /** Throws the `TypeError` or `RangeError` with which a lock on `resource` would be refused. */
  checkResource(resource: string): void {
    this.#targets.of([resolveResource(resource)]);
  }

  /**
   * Returns the lock's own key on each node.
   * @throws RangeError if the key may not belong to a lock.
   */
  lockKey(resource: string): string {
    const key = lockKeyOf(this.#targets.keyPrefix, resolveResource(resource));
    checkLockKey(key);
    return key;
  }

  /**
   * Returns a side key of the lock, in the same hash slot, for data that belongs to the lock. The key ends with one of
   * the `SIDE_KEY_NAMES`, which the key of a lock never does.
   */
  sideKey(resource: string, name: string): string {
    return sideKeyOf(this.lockKey(resource), SIDE_KEY_NAME.of("name", name));
  }

  /** Returns the node's key that contains the line of the lock, see scripts/hand-over.lua.ts. */
  linesKey(resource: string): string {
    return this.#targets.lineKeysOf(this.#targets.of([resolveResource(resource)]))[0];
  }

  /** Returns the name of a channel for messages about the lock. A channel and a key never collide. */
  channel(resource: string, name: string): string {
    return sideKeyOf(this.lockKey(resource), CHANNEL.of("name", name));
  }

  /** Returns a key in a slot of a Cluster, for a script that must run on the master of this slot. */
  keyInSlot(slot: number): string {
    return nodeKeysOf(SLOT.of("slot", slot)).hash;
  }
}
