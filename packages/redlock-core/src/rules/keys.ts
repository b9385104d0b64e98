/** Pure: the keys of a resource on each node, and where a Redis Cluster puts them. */

import { quote } from "../kit/schema/show.ts";

/** The keys that belong to a node rather than to a lock; scripts/batch.lua.ts says what they hold. */
interface NodeKeys {
  readonly hash: string;
  readonly waiting: string;
  readonly lastNumber: string;
}

const ofNode = (beside: string): NodeKeys => ({
  hash: `${beside}:node`,
  waiting: `${beside}:node:waiting`,
  lastNumber: `${beside}:node:last`,
});

/**
 * The keyPrefix is not put before these keys. `app:` with the resource `a`, and `app:a` without a prefix, are one
 * lock, so its fencing tokens must be counted in one place. The clients of a node trust each other.
 */
export const NODE_KEYS: NodeKeys = ofNode("{x}");
const ofSlots = new Map<number, NodeKeys>();

/** Returns the node's keys; in a Cluster they lie beside the locks of the slot. */
export function nodeKeysOf(slot: number | undefined): NodeKeys {
  if (slot === undefined) return NODE_KEYS;
  let keys = ofSlots.get(slot);
  if (keys === undefined) {
    let n = 0;
    while (slotOf(n.toString(36)) !== slot) n += 1;
    keys = ofNode(`{${n.toString(36)}}:x`);
    ofSlots.set(slot, keys);
  }
  return keys;
}

/** The start of the keys that hold the names of clients. */
export const CLIENT_KEYS = "{x}:client:";

/** Returns the key of the name of a client, see rounds/client-name.ts. */
export function clientKeyOf(client: string): string {
  return CLIENT_KEYS + client;
}

/** `check()` writes this key to see whether a node can be written to. No lock may have a name like it. */
export const PROBE_KEY = "{x}:probe:node";

/** Returns the keys of a lock that is never taken. Users have the same rights to them as to those of other locks. */
export function probeKeysOf(keyPrefix: string): readonly string[] {
  const lockKey = lockKeyOf(keyPrefix, "x:probe");
  return [lockKey, sideKeyOf(lockKey, WAITERS)];
}

export const WAITERS = "waiters";
export const NOTE = "note";
export const FENCE = "fence";

/**
 * The names of all keys beside locks, in this package and its siblings. A side key ends with a colon and one of these
 * names, so no lock may have such a key. The names of a scheduler have its prefix before them.
 */
export const SIDE_KEY_NAMES: readonly string[] = [
  ...[FENCE, WAITERS, NOTE, "claim", "node", "node:waiting", "node:last"],
  ...["semaphore", "semaphore:holders", "semaphore:waiters", "semaphore:places"],
  ...["readwrite", "readwrite:holders", "readwrite:waiters", "readwrite:places"],
  ...["latch", "latch:before"],
  ...["leader", "terms", "request"],
  ...["register", "mailbox", "history", "newest"],
];

/** The ends of the keys that are no lock's. */
export const RESERVED_ENDINGS: readonly string[] = SIDE_KEY_NAMES.map((name) => `:${name}`);

/**
 * Returns the lock's own key: a plain string key named like the resource, as every Redlock implementation writes it.
 */
export function lockKeyOf(keyPrefix: string, resource: string): string {
  return keyPrefix + resource;
}

/**
 * Throws `RangeError` for the key of a resource that would share a key with another lock. scripts/embedded.lua.ts has
 * the same rules.
 */
export function checkLockKey(lockKey: string): void {
  if (!lockKey.includes("}")) return;
  const ending = RESERVED_ENDINGS.find((each) => lockKey.endsWith(each));
  if (ending !== undefined) {
    throw new RangeError(
      `key of a resource must not be that of something beside a lock (…}${ending}), got ${quote(lockKey)}`,
    );
  }
  if (lockKey.startsWith(CLIENT_KEYS)) {
    throw new RangeError(`key of a resource must not be that of a client (${CLIENT_KEYS}…), got ${quote(lockKey)}`);
  }
  if (isOtherInBraces(lockKey)) {
    throw new RangeError(
      `key of a resource must not be another one in braces: it has the fence of ${quote(lockKey.slice(1, -1))}, got ${quote(lockKey)}`,
    );
  }
}

/** Tells whether the key has the same side keys as another one: that without its braces. */
export function isOtherInBraces(key: string): boolean {
  return taggedKeyOf(key.slice(1, -1)) === taggedKeyOf(key);
}

/**
 * Returns a key beside the lock's, in the same hash slot: `{k}:name`, or `k:name` when `k` carries a hash tag of its
 * own.
 */
export function sideKeyOf(lockKey: string, name: string): string {
  return `${taggedKeyOf(lockKey)}:${name}`;
}

/** Returns the lock key of each resource, in order. */
export function keysOf(keyPrefix: string, resources: readonly string[]): readonly string[] {
  if (resources.length === 1) return [keyPrefix + resources[0]];
  return resources.map((resource) => keyPrefix + resource);
}

function taggedKeyOf(lockKey: string): string {
  return hashTagOf(lockKey) === undefined ? `{${lockKey}}` : lockKey;
}

/** Tells whether `sideKeyOf` can keep side keys in the slot of the key. It cannot for a stray brace without a tag. */
export function hasStableSlot(lockKey: string): boolean {
  return hashTagOf(lockKey) !== undefined || !lockKey.includes("}");
}

function hashTagOf(key: string): string | undefined {
  const open = key.indexOf("{");
  if (open === -1) return undefined;
  const close = key.indexOf("}", open + 1);
  return close > open + 1 ? key.slice(open + 1, close) : undefined;
}

/** The number of slots of a Redis Cluster. */
export const SLOT_COUNT = 16_384;

const CRC16 = new Uint16Array(256);
for (let byte = 0; byte < 256; byte += 1) {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit += 1) crc = (crc & 0x8000) === 0 ? crc << 1 : (crc << 1) ^ 0x1021;
  CRC16[byte] = crc & 0xffff;
}

/**
 * Returns the slot of a key: CRC16 (XMODEM) of the hash tag or the whole key, modulo 16384.
 *
 * Source: https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
 */
export function slotOf(key: string): number {
  const text = hashTagOf(key) ?? key;
  let crc = 0;
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    if (code > 127) return slotOfBytes(Buffer.from(text));
    crc = ((crc << 8) & 0xffff) ^ (CRC16[(crc >> 8) ^ code] as number);
  }
  return crc % SLOT_COUNT;
}

function slotOfBytes(bytes: Buffer): number {
  let crc = 0;
  for (const byte of bytes) crc = ((crc << 8) & 0xffff) ^ (CRC16[(crc >> 8) ^ byte] as number);
  return crc % SLOT_COUNT;
}
