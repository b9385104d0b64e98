/** The commands of the simulated Redis for sorted sets. */
import type { RedisCommands } from "./commands.ts";
import type { Keyspace } from "./keyspace.ts";
import { integer, isAbove, isBelow, rank } from "./numbers.ts";
import { type Reply, ReplyError } from "./reply.ts";

export function sortedSetCommands(data: Keyspace): RedisCommands {
  return {
    ZADD: ([key = "", score = "", member = "", ...more]) => {
      if (more.length > 0) throw new TypeError("ZADD: one member only");
      const value = Number(score);
      if (score.trim() === "" || Number.isNaN(value)) throw new ReplyError("ERR value is not a valid float");
      const scores = data.scores(key);
      const added = scores.has(member) ? 0 : 1;
      scores.set(member, value);
      return added;
    },
    ZREM: ([key = "", ...members]) => data.removeMembers(key, members),
    ZCARD: ([key = ""]) => data.typedValue(key, "zset")?.scores.size ?? 0,
    ZCOUNT: ([key = "", min = "", max = ""]) => within(data, key, min, max).length,
    ZSCORE: ([key = "", member = ""]) => {
      const score = data.typedValue(key, "zset")?.scores.get(member);
      return score === undefined ? null : String(score);
    },
    ZRANGE: (args) => range(data, args),
    ZREVRANGEBYSCORE: (args) => reverseRangeByScore(data, args),
    ZRANGEBYSCORE: (args) => rangeByScore(data, args),
    ZRANGEBYLEX: (args) => rangeByLex(data, args),
    ZLEXCOUNT: ([key = "", min = "", max = ""]) => lexRange(data, key, min, max).length,
    ZREMRANGEBYLEX: ([key = "", min = "", max = ""]) => data.removeMembers(key, lexRange(data, key, min, max)),
    ZPOPMIN: ([key = ""]) => {
      const head = data.sorted(key)[0];
      if (head === undefined) return [];
      data.removeMembers(key, [head[0]]);
      return [head[0], String(head[1])];
    },
    ZREMRANGEBYSCORE: ([key = "", min = "", max = ""]) => data.removeMembers(key, within(data, key, min, max)),
    ZREMRANGEBYRANK: ([key = "", from = "", to = ""]) => {
      const sorted = data.sorted(key);
      const [start, end] = [rank(from, sorted.length), rank(to, sorted.length)];
      return data.removeMembers(
        key,
        sorted.slice(Math.max(start, 0), Math.max(end + 1, 0)).map(([member]) => member),
      );
    },
  };
}

/** Returns the members with a score between two limits, in order. */
function within(data: Keyspace, key: string, min: string, max: string): string[] {
  return data
    .sorted(key)
    .filter(([, score]) => isAbove(score, min) && isBelow(score, max))
    .map(([member]) => member);
}

function range(data: Keyspace, [key = "", from = "0", to = "-1", option]: readonly string[]): Reply {
  if (option !== undefined && option.toUpperCase() !== "WITHSCORES") throw new TypeError(`ZRANGE ${option}`);
  const sorted = data.sorted(key);
  const [start, end] = [rank(from, sorted.length), rank(to, sorted.length)];
  return sorted
    .slice(Math.max(start, 0), end + 1)
    .flatMap(([member, score]) => (option === undefined ? [member] : [member, String(score)]));
}

function reverseRangeByScore(
  data: Keyspace,
  [key = "", max = "", min = "", limit, offset, count]: readonly string[],
): Reply {
  if (limit !== undefined && limit.toUpperCase() !== "LIMIT") throw new TypeError(`ZREVRANGEBYSCORE ${limit}`);
  const members = within(data, key, min, max).toReversed();
  return limit === undefined ? members : limited(members, offset, count);
}

function rangeByScore(data: Keyspace, [key = "", min = "", max = "", limit, offset, count]: readonly string[]): Reply {
  if (limit?.toUpperCase() !== "LIMIT") throw new TypeError("ZRANGEBYSCORE: only with LIMIT");
  return limited(within(data, key, min, max), offset, count);
}

function rangeByLex(data: Keyspace, [key = "", min = "", max = "", limit, offset, count]: readonly string[]): Reply {
  if (limit?.toUpperCase() !== "LIMIT") throw new TypeError("ZRANGEBYLEX: only with LIMIT");
  return limited(lexRange(data, key, min, max), offset, count);
}

/** Returns the members in a range of texts. All scores of the set must be equal, as for a real Redis. */
function lexRange(data: Keyspace, key: string, min: string, max: string): readonly string[] {
  const members = data.sorted(key).map(([member]) => member);
  return members.filter((member) => isAfter(member, min) && isBefore(member, max));
}

function limited(members: readonly string[], offset: string | undefined, count: string | undefined): readonly string[] {
  const first = integer(offset);
  const wanted = integer(count);
  return members.slice(first, wanted < 0 ? undefined : first + wanted);
}

/** Compares with the lower limit of a range of texts. */
function isAfter(member: string, min: string): boolean {
  return min.startsWith("(") ? member > min.slice(1) : member >= min.slice(1);
}

/** Compares with the upper limit of a range of texts. */
function isBefore(member: string, max: string): boolean {
  return max.startsWith("(") ? member < max.slice(1) : member <= max.slice(1);
}
