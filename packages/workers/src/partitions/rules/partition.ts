/**
 * Pure: the partition of a key, and the names of the partitions' queues. Producers in other languages follow the same
 * two rules, which docs/workers/partitions.md lists with test vectors.
 */
import { crc32 } from "node:zlib";
import { Check, integer, textLike } from "@x/redlock-core/kit";
import { KEY, pinOfValue } from "../../rules/entity-key.ts";

/** More than any Redis Cluster needs. Each partition costs a connection for each process. */
const MAX_PARTITIONS = 1_024;

export const PARTITIONS: Check<number> = integer({ min: 1, max: MAX_PARTITIONS, unit: "" });
export const QUEUE_NAME: Check<string> = textLike("a string of 1 to 256 characters without colons and braces", (name) =>
  /^[^:{}]{1,256}$/.test(name),
);
const PARTITION = integer({ min: 0, unit: "" });
const SERVERS = new Check<readonly unknown[]>({
  rule: "a list of at least one server",
  faultOf: (value) => {
    if (!Array.isArray(value)) return "type";
    return value.length > 0 ? undefined : "range";
  },
});
/** The first non-empty part in braces. The expression is anchored, so that it reads each brace only once. */
const TAG = /^(?:[^{]|\{\})*\{([^}]+)\}/;

/**
 * Returns the partition of a key: CRC-32 of the key's UTF-8 bytes, modulo the number of partitions. As in a Redis
 * Cluster, only the first part in braces is used if the key has one.
 * @throws TypeError, RangeError for an invalid key or number of partitions.
 */
export function partitionOf(key: string, partitions: number): number {
  KEY.of("key", key);
  return partitionAmong(key, PARTITIONS.of("partitions", partitions));
}

function partitionAmong(key: string, partitions: number): number {
  return crc32(TAG.exec(key)?.[1] ?? key) % partitions;
}

/**
 * Returns the name of a partition's queue. The braces keep the queue's Redis keys on one node of a Cluster. The name
 * contains the number of partitions, so that no job is added to a partition of another division.
 * @throws TypeError, RangeError for a name with a colon or a brace, and for invalid numbers.
 */
export function queueName(name: string, partition: number, partitions: number): string {
  QUEUE_NAME.of("name", name);
  PARTITION.of("partition", partition);
  PARTITIONS.of("partitions", partitions);
  return `{${name}-${partition}of${partitions}}`;
}

/**
 * Returns the server of a partition: partition i is on server i modulo the number of servers.
 * @throws TypeError, RangeError for an empty list of servers, and for an invalid partition.
 */
export function serverOf<Server>(servers: readonly Server[], partition: number): Server {
  SERVERS.of("servers", servers);
  PARTITION.of("partition", partition);
  return servers[partition % servers.length] as Server;
}

/** The partition of a job's keys, or why the keys have none in common. */
type KeysPartition =
  /** The partition of all keys. Undefined if there is no key. */
  { readonly partition: number | undefined } | { readonly fault: string };

/** Returns the partition of the keys that a path or a function has found for a job. */
export function findPartition(value: unknown, partitions: number): KeysPartition {
  const pin = pinOfValue(value);
  if (pin.kind === "fault") return pin;
  const [first, ...others] = pin.kind === "keys" ? pin.keys : [];
  if (first === undefined) return { partition: undefined };
  const partition = partitionAmong(first, partitions);
  const other = others.find((key) => partitionAmong(key, partitions) !== partition);
  if (other === undefined) return { partition };
  const [a, b] = [first, other].map((key) => JSON.stringify(key));
  const there = partitionAmong(other, partitions);
  return { fault: `${a} belongs to partition ${partition} and ${b} to ${there}: give them a common part in braces` };
}
