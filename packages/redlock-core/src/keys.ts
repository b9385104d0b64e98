/** Pure: the keys of a resource on each node, and where a Redis Cluster puts them. */

import { quote } from "./schema/show.ts";

/** Keeps the incarnation of a node: `run_id` and `since`, see scripts/quarantine.lua.ts. */
export const NODE_KEY = "{x}:node";

/** Written by `check()`, to see whether a node can be; no lock may have a name like it. */
export const PROBE_KEY = "{x}:probe:node";

/** Names of the side keys that this package uses; siblings use other names. */
export const FENCE = "fence";
export const WAITERS = "waiters";

/** The lock's own key: a plain string key named like the resource, as every Redlock implementation writes it. */
export function lockKeyOf(keyPrefix: string, resource: string): string {
  return keyPrefix + resource;
}

/** Ends of the names of side keys. */
const SIDE_KEY = /\}.*:(fence|fence:forced|waiters|node)$/s;

/** Throws `RangeError` for the key of a resource that would share a key with another lock. scripts/embedded.lua.ts has the same rules. */
export function checkLockKey(lockKey: string): void {
  if (!lockKey.includes("}")) return;
  if (SIDE_KEY.test(lockKey)) {
    throw new RangeError(
      `key of a resource must not be that of a fence or a queue (…}:fence, …}:waiters), got ${quote(lockKey)}`,
    );
  }
  const inner = lockKey.slice(1, -1);
  if (taggedKeyOf(inner) === taggedKeyOf(lockKey)) {
    throw new RangeError(
      `key of a resource must not be another one in braces: it has the fence of ${quote(inner)}, got ${quote(lockKey)}`,
    );
  }
}

/** A key beside the lock's, in the same hash slot: `{k}:name`, or `k:name` when `k` carries a hash tag of its own. */
export function sideKeyOf(lockKey: string, name: string): string {
  return `${taggedKeyOf(lockKey)}:${name}`;
}

/** Lock, fence and waiters of each resource, in the order that the scripts expect. */
export function keysOf(keyPrefix: string, resources: readonly string[]): readonly string[] {
  const keys: string[] = [];
  for (const resource of resources) {
    const key = lockKeyOf(keyPrefix, resource);
    const tagged = taggedKeyOf(key);
    keys.push(key, `${tagged}:${FENCE}`, `${tagged}:${WAITERS}`);
  }
  return keys;
}

function taggedKeyOf(lockKey: string): string {
  return hashTagOf(lockKey) === undefined ? `{${lockKey}}` : lockKey;
}

/** True where `sideKeyOf` can keep side keys in the slot of the key: not for a stray brace without a tag. */
export function hasStableSlot(lockKey: string): boolean {
  return hashTagOf(lockKey) !== undefined || !lockKey.includes("}");
}

function hashTagOf(key: string): string | undefined {
  const open = key.indexOf("{");
  if (open === -1) return undefined;
  const close = key.indexOf("}", open + 1);
  return close > open + 1 ? key.slice(open + 1, close) : undefined;
}

/** CRC16 (XMODEM) of the hash tag or the whole key, modulo 16384. https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/ */
export function slotOf(key: string): number {
  let crc = 0;
  for (const byte of Buffer.from(hashTagOf(key) ?? key)) {
    crc ^= byte << 8;
    for (let bit = 0; bit < 8; bit += 1) crc = (crc & 0x8000) === 0 ? crc << 1 : (crc << 1) ^ 0x1021;
    crc &= 0xffff;
  }
  return crc % 16_384;
}
