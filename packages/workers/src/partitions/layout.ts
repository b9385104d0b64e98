/**
 * The layout of a divided queue: its numbers of partitions and of servers. The first process that uses the queue stores
 * its division in a record on the server of the first partition. All other processes compare their division with the
 * record.
 *
 * When a queue is moved to another division, its old partitions are closed one by one. A producer only asks the
 * partition to which it adds a job, at most once a second. No server is therefore asked about another server's
 * partitions.
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
  /** Number of partitions to which the queue is being moved. Undefined if the queue is not being moved. */
  readonly next: number | undefined;
}

/** After this time in ms every producer knows that a partition is closed. */
export const KNOWN_AFTER_MS = 1_000;

const script = (name: string, lua: string): ComposedScript => ({ name: `x:${name}`, numberOfKeys: 1, lua });

const layout = script(
  "layout",
  /* lua */ `
-- The operation (read, register, announce or moved), this division, and the number of partitions before the move.
local op, partitions, servers, from = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
if op == 'register' and redis.call('HSETNX', KEYS[1], 'partitions', partitions) == 1 then
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

export class LayoutRecord {
  readonly #division: Division;
  readonly #home: BullTarget["queue"];

  /** `first` is the first partition, whose server or Cluster stores the record. */
  constructor(division: Division, first: BullTarget["queue"]) {
    this.#division = division;
    this.#home = first;
  }

  /**
   * Compares this division with the stored layout. `fault` is undefined if the queue has this division, is being moved
   * to this division, or has no layout. `isInForce` reports whether the queue has this division. With `register`, this
   * division is first stored unless a layout is stored.
   */
  async compare(
    operation: "read" | "register",
  ): Promise<{ readonly fault: DivisionMismatchError | undefined; readonly isInForce: boolean }> {
    const stored = await this.run(operation);
    const fault = stored.partitions === 0 ? undefined : divisionFaultOf(this.#division, stored);
    return { fault, isInForce: fault === undefined && stored.partitions === this.#division.partitions };
  }

  /**
   * Returns the stored layout, or a layout with 0 partitions if there is none.
   *
   * `register` stores this division unless a layout is stored. `announce` stores that the queue is being moved to this
   * division, and `moved` that the move is finished. The last two only apply if the queue has `from` partitions and is
   * not being moved elsewhere.
   */
  async run(operation: "read" | "register" | "announce" | "moved", from: number | "" = ""): Promise<Layout> {
    const { prefix, name, partitions: ours, servers: own } = this.#division;
    const args = [`${prefix}:{${name}}:layout`, operation, ours, own.length, from];
    const reply = await rejectWithoutCommand(async () => await runScript(await this.#home.client, layout, args));
    const [partitions, servers, next] = reply as (string | null)[];
    return { partitions: Number(partitions), servers: Number(servers), next: next ? Number(next) : undefined };
  }
}

/** Knows whether a partition accepts jobs. */
export class Door {
  readonly #queue: BullTarget["queue"];
  readonly #clock: Clock;
  #askedMs = Number.NEGATIVE_INFINITY;
  #next: Promise<unknown> = Promise.resolve();

  constructor(queue: BullTarget["queue"], clock: Clock) {
    this.#queue = queue;
    this.#clock = clock;
  }

  /** Rejects with `DivisionMismatchError` if the partition is closed. The answer may be up to `KNOWN_AFTER_MS` old. */
  async assertOpen(name: string, partitions: number): Promise<void> {
    const now = this.#clock.monotonicMs();
    if (now - this.#askedMs >= KNOWN_AFTER_MS) {
      this.#askedMs = now;
      this.#next = this.#run("GET").catch((error: unknown) => {
        this.#askedMs = Number.NEGATIVE_INFINITY;
        throw error;
      });
    }
    const next = (await this.#next) as string | null | undefined;
    if (next)
      throw new DivisionMismatchError(
        name,
        `${ownDivisionText(partitions)} is being moved to ${next}: ${adviceToSet(next)}`,
      );
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

/**
 * Compares a division with the stored layout. Returns undefined if the queue has this division or is being moved to it.
 */
function divisionFaultOf({ name, partitions, servers }: Division, layout: Layout): DivisionMismatchError | undefined {
  if (layout.next === partitions) return undefined;
  if (layout.partitions !== partitions) {
    const { partitions: others, next } = layout;
    const advice = `${adviceToSet(others)}, or move the queue here with moveFrom(${others})`;
    const what =
      next === undefined ? `${others}: ${advice}` : `${others} and is being moved to ${next}: ${adviceToSet(next)}`;
    return new DivisionMismatchError(name, `${ownDivisionText(partitions)} has ${what}`);
  }
  if (layout.servers === servers.length) return undefined;
  const what = `is on ${layout.servers} servers, not on ${servers.length}`;
  const advice = "name the same servers in every process (connection)";
  return new DivisionMismatchError(name, `${ownDivisionText(partitions)} ${what}: ${advice}`);
}

function ownDivisionText(partitions: number): string {
  return `this process has ${partitions} ${partitions === 1 ? "partition" : "partitions"}, but the queue`;
}

function adviceToSet(partitions: number | string): string {
  return `set partitions to ${partitions} here`;
}
