/** Pure: computes the keys of a resource on each node, and their hash slot in a Redis Cluster. */

import { quote } from "../kit/schema/show.ts";

/** Keys that belong to a node instead of a lock. scripts/batch.lua.ts and hand-over.lua.ts describe their content. */
interface NodeKeys {
  readonly hash: string;
  readonly lines: string;
  readonly lineEnds: string;
  readonly lastNumber: string;
}

/** The end of the name of each set of lines. */
export const NODE_LINES = "node:lines";

const nodeKeysWithPrefix = (prefix: string): NodeKeys => ({
  hash: `${prefix}:node`,
  lines: `${prefix}:${NODE_LINES}`,
  lineEnds: `${prefix}:node:line-ends`,
  lastNumber: `${prefix}:node:last`,
});

/**
 * These keys never start with the keyPrefix. The resource `a` with the keyPrefix `app:` and the resource `app:a`
 * without a keyPrefix are the same lock, so their fencing tokens must come from the same counter. All clients of a node
 * trust each other.
 */
export const NODE_KEYS: NodeKeys = nodeKeysWithPrefix("{x}");
const keysBySlot = new Map<number, NodeKeys>();
/** The first hash tag of each slot that the search for tags has found so far. */
const tagBySlot = new Map<number, string>();
let triedTags = 0;

/** Returns the node's keys. In a Cluster every hash slot has its own keys, next to the locks of the slot. */
export function nodeKeysOf(slot: number | undefined): NodeKeys {
  if (slot === undefined) return NODE_KEYS;
  let keys = keysBySlot.get(slot);
  if (keys === undefined) {
    keys = nodeKeysWithPrefix(`{${tagOf(slot)}}:x`);
    keysBySlot.set(slot, keys);
  }
  return keys;
}

/** Returns a hash tag of the slot: the smallest number, to the base 36, that has this slot. */
function tagOf(slot: number): string {
  for (;;) {
    const known = tagBySlot.get(slot);
    if (known !== undefined) return known;
    const tag = triedTags.toString(36);
    triedTags += 1;
    const found = slotOf(tag);
    if (!tagBySlot.has(found)) tagBySlot.set(found, tag);
  }
}

/** Prefix of the keys that store the names of clients. */
export const CLIENT_KEYS = "{x}:client:";

/** Returns the key that stores the name of a client, see rounds/client-name.ts. */
export function clientKeyOf(client: string): string {
  return CLIENT_KEYS + client;
}

/** Key that `check()` writes to find out whether a node accepts writes. No lock may have this key. */
export const PROBE_KEY = "{x}:probe:node";

/**
 * Returns the keys of a lock that is never acquired. Users need the same rights to these keys as to the keys of other
 * locks.
 */
export function probeKeysOf(keyPrefix: string): readonly string[] {
  const lockKey = lockKeyOf(keyPrefix, "x:probe");
  return [lockKey, sideKeyOf(lockKey, FENCE)];
}

export const NOTE = "note";
export const FENCE = "fence";

/**
 * Names of all side keys in this package and its siblings. A side key ends with a colon and one of these names, so the
 * key of a lock must not end in this way. A scheduler puts its own prefix before the name.
 */
export const SIDE_KEY_NAMES: readonly string[] = [
  ...[FENCE, NOTE, "claim", "node", NODE_LINES, "node:line-ends", "node:last"],
  ...["semaphore", "semaphore:holders", "semaphore:waiters", "semaphore:places"],
  ...["readwrite", "readwrite:holders", "readwrite:waiters", "readwrite:places"],
  ...["latch", "latch:before"],
  ...["leader", "terms", "request"],
  ...["register", "mailbox", "history", "newest"],
];

/** Endings that the key of a lock must not have. */
export const RESERVED_ENDINGS: readonly string[] = SIDE_KEY_NAMES.map((name) => `:${name}`);

/** Returns the lock's own key: a string key named like the resource, as in every implementation of Redlock. */
export function lockKeyOf(keyPrefix: string, resource: string): string {
  return keyPrefix + resource;
}

/**
 * Throws `RangeError` if the key of a resource would collide with a key of another lock. scripts/embedded.lua.ts has
 * the same rules.
 */
export function checkLockKey(lockKey: string): void {
  if (!lockKey.includes("}")) return;
  const ending = RESERVED_ENDINGS.find((each) => lockKey.endsWith(each));
  if (ending !== undefined) {
    throw new RangeError(`key of a resource must not end like a side key (…}${ending}), got ${quote(lockKey)}`);
  }
  if (lockKey.startsWith(CLIENT_KEYS)) {
    throw new RangeError(`key of a resource must not be the key of a client (${CLIENT_KEYS}…), got ${quote(lockKey)}`);
  }
  if (isOtherInBraces(lockKey)) {
    throw new RangeError(
      `key of a resource must not be another one in braces: it shares the fence of ${quote(lockKey.slice(1, -1))}, got ${quote(lockKey)}`,
    );
  }
}

/** Reports whether the key is another key in braces. Both keys would have the same side keys. */
export function isOtherInBraces(key: string): boolean {
  return taggedKeyOf(key.slice(1, -1)) === taggedKeyOf(key);
}

/** Returns a side key in the hash slot of the lock: `{k}:name`, or `k:name` if the key `k` contains a hash tag. */
export function sideKeyOf(lockKey: string, name: string): string {
  return `${taggedKeyOf(lockKey)}:${name}`;
}

/** Returns the lock keys of the resources, in their order. */
export function keysOf(keyPrefix: string, resources: readonly string[]): readonly string[] {
  if (resources.length === 1) return [keyPrefix + resources[0]];
  return resources.map((resource) => keyPrefix + resource);
}

function taggedKeyOf(lockKey: string): string {
  return hashTagOf(lockKey) === undefined ? `{${lockKey}}` : lockKey;
}

/**
 * Reports whether `sideKeyOf` can keep side keys in the key's slot. False for a key that contains `}` but no hash tag.
 */
export function hasStableSlot(lockKey: string): boolean {
  return hashTagOf(lockKey) !== undefined || !lockKey.includes("}");
}

function hashTagOf(key: string): string | undefined {
  const open = key.indexOf("{");
  if (open === -1) return undefined;
  const close = key.indexOf("}", open + 1);
  return close > open + 1 ? key.slice(open + 1, close) : undefined;
}

/** Number of hash slots of a Redis Cluster. */
export const SLOT_COUNT = 16_384;

const CRC16 = new Uint16Array(256);
for (let byte = 0; byte < 256; byte += 1) {
  let crc = byte << 8;
  for (let bit = 0; bit < 8; bit += 1) crc = (crc & 0x8000) === 0 ? crc << 1 : (crc << 1) ^ 0x1021;
  CRC16[byte] = crc & 0xffff;
}

/**
 * Returns the hash slot of a key: CRC16 (XMODEM) of the hash tag or of the whole key, modulo 16384.
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
