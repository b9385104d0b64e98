/**
 * Pure: which partition a key is of, and the names of the partitions' queues. Producers in other languages follow the
 * same two lines; docs/workers/partitions-producers.md has them, with test vectors.
 */
import { crc32 } from "node:zlib";
import { Check, integer, textLike } from "@x/redlock-core/kit";
import { KEY, pinOfValue } from "../../rules/entity-key.ts";

/** More than any Redis Cluster has use for: each partition costs a connection per process. */
const MAX_PARTITIONS = 1_024;

export const PARTITIONS: Check<number> = integer({ min: 1, max: MAX_PARTITIONS, unit: "" });
export const QUEUE_NAME: Check<string> = textLike("a string of 1 to 256 characters without colons and braces", (name) =>
  /^[^:{}]{1,256}$/.test(name),
);
const PARTITION = integer({ min: 0, unit: "" });
const SERVERS = new Check<readonly unknown[]>({
  rule: "a list of one server or more",
  faultOf: (value) => {
    if (!Array.isArray(value)) return "type";
    return value.length > 0 ? undefined : "range";
  },
});
/** The first part in braces that is not empty. The expression is anchored, so it reads each brace once. */
const TAG = /^(?:[^{]|\{\})*\{([^}]+)\}/;

/**
 * Returns the partition of a key: CRC-32 of its UTF-8 bytes, modulo the number of partitions. If the key has a part in
 * braces, as in a Redis Cluster, only the first one counts.
 * @throws TypeError, RangeError if there can be no such key, or not so many partitions.
 */
export function partitionOf(key: string, partitions: number): number {
  KEY.of("key", key);
  return partitionAmong(key, PARTITIONS.of("partitions", partitions));
}

function partitionAmong(key: string, partitions: number): number {
  return crc32(TAG.exec(key)?.[1] ?? key) % partitions;
}

/**
 * Returns the name of a partition's queue. Its braces keep the queue's keys on one node of a Cluster. The number of
 * partitions is in it, so that nothing gets into a partition of another division.
 * @throws TypeError, RangeError for a name with a colon or a brace, and numbers that are none.
 */
export function queueName(name: string, partition: number, partitions: number): string {
  QUEUE_NAME.of("name", name);
  PARTITION.of("partition", partition);
  PARTITIONS.of("partitions", partitions);
  return `{${name}-${partition}of${partitions}}`;
}

/**
 * Returns which of the servers has a partition: partition i is on server i modulo their number.
 * @throws TypeError, RangeError if there is no server, or can be no such partition.
 */
export function serverOf<Server>(servers: readonly Server[], partition: number): Server {
  SERVERS.of("servers", servers);
  PARTITION.of("partition", partition);
  return servers[partition % servers.length] as Server;
}

/** Adds up the counts of all partitions, by their names. Of the age of the oldest, the greatest counts. */
export function sumsOf<Counts extends object>(counts: readonly Counts[]): Counts {
  const sums: Record<string, number> = {};
  for (const each of counts) {
    for (const [name, count] of Object.entries(each)) {
      const [sum, added] = [sums[name] ?? 0, Number(count)];
      sums[name] = name.startsWith("oldest") ? Math.max(sum, added) : sum + added;
    }
  }
  return sums as Counts;
}

/** What a job's keys say about its partition. */
type Whereabouts =
  /** The keys are all of this partition; it is undefined if there is no key. */
  { readonly partition: number | undefined } | { readonly fault: string };

/** Returns the partition of what a path or a function made of a job's data. */
export function whereIs(value: unknown, partitions: number): Whereabouts {
  const pin = pinOfValue(value);
  if (pin.kind === "fault") return pin;
  const [first, ...others] = pin.kind === "keys" ? pin.keys : [];
  if (first === undefined) return { partition: undefined };
  const partition = partitionAmong(first, partitions);
  const other = others.find((key) => partitionAmong(key, partitions) !== partition);
  if (other === undefined) return { partition };
  const [a, b] = [first, other].map((key) => JSON.stringify(key));
  const there = partitionAmong(other, partitions);
  return { fault: `${a} is of partition ${partition} and ${b} of ${there}: give them a common part in braces` };
}
