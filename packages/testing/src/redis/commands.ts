/** The commands of the simulated Redis for strings, hashes and keys of all types. */
import type { Keyspace } from "./keyspace.ts";
import { integer } from "./numbers.ts";
import { type Reply, ReplyError, Status } from "./reply.ts";

export type RedisCommand = (args: readonly string[]) => Reply;
export type RedisCommands = Readonly<Record<string, RedisCommand>>;

export function keyCommands(data: Keyspace): RedisCommands {
  return {
    DEL: (keys) => data.delete(keys),
    RENAME: ([from = "", to = ""]) => {
      if (!data.rename(from, to)) throw new ReplyError("ERR no such key");
      return new Status("OK");
    },
    EXISTS: (keys) => keys.filter((key) => data.find(key) !== undefined).length,
    TYPE: ([key = ""]) => new Status(data.find(key)?.value.type ?? "none"),
    PTTL: ([key = ""]) => data.pttl(key),
    PEXPIRE: ([key = "", ttl]) => data.expire(key, integer(ttl)),
  };
}

export function stringCommands(data: Keyspace): RedisCommands {
  const get = (key: string): string | null => data.typedValue(key, "string")?.text ?? null;
  return {
    SET: ([key = "", text = "", ...options]) => {
      const { ttlMs, onlyNew, replies } = setOptions(options);
      if (ttlMs !== undefined && ttlMs <= 0) throw new ReplyError("ERR invalid expire time in 'set' command");
      const before = replies ? get(key) : null;
      if (onlyNew && data.find(key) !== undefined) return before;
      data.setString(key, text, ttlMs);
      return replies ? before : new Status("OK");
    },
    GET: ([key = ""]) => get(key),
    MGET: (keys) =>
      keys.map((key) => {
        const value = data.find(key)?.value;
        return value?.type === "string" ? value.text : null;
      }),
  };
}

export function hashCommands(data: Keyspace): RedisCommands {
  const fieldsOf = (key: string): ReadonlyMap<string, string> | undefined => data.typedValue(key, "hash")?.fields;
  return {
    HSET: ([key = "", ...pairs]) => {
      const fields = data.hash(key);
      let added = 0;
      for (let index = 0; index < pairs.length; index += 2) {
        const field = pairs[index] ?? "";
        if (!fields.has(field)) added += 1;
        fields.set(field, pairs[index + 1] ?? "");
      }
      return added;
    },
    HSETNX: ([key = "", field = "", text = ""]) => {
      if (fieldsOf(key)?.has(field) === true) return 0;
      data.hash(key).set(field, text);
      return 1;
    },
    HGET: ([key = "", field = ""]) => fieldsOf(key)?.get(field) ?? null,
    HMGET: ([key = "", ...names]) => {
      const fields = fieldsOf(key);
      return names.map((name) => fields?.get(name) ?? null);
    },
    HEXISTS: ([key = "", field = ""]) => (fieldsOf(key)?.has(field) === true ? 1 : 0),
    HDEL: ([key = "", ...names]) => data.deleteFields(key, names),
    HLEN: ([key = ""]) => fieldsOf(key)?.size ?? 0,
    HGETALL: ([key = ""]) => [...(fieldsOf(key) ?? [])].flat(),
    HVALS: ([key = ""]) => [...(fieldsOf(key)?.values() ?? [])],
  };
}

interface SetOptions {
  readonly ttlMs: number | undefined;
  readonly onlyNew: boolean;
  readonly replies: boolean;
}

function setOptions(options: readonly string[]): SetOptions {
  let [ttlMs, onlyNew, replies]: [number | undefined, boolean, boolean] = [undefined, false, false];
  for (let at = 0; at < options.length; at += 1) {
    const option = options[at]?.toUpperCase();
    if (option === "NX") onlyNew = true;
    else if (option === "GET") replies = true;
    else if (option === "PX") {
      at += 1;
      ttlMs = integer(options[at]);
    } else throw new TypeError(`SET ${option ?? ""} is not simulated`);
  }
  return { ttlMs, onlyNew, replies };
}
