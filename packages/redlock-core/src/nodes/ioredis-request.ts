/** Serializes requests for ioredis in less time than ioredis needs. */

import { systemClock } from "../kit/clock.ts";

interface Command {
  toWritable(): string | Buffer;
}
type CommandClass = new (name: string, args: readonly string[], options: object) => Command;

/** The part of an ioredis connection that sends scripts. */
export interface ScriptConnection {
  sendCommand(command: Command): Promise<unknown>;
  evalsha(args: readonly (string | number)[]): Promise<unknown>;
}

const UTF8 = { replyEncoding: "utf8" } as const;
/** Payloads of at least this length are written faster as a Buffer than as a string. */
const LARGE = 4_096;
const LENGTHS = Array.from({ length: 256 }, (_, length) => `\r\n$${length}\r\n`);

/**
 * Sends the requests of one node as flat strings. ioredis would build each request from five strings per argument, and
 * Node would flatten this chain while writing, which is a third of the cost of a request with many operations.
 */
export class ScriptSender {
  #commandClass: CommandClass | undefined;

  send(connection: ScriptConnection, sha1: string, keys: readonly string[], args: readonly string[]): Promise<unknown> {
    const Command = this.#commandClass;
    if (Command === undefined) return this.#sendAndLearn(connection, [sha1, keys.length, ...keys, ...args]);
    const payload = payloadOf(sha1, keys, args);
    if (payload === undefined) return connection.evalsha([sha1, keys.length, ...keys, ...args]);
    const command = new Command("evalsha", [sha1], UTF8);
    command.toWritable = () => payload;
    return connection.sendCommand(command);
  }

  /**
   * Sends a request in the way of ioredis, and records the class of its command. This detour finds the command class of
   * the very copy of ioredis that created the connection. A client's `constructor` does not lead there, because it is
   * the constructor of an emitter that ioredis mixes in.
   */
  #sendAndLearn(connection: ScriptConnection, whole: readonly (string | number)[]): Promise<unknown> {
    const send = connection.sendCommand.bind(connection);
    connection.sendCommand = (command) => {
      this.#commandClass = command.constructor as CommandClass;
      return send(command);
    };
    try {
      return connection.evalsha(whole);
    } finally {
      Reflect.deleteProperty(connection, "sendCommand");
    }
  }
}

interface Written {
  readonly sha1: string;
  readonly keys: readonly string[];
  readonly args: readonly string[];
  readonly payload: string | Buffer | undefined;
}

/** A batcher sends at most this number of requests in one turn. */
const MAX_WRITTEN = 16;

/** Requests that were serialized in this turn of the event loop. One node after another receives each request. */
let written: Written[] = [];

const onTurnEnd = (): void => {
  written = [];
};

function payloadOf(sha1: string, keys: readonly string[], args: readonly string[]): string | Buffer | undefined {
  const known = written.find((each) => each.keys === keys && each.args === args && each.sha1 === sha1);
  if (known !== undefined) return known.payload;
  if (written.length === 0) systemClock.defer(onTurnEnd);
  if (written.length === MAX_WRITTEN) written = [];
  const payload = write(sha1, keys, args);
  written.push({ sha1, keys, args, payload });
  return payload;
}

/**
 * Serializes a request. Returns undefined if a part is not ASCII, because its length in characters would then differ
 * from its length in bytes.
 *
 * Node flattens the growing text once. Joining a list of all parts takes about twice the time.
 */
function write(sha1: string, keys: readonly string[], args: readonly string[]): string | Buffer | undefined {
  let payload = `*${3 + keys.length + args.length}\r\n$7\r\nevalsha\r\n$40\r\n${sha1}${encode(String(keys.length))}`;
  for (const key of keys) payload += encode(key);
  for (const arg of args) payload += encode(arg);
  payload += "\r\n";
  if (Buffer.byteLength(payload) !== payload.length) return undefined;
  return payload.length < LARGE ? payload : Buffer.from(payload, "latin1");
}

function encode(part: string): string {
  return (LENGTHS[part.length] ?? `\r\n$${part.length}\r\n`) + part;
}
