/**
 * How a queue is divided: into how many partitions, on how many servers. The first process that uses it writes that
 * down, beside the first partition, and every other one compares.
 *
 * A division that is being given up is closed partition by partition. A producer asks the partition that it adds to,
 * once a second at most, so that no server is asked for the sake of another.
 */
import type { Clock } from "@x/redlock-core";
import { type BullTarget, runScript } from "../bullmq/bullmq.ts";
import type { ComposedScript } from "../bullmq/rules/compose.ts";
import { DivisionMismatchError } from "../errors.ts";
import { rejectWithoutCommand } from "../without-command.ts";
import type { Division } from "./options.ts";

export interface Layout {
  readonly partitions: number;
  readonly servers: number;
  /** The number of partitions to which the queue is being moved. */
  readonly next: number | undefined;
}

/** A closed partition is known to every producer after this, in ms. */
export const KNOWN_AFTER_MS = 1_000;

const script = (name: string, lua: string): ComposedScript => ({ name: `x:${name}`, numberOfKeys: 1, lua });

const layout = script(
  "layout",
  /* lua */ `
-- What is done: read, look, announce or moved. Then this division, and the number of partitions before.
local op, partitions, servers, from = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if op == 'look' and redis.call('HSETNX', KEYS[1], 'partitions', partitions) == 1 then
  redis.call('HSET', KEYS[1], 'servers', servers)
end
local now = redis.call('HMGET', KEYS[1], 'partitions', 'next')
if now[1] == from and (not now[2] or now[2] == partitions) then
  if op == 'announce' then redis.call('HSET', KEYS[1], 'next', partitions) end
  if op == 'moved' then
    redis.call('HSET', KEYS[1], 'partitions', partitions, 'servers', servers)
    redis.call('HDEL', KEYS[1], 'next')
  end
end
return redis.call('HMGET', KEYS[1], 'partitions', 'servers', 'next')
`,
);

const door = script("door", "return redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))");

/** The record in which the layout of a queue is written down. */
export class LayoutRecord {
  readonly #division: Division;
  readonly #home: BullTarget["queue"];

  /** Takes the first partition, on whose server, or Cluster, the record is. */
  constructor(division: Division, first: BullTarget["queue"]) {
    this.#division = division;
    this.#home = first;
  }

  /**
   * Returns the layout in force, or that of no partitions.
   *
   * `look` writes this division down if there is none. `announce` says that the queue is being moved here, and `moved`
   * that it was. Both do so only if it has `from` partitions, and is not being moved elsewhere.
   */
  async ask(operation: "read" | "look" | "announce" | "moved", from: number | "" = ""): Promise<Layout> {
    const { prefix, name, partitions: ours, servers: own } = this.#division;
    const args = [`${prefix}:{${name}}:layout`, operation, ours, own.length, from];
    const reply = await rejectWithoutCommand(async () => await runScript(await this.#home.client, layout, args));
    const [partitions, servers, next] = reply as (string | null)[];
    return { partitions: Number(partitions), servers: Number(servers), next: next ? Number(next) : undefined };
  }
}

/** Whether a partition takes jobs. */
export class Door {
  readonly #queue: BullTarget["queue"];
  readonly #clock: Clock;
  #askedMs = Number.NEGATIVE_INFINITY;
  #next: Promise<unknown> = Promise.resolve();

  constructor(queue: BullTarget["queue"], clock: Clock) {
    this.#queue = queue;
    this.#clock = clock;
  }

  /** Rejects with `DivisionMismatchError` if the partition is closed, as was known at most `KNOWN_AFTER_MS` ago. */
  async pass(name: string, partitions: number): Promise<void> {
    const now = this.#clock.monotonicMs();
    if (now - this.#askedMs >= KNOWN_AFTER_MS) {
      this.#askedMs = now;
      this.#next = this.#run("GET").catch((error: unknown) => {
        this.#askedMs = Number.NEGATIVE_INFINITY;
        throw error;
      });
    }
    const next = (await this.#next) as string | null | undefined;
    if (next) throw new DivisionMismatchError(name, `${here(partitions)} is being moved to ${next}: ${setTo(next)}`);
  }

  async close(next: number): Promise<void> {
    await this.#run("SET", next);
  }

  async open(): Promise<void> {
    await this.#run("DEL");
    this.#askedMs = Number.NEGATIVE_INFINITY;
  }

  async #run(command: "GET" | "SET" | "DEL", ...args: readonly number[]): Promise<unknown> {
    const all = [this.#queue.toKey("closed"), command, ...args];
    return await rejectWithoutCommand(async () => await runScript(await this.#queue.client, door, all));
  }
}

/** Returns what is wrong with a division beside the layout in force; nothing if the queue has it, or is moved to it. */
export function faultOf({ name, partitions, servers }: Division, layout: Layout): DivisionMismatchError | undefined {
  if (layout.next === partitions) return undefined;
  if (layout.partitions !== partitions) {
    const { partitions: others, next } = layout;
    const advice = `${setTo(others)}, or move the queue here with moveFrom(${others})`;
    const what =
      next === undefined ? `${others}: ${advice}` : `${others} and is being moved to ${next}: ${setTo(next)}`;
    return new DivisionMismatchError(name, `${here(partitions)} has ${what}`);
  }
  if (layout.servers === servers.length) return undefined;
  const what = `is on ${layout.servers} servers, not on ${servers.length}`;
  const advice = "name the same servers in every process (connection)";
  return new DivisionMismatchError(name, `${here(partitions)} ${what}: ${advice}`);
}

function here(partitions: number): string {
  return `this process has ${partitions} ${partitions === 1 ? "partition" : "partitions"}, but the queue`;
}

function setTo(partitions: number | string): string {
  return `set partitions to ${partitions} here`;
}
