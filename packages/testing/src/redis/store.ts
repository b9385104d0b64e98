/**
 * The data of one simulated Redis, and the commands that the lock and leader scripts call. conformance.test.ts compares
 * replies and errors with a real Redis. An unknown command throws, so that no script silently runs with different
 * semantics.
 */
import { hashCommands, keyCommands, type RedisCommand, stringCommands } from "./commands.ts";
import { type KeyFacts, Keyspace } from "./keyspace.ts";
import type { Reply } from "./reply.ts";
import { sortedSetCommands } from "./sorted-sets.ts";

/** The parts of the server that a store uses. */
export interface Surroundings {
  /** The server's clock in whole microseconds. */
  nowUs(): number;
  info(section: string): string;
  /** Delivers a message. Returns the number of receivers. */
  publish(channel: string, message: string): number;
}

export class Store {
  readonly #data: Keyspace;
  readonly #commands: ReadonlyMap<string, RedisCommand>;

  constructor(around: Surroundings) {
    const data = new Keyspace(() => around.nowUs());
    this.#data = data;
    this.#commands = new Map(
      Object.entries({
        ...keyCommands(data),
        ...stringCommands(data),
        ...hashCommands(data),
        ...sortedSetCommands(data),
        PUBLISH: ([channel = "", message = ""]) => around.publish(channel, message),
        INFO: ([section = ""]) => around.info(section),
        TIME: () => {
          const nowUs = around.nowUs();
          return [String(Math.floor(nowUs / 1_000_000)), String(nowUs % 1_000_000)];
        },
      } satisfies Record<string, RedisCommand>),
    );
  }

  call(name: string, args: readonly string[]): Reply {
    const command = this.#commands.get(name.toUpperCase());
    if (command === undefined) throw new TypeError(`the simulated Redis has no ${name}`);
    return command(args);
  }

  flush(): void {
    this.#data.flush();
  }

  /** Returns a copy of the data, like a snapshot on disk or the data of a replica. */
  snapshot(): ReturnType<Keyspace["snapshot"]> {
    return this.#data.snapshot();
  }

  restore(snapshot: ReturnType<Keyspace["snapshot"]>): void {
    this.#data.restore(snapshot);
  }

  /** Returns all keys that have not expired, sorted. */
  dump(): readonly KeyFacts[] {
    return this.#data.dump();
  }

  /** Returns the text of a string key. Undefined if the key does not exist or is not a string. */
  peek(key: string): ReturnType<Keyspace["peek"]> {
    return this.#data.peek(key);
  }
}
