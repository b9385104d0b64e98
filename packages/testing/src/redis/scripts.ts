/**
 * Runs the source of a script on a simulated store, with Redis' conversions between replies and Lua values. Accessing
 * an undeclared key throws, as on Dragonfly or for a restricted user.
 */
import { type CompiledScript, compileLua } from "../lua/compile.ts";
import { LuaError, type LuaFunction, LuaTable, type LuaValue } from "../lua/runtime.ts";
import { type Reply, ReplyError, Status } from "./reply.ts";
import type { Store } from "./store.ts";

/** A reply as received by a client. */
export type ClientReply = null | number | string | ClientReply[];

const compiled = new Map<string, CompiledScript>();

/** Runs a script. @throws ReplyError for an error reply of EVALSHA */
export function evaluate(store: Store, source: string, keys: readonly string[], args: readonly string[]): ClientReply {
  let script = compiled.get(source);
  if (script === undefined) {
    script = compileLua(source);
    compiled.set(source, script);
  }
  const redis = new LuaTable();
  const call = callOn(store, new Set(keys));
  redis.set("call", call);
  redis.set("pcall", protectedCall(call));
  try {
    const values = script({ KEYS: LuaTable.of(keys), ARGV: LuaTable.of(args), redis });
    return toClient(values[0]);
  } catch (error) {
    if (error instanceof LuaError) throw new ReplyError(error.message);
    throw error;
  }
}

function callOn(store: Store, declared: ReadonlySet<string>): LuaFunction {
  return (name, ...values) => {
    const command = argument(name).toUpperCase();
    const args = values.map(argument);
    for (const key of keysOf(command, args)) {
      if (!declared.has(key)) throw new TypeError(`the script does not declare the key ${key} of ${command}`);
    }
    try {
      return [toLua(store.call(command, args))];
    } catch (error) {
      if (error instanceof ReplyError) throw new LuaError(errorTable(error));
      throw error;
    }
  };
}

/** Returns the keys among the arguments of a command. */
function keysOf(command: string, args: readonly string[]): readonly string[] {
  switch (command) {
    case "TIME":
    case "INFO":
    case "PUBLISH":
      return [];
    case "DEL":
    case "EXISTS":
    case "MGET":
    case "RENAME":
      return args;
    default:
      return args.slice(0, 1);
  }
}

function protectedCall(call: LuaFunction): LuaFunction {
  return (...args) => {
    try {
      return call(...args);
    } catch (error) {
      if (error instanceof LuaError) return [error.value];
      throw error;
    }
  };
}

function errorTable(error: ReplyError): LuaTable {
  const table = new LuaTable();
  table.set("err", error.message);
  return table;
}

/** Converts a command's argument. Redis formats numbers with `%.17g`, which prints an integer as its digits. */
function argument(value: LuaValue): string {
  if (typeof value === "string") return value;
  if (typeof value === "number") return String(value);
  throw new LuaError("Lua redis lib command arguments must be strings or integers");
}

function toLua(reply: Reply): Exclude<LuaValue, undefined> {
  if (reply === null) return false;
  if (typeof reply === "string" || typeof reply === "number") return reply;
  if (reply instanceof Status) {
    const table = new LuaTable();
    table.set("ok", reply.text);
    return table;
  }
  return LuaTable.of(reply.map(toLua));
}

function toClient(value: LuaValue): ClientReply {
  if (value === undefined || value === false) return null;
  if (value === true) return 1;
  if (typeof value === "number") return Math.trunc(value);
  if (typeof value === "string") return value;
  if (!(value instanceof LuaTable)) return null;
  const [error, status] = [value.get("err"), value.get("ok")];
  if (typeof error === "string") throw new ReplyError(error);
  if (typeof status === "string") return status;
  const list: ClientReply[] = [];
  for (let index = 1; value.get(index) !== undefined; index += 1) list.push(toClient(value.get(index)));
  return list;
}
