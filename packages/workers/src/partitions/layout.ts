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
import { MixedFleetError } from "../errors.ts";
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

const look = script(
  "layout",
  /* lua */ `
if redis.call('HSETNX', KEYS[1], 'partitions', ARGV[1]) == 1 then redis.call('HSET', KEYS[1], 'servers', ARGV[2]) end
return redis.call('HMGET', KEYS[1], 'partitions', 'servers', 'next')
`,
);

// What is to be done to a layout: to announce the next one, or to have moved there.
const change = script(
  "change-layout",
  /* lua */ `
local now = redis.call('HMGET', KEYS[1], 'partitions', 'next')
if now[1] == ARGV[1] and (not now[2] or now[2] == ARGV[2]) then
  if ARGV[3] == 'announce' then redis.call('HSET', KEYS[1], 'next', ARGV[2])
  else
    redis.call('HSET', KEYS[1], 'partitions', ARGV[2], 'servers', ARGV[4])
    redis.call('HDEL', KEYS[1], 'next')
  end
end
return redis.call('HMGET', KEYS[1], 'partitions', 'servers', 'next')
`,
);

const read = script("read-layout", "return redis.call('HMGET', KEYS[1], 'partitions', 'servers', 'next')");

const closed = script("closed-partition", "return redis.call('GET', KEYS[1])");
const close = script("close-partition", "return redis.call('SET', KEYS[1], ARGV[1])");
const open = script("open-partition", "return redis.call('DEL', KEYS[1])");

/** The record in which the layout of a queue is written down. */
export class LayoutRecord {
  readonly #home: BullTarget["queue"];
  readonly #key: string;

  /** Takes the first partition, on whose server, or Cluster, the record is. */
  constructor(prefix: string, name: string, first: BullTarget["queue"]) {
    this.#key = `${prefix}:{${name}}:layout`;
    this.#home = first;
  }

  /** Returns the layout in force. It is this one if there was none. */
  async look(partitions: number, servers: number): Promise<Layout> {
    return await this.#run(look, [partitions, servers]);
  }

  /** Returns the layout in force, or that of no partitions. */
  async read(): Promise<Layout> {
    return await this.#run(read, []);
  }

  /** Says that the queue is being moved. Returns the layout in force, which may not be `from`. */
  async announce(from: number, to: number): Promise<Layout> {
    return await this.#run(change, [from, to, "announce"]);
  }

  async moved(from: number, to: number, servers: number): Promise<Layout> {
    return await this.#run(change, [from, to, "moved", servers]);
  }

  async #run(which: ComposedScript, args: readonly unknown[]): Promise<Layout> {
    const [partitions, servers, next] = (await runScript(await this.#home.client, which, [this.#key, ...args])) as (
      | string
      | null
    )[];
    return { partitions: Number(partitions), servers: Number(servers), next: next ? Number(next) : undefined };
  }
}

/** Whether a partition takes jobs. */
export class Door {
  readonly #queue: BullTarget["queue"];
  readonly #clock: Clock;
  #askedMs = Number.NEGATIVE_INFINITY;
  #asking: Promise<string | null> | undefined;

  constructor(queue: BullTarget["queue"], clock: Clock) {
    this.#queue = queue;
    this.#clock = clock;
  }

  /** Rejects with `MixedFleetError` if the partition is closed, as was known at most `KNOWN_AFTER_MS` ago. */
  async pass(name: string, partitions: number): Promise<void> {
    const now = this.#clock.monotonicMs();
    if (this.#asking === undefined || now - this.#askedMs >= KNOWN_AFTER_MS) {
      this.#askedMs = now;
      this.#asking = this.#ask();
    }
    const asking = this.#asking;
    let next: string | null;
    try {
      next = await asking;
    } catch (error) {
      if (this.#asking === asking) this.#asking = undefined;
      throw error;
    }
    if (next !== null) throw otherPartitions(name, `${here(partitions)} is being moved to ${next}: ${setTo(next)}`);
  }

  async close(next: number): Promise<void> {
    await this.#run(close, [next]);
  }

  async open(): Promise<void> {
    await this.#run(open, []);
    this.#asking = undefined;
  }

  async #ask(): Promise<string | null> {
    return ((await this.#run(closed, [])) ?? null) as string | null;
  }

  async #run(which: ComposedScript, args: readonly unknown[]): Promise<unknown> {
    return await runScript(await this.#queue.client, which, [this.#queue.toKey("closed"), ...args]);
  }
}

/** Returns what is wrong with a division beside the layout in force; nothing if the queue has it, or is moved to it. */
export function faultOf({ name, partitions, servers }: Division, layout: Layout): MixedFleetError | undefined {
  if (layout.next === partitions) return undefined;
  if (layout.partitions !== partitions) {
    const { partitions: others, next } = layout;
    const advice = `${setTo(others)}, or move the queue here with moveFrom(${others})`;
    const what =
      next === undefined ? `${others}: ${advice}` : `${others} and is being moved to ${next}: ${setTo(next)}`;
    return otherPartitions(name, `${here(partitions)} has ${what}`);
  }
  if (layout.servers === servers.length) return undefined;
  const what = `is on ${layout.servers} servers, not on ${servers.length}`;
  return otherPartitions(name, `${here(partitions)} ${what}: name the same servers in every process (connection)`);
}

/** The error of a process whose layout is not the one in force. The message says what it is to do. */
export function otherPartitions(name: string, message: string): MixedFleetError {
  return new MixedFleetError(name, { code: "OTHER_PARTITIONS", severity: "error", subjects: [name], message });
}

function here(partitions: number): string {
  return `this process has ${partitions} ${partitions === 1 ? "partition" : "partitions"}, but the queue`;
}

function setTo(partitions: number | string): string {
  return `set partitions to ${partitions} here`;
}
