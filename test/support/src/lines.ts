/** Reads and writes the lines of waiters of a node, which `hand-over.lua.ts` describes. */

/** A connection to a node that is not a Cluster. */
interface Node {
  call(command: string, ...args: readonly string[]): Promise<unknown>;
}

/** The sorted set that contains the lines of all locks of a node. */
export const LINES = "{x}:node:lines";

const startOf = (lockKey: string): string => `${Buffer.byteLength(lockKey)}:${lockKey}:`;

/** Returns the name of a waiter in a line, as the library forms it. */
export function memberOf(place: number, id: string): string {
  return `${String(place).padStart(16, "0")}:${id}`;
}

/** Returns the members of a lock's line, in order. */
export async function lineOf(node: Node, lockKey: string): Promise<readonly string[]> {
  const start = startOf(lockKey);
  const texts = (await node.call("ZRANGEBYLEX", LINES, `[${start}`, `(${start}:`)) as readonly string[];
  return texts.map((text) => text.slice(start.length));
}

/** Returns the number of waiters in a lock's line. */
export async function waitersOf(node: Node, lockKey: string): Promise<number> {
  return (await lineOf(node, lockKey)).length;
}

/** Adds members to a lock's line. */
export async function putInLine(node: Node, lockKey: string, members: readonly string[]): Promise<void> {
  await node.call("ZADD", LINES, ...members.flatMap((member) => ["0", startOf(lockKey) + member]));
}

/** Removes members from a lock's line. */
export async function takeFromLine(node: Node, lockKey: string, members: readonly string[]): Promise<void> {
  await node.call("ZREM", LINES, ...members.map((member) => startOf(lockKey) + member));
}
