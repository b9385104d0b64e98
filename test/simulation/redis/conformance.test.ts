/**
 * Compares the simulated Redis with a real one. Both run the same random sequences of the production scripts, and every
 * reply, every message, and the type, content and expiry of every key is compared. Expiries are long, so that no key
 * expires between the two executions. The test deletes keys instead.
 */
import { type RedisServer, startRedis } from "@x/test-support";
import { Redis } from "ioredis";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { systemClock } from "../../../packages/redlock-core/src/kit/clock.ts";
import { type BatchOperation, BatchRequests } from "../../../packages/redlock-core/src/rounds/batch-request.ts";
import { keysOf, NODE_KEYS, sideKeyOf, slotOf } from "../../../packages/redlock-core/src/rules/keys.ts";
import {
  acquireText,
  digits,
  extendText,
  leaveText,
  memberOf,
  releaseText,
  repairText,
  waitText,
} from "../../../packages/redlock-core/src/rules/operation.ts";
import { TOKEN_LENGTH } from "../../../packages/redlock-core/src/rules/token.ts";
import {
  byName,
  evaluate,
  type KeyFacts,
  ReplyError,
  SeededRandom,
  Store,
} from "../../../packages/testing/src/world.ts";
import { SCRIPTS } from "./scripts-under-test.ts";

const { batch, forceRelease, inspect, leader } = SCRIPTS;
/** Greatest difference between the two executions of a script, and between TIME and the server's cached clock. */
const CLOCK_TOLERANCE_MS = 50;
/** The remaining time of an expiry is above this value in ms, and counters are below it. */
const SMALLEST_TIME = 5_000;
/** Times in ms or µs since the epoch. */
const TIMES = /\b\d{13}(?:\d{3})?\b/g;
/** So far before the times of both servers that these times never determine a fencing token. */
const LONG_AGO_US = String(-(2 ** 52));
const RESOURCES = ["a", "b", "{t}c"];

let server: RedisServer;
let client: Redis;
let subscriber: Redis;

beforeAll(async () => {
  server = await startRedis();
  client = new Redis({ path: server.path });
  subscriber = new Redis({ path: server.path });
});

afterAll(async () => {
  client?.disconnect();
  subscriber?.disconnect();
  await server?.stop();
});

beforeEach(async () => {
  await client.flushall();
});

interface Request {
  readonly source: string;
  readonly keys: readonly string[];
  readonly args: readonly string[];
}

class Pair {
  readonly sent: string[] = [];
  #nowUs = 0;
  readonly store: Store;

  constructor(runId: string, channels: ReadonlySet<string>) {
    this.store = new Store({
      nowUs: () => this.#nowUs,
      info: () => `run_id:${runId}\r\n`,
      publish: (channel, message) => {
        if (!channels.has(channel)) return 0;
        this.sent.push(`${channel} ${message}`);
        return 1;
      },
    });
  }

  /** Runs a request on both servers. Returns the replies, each with the keys afterwards. */
  async run(request: Request): Promise<{ readonly simulated: unknown; readonly real: unknown }> {
    // In one transaction, so that a busy machine has no time to freeze between the two commands.
    const [[, time] = [], [error, reply] = []] =
      (await client
        .multi()
        .time()
        .eval(request.source, request.keys.length, ...request.keys, ...request.args)
        .exec()) ?? [];
    this.#nowUs = microsOf(time);
    const real = error instanceof Error ? `error: ${asSinceRedis7(String(error)).slice(0, 40)}` : reply;
    let simulated: unknown;
    try {
      simulated = evaluate(this.store, request.source, request.keys, request.args);
    } catch (error) {
      if (!(error instanceof ReplyError)) throw error;
      simulated = `error: Reply${String(error).slice(0, 35)}`;
    }
    const realKeys = await Promise.all((await client.keys("*")).toSorted().map((key) => realFacts(key)));
    const realByKey = new Map(realKeys.map((facts) => [facts.key, facts]));
    const simulatedKeys = this.store.dump().map((facts) => {
      const { content, expiresMs } = realByKey.get(facts.key) ?? {};
      return {
        ...facts,
        content: withTimesOf(content, facts.content),
        expiresMs: withTimesOf(expiresMs, facts.expiresMs),
      };
    });
    return {
      simulated: { request, reply: withTimesOf(withoutPlace(real), withoutPlace(simulated)), keys: simulatedKeys },
      real: { request, reply: withoutPlace(real), keys: realKeys },
    };
  }

  delete(key: string): Promise<unknown> {
    this.store.call("DEL", [key]);
    return client.del(key);
  }

  async set(key: string, value: string, ttlMs: number): Promise<void> {
    // In one transaction, as in `run`, so that both expiries count from one moment.
    const [[, time] = []] = (await client.multi().time().set(key, value, "PX", ttlMs).exec()) ?? [];
    this.#nowUs = microsOf(time);
    this.store.call("SET", [key, value, "PX", String(ttlMs)]);
  }
}

/** Converts the reply of TIME to microseconds. */
function microsOf(time: unknown): number {
  const [seconds = 0, micros = 0] = (time as readonly string[]).map(Number);
  return seconds * 1_000_000 + micros;
}

async function realFacts(key: string): Promise<KeyFacts> {
  const type = await client.type(key);
  const [[, time] = [], [, left] = []] = (await client.multi().time().pttl(key).exec()) ?? [];
  const [seconds, micros] = time as readonly string[];
  const pttl = Number(left);
  const expiresMs = pttl < 0 ? undefined : Number(seconds) * 1_000 + Math.floor(Number(micros) / 1_000) + pttl;
  let content: unknown;
  if (type === "string") content = await client.get(key);
  if (type === "hash") content = Object.entries(await client.hgetall(key)).toSorted(byName);
  if (type === "zset") {
    const flat = await client.zrange(key, "0", "-1", "WITHSCORES");
    const pairs = flat.map((member, index): [string, number] => [member, Number(flat[index + 1])]);
    content = pairs.filter((_pair, index) => index % 2 === 0).toSorted(byName);
  }
  return { key, type, content, expiresMs };
}

/** Errors of a real server tell the line of the script. */
/**
 * Rewords an error of a command in a script as Redis 7 and later word it. Earlier versions put the error behind the
 * place of the call.
 */
function asSinceRedis7(error: string): string {
  const place = /ERR Error running script \(call to \w+\): @user_script: ?\d+: /;
  return error.replace(place, "").replace(/(invalid expire time in) (\w+)$/, "$1 '$2' command");
}

function withoutPlace(reply: unknown): unknown {
  if (Array.isArray(reply)) return reply.map(withoutPlace);
  return typeof reply === "string" ? reply.replace(/^user_script:\d+: /, "") : reply;
}

/**
 * Replaces each time in `value` that is close to the time of `real` by the time of `real`, because the times of the two
 * executions differ a little.
 */
function withTimesOf(real: unknown, value: unknown): unknown {
  if (Array.isArray(real) && Array.isArray(value)) {
    return value.map((each, index) => {
      const isTime = [index, index - 1].some((at) => isSameTime(real.slice(at, at + 2), value.slice(at, at + 2)));
      return isTime ? real[index] : withTimesOf(real[index], each);
    });
  }
  if (typeof real === "number" && typeof value === "number") {
    return value > SMALLEST_TIME && isClose(real, value, value > 1e15 ? 1e3 : 1) ? real : value;
  }
  if (typeof real !== "string" || typeof value !== "string") return value;
  const times = real.match(TIMES) ?? [];
  let index = -1;
  return value.replaceAll(TIMES, (time) => {
    index += 1;
    const realTime = times[index] ?? "";
    return isClose(Number(realTime), Number(time), time.length > 13 ? 1e3 : 1) ? realTime : time;
  });
}

/** Compares replies of TIME, in seconds and microseconds. */
function isSameTime(real: readonly unknown[], value: readonly unknown[]): boolean {
  const [realUs, us] = [real, value].map(([seconds, micros]) =>
    /^\d{10}$/.test(String(seconds)) && /^\d{1,6}$/.test(String(micros))
      ? Number(seconds) * 1e6 + Number(micros)
      : Number.NaN,
  );
  return isClose(realUs ?? Number.NaN, us ?? Number.NaN, 1e3);
}

function isClose(a: number, b: number, unitsPerMs: number): boolean {
  return Math.abs(a - b) < CLOCK_TOLERANCE_MS * unitsPerMs;
}

async function runIdOf(): Promise<string> {
  return /run_id:(\w+)/.exec(await client.info("server"))?.[1] ?? "";
}

describe("the simulated Redis", () => {
  it("answers sequences of the lock's scripts as a real Redis does", async () => {
    const random = new SeededRandom("conformance");
    const channels = new Set(["x:redlock:p", "x:redlock:q"]);
    const received: string[] = [];
    subscriber.on("message", (channel: string, message: string) => received.push(`${channel} ${message}`));
    await subscriber.subscribe(...channels);
    const pair = new Pair(await runIdOf(), channels);
    const baseUs = Date.now() * 1_000;
    const tokens = ["xa1", "xb2", "xc3"].map((name) => name.padEnd(TOKEN_LENGTH, "0"));
    const ballot = (): number => baseUs + random.integer(-50, 50) * 20_000;
    const ttlMs = (): number => random.integer(20_000, 90_000);
    const operation = (isAlone: boolean): BatchOperation => {
      const resources = random.chance(0.8) ? [random.pick(RESOURCES)] : ["a", "b"];
      const keys = keysOf("", resources);
      const registers = isAlone ? undefined : keys.map((key) => String(slotOf(key)));
      const target = { resources, keys, registers, slot: 0 };
      const place = baseUs + random.integer(0, 9);
      const member = memberOf(place, `x:redlock:${random.pick(["p", "q", "gone"])}#${random.integer(1, 3)}`);
      const token = random.pick(tokens);
      const lease = { target, token, ttlMs: ttlMs(), fencingToken: ballot() };
      const count = keys.length;
      switch (random.pick(["A", "A", "A", "E", "E", "P", "R", "R", "L", "W"])) {
        case "A": {
          const waits = random.chance(0.5);
          const note = random.chance(0.2) ? 'of "x" y' : undefined;
          const waiter = random.pick([waits ? { member } : { place }, waits ? { member } : {}]);
          const facts = { ttlMs: ttlMs(), ballot: ballot(), ...waiter, note };
          return {
            target,
            kind: note === undefined ? "acquire" : "acquireNoted",
            text: acquireText(count, token, facts),
          };
        }
        case "E":
          return { target, kind: "extend", text: extendText(lease) };
        case "P":
          return { target, kind: "repair", text: repairText(lease) };
        case "R":
          return { target, kind: "release", text: releaseText(count, token) };
        case "W":
          return { target, kind: "wait", text: waitText(count, member) };
        default:
          return { target, kind: "leave", text: leaveText(count, member) };
      }
    };
    const { hash, lines, lineEnds, lastNumber } = NODE_KEYS;
    const fencingPlaceOf = (key: string): readonly [string, string] =>
      random.chance(0.5) ? [lastNumber, ""] : [hash, String(slotOf(key))];
    const same = async (request: Request): Promise<void> => {
      const { simulated, real } = await pair.run(request);
      expect(simulated).toEqual(real);
    };
    for (let step = 0; step < 700; step += 1) {
      if (random.chance(0.05)) await pair.delete(random.pick(keysOf("", RESOURCES)));
      if (random.chance(0.02)) await pair.delete(random.pick([hash, lines, lineEnds, lastNumber]));
      if (random.chance(0.02)) await pair.set(random.pick(RESOURCES), "reserved:not a number", 60_000);
      if (random.chance(0.03)) {
        const key = random.pick(RESOURCES);
        const [place, register] = fencingPlaceOf(key);
        await same({
          source: forceRelease,
          keys: [place, key, sideKeyOf(key, "fence"), lines, lineEnds],
          args: ["86400000", "30000", "1", LONG_AGO_US, register],
        });
        continue;
      }
      if (random.chance(0.05)) {
        const key = random.pick(RESOURCES);
        const [place, register] = fencingPlaceOf(key);
        await same({ source: inspect, keys: [place, key, lines], args: [register, "1"] });
        continue;
      }
      const isAlone = random.chance(0.4);
      const requests = new BatchRequests(
        {
          isAlone,
          isCluster: false,
          quarantineMs: random.pick([0, 60_000]),
          grantTtlMs: 30_000,
          countsReceivers: random.chance(0.5),
          waiterTtlMs: 60_000,
        },
        systemClock,
      );
      const operations = Array.from({ length: random.pick([0, 1, 1, 2, 3, 4]) }, () => operation(isAlone));
      const greatest = random.chance(0.1) ? baseUs + random.integer(0, 9) * 1_000_000 : 0;
      await same({ source: batch, ...requests.of(operations, digits(greatest)) });
    }
    await expect.poll(() => received).toEqual(pair.sent);
    expect(pair.sent.length).toBeGreaterThan(20);
  });

  it.each([
    [
      "SET k v NX PX 20000",
      "return {redis.call('SET', KEYS[1], 'a', 'NX', 'PX', 20000), redis.call('SET', KEYS[1], 'b', 'PX', 20000, 'NX')}",
    ],
    [
      "SET k v PX 20000 GET",
      "return {redis.call('SET', KEYS[1], 'a', 'PX', 20000, 'GET'), redis.call('SET', KEYS[1], 'b', 'PX', 20000, 'GET'), redis.call('GET', KEYS[1])}",
    ],
    [
      "SET k v GET of a hash",
      "redis.call('HSET', KEYS[1], 'f', '1') return redis.pcall('SET', KEYS[1], 'a', 'PX', 20000, 'GET').err",
    ],
    ["a hash as a string", "redis.call('HSET', KEYS[1], 'f', '1') return redis.call('GET', KEYS[1])"],
    ["a ttl of zero", "return redis.call('SET', KEYS[1], 'a', 'PX', 0)"],
    ["a ttl that is not a number", "return redis.pcall('SET', KEYS[1], 'a', 'PX', 'x').err"],
    [
      "PEXPIRE in the past",
      "redis.call('SET', KEYS[1], 'a') return {redis.call('PEXPIRE', KEYS[1], -1), redis.call('PTTL', KEYS[1])}",
    ],
    [
      "RENAME onto another key",
      "redis.call('SET', KEYS[1], 'a', 'PX', 20000) redis.call('SET', KEYS[2], 'b') return redis.call('RENAME', KEYS[1], KEYS[2])",
    ],
    ["RENAME of a missing key", "return redis.pcall('RENAME', KEYS[1], KEYS[2]).err"],
    [
      "a key that never expires",
      "redis.call('SET', KEYS[1], 'a') return {redis.call('PTTL', KEYS[1]), redis.call('TYPE', KEYS[1]).ok}",
    ],
  ])("treats %s as a real Redis does", async (_name, source) => {
    const pair = new Pair(await runIdOf(), new Set());
    const { simulated, real } = await pair.run({ source, keys: ["k", "other"], args: [] });
    expect(simulated).toEqual(real);
  });

  it("answers sequences of the leader's scripts as a real Redis does", async () => {
    const random = new SeededRandom("leader");
    const pair = new Pair(await runIdOf(), new Set());
    const term = (): string => String(random.integer(1, 6));
    const keys = [
      "k",
      "{k}:leader",
      "{k}:terms",
      "{k}:request",
      "{k}:register",
      "{k}:mailbox",
      "{k}:history",
      "{k}:newest",
    ];
    const [k = "", record = "", terms = "", request = "", register = "", mailbox = "", ...ticks] = keys;
    const field = (): string => random.pick(["s", "p:s", "t:1"]);
    const runId = await runIdOf();
    let newest: readonly string[] = ["0", "0"];
    const version = (): readonly string[] => {
      newest = [term(), term()];
      return newest;
    };
    const requestOf: Record<string, () => Request> = {
      read: () => ({ source: leader.read, keys: [k, record, terms, "{k}:note"], args: [term(), "5"] }),
      write: () => ({
        source: leader.write,
        keys: [record, terms, request],
        args: [term(), term(), `token${term()}`, `record${term()}`, random.pick(["", "e"]), "86400000", "3", "ch"],
      }),
      resign: () => ({ source: leader.resign, keys: [request], args: [term(), "60000", "ch"] }),
      order: () => ({
        source: leader.order,
        keys: [register, mailbox],
        args: [field(), random.pick(["", `${term()} ${random.pick(["0", "1"])}`]), "86400000", "ch"],
      }),
      readRegister: () => ({
        source: leader.readRegister,
        keys: [register, mailbox],
        args: [
          ...random.pick([
            ["", "0"],
            [term(), random.pick(["0", "1"])],
          ]),
          random.pick(["0", "1"]),
          "86400000",
        ],
      }),
      readHistory: () => ({ source: leader.readHistory, keys: ticks, args: random.pick([[], ["s"], ["t", "s"]]) }),
      writeHistory: () => ({
        source: leader.writeHistory,
        keys: ticks,
        args: [
          `^${"[^\n]*\n".repeat(2)}`,
          "30",
          "86400000",
          ...Array.from({ length: random.integer(1, 4) }, () => [
            random.pick(["s", "t"]),
            `${random.pick(["1", "2", "%d"])} `,
            `{"of":${term()}}\n`,
          ]).flat(),
        ],
      }),
      writeRegister: () => {
        const from = newest;
        const gap = random.pick([
          "",
          "",
          `0123:0.0;${runId}:${from.join(".")};`,
          `${runId}:0.0;`,
          `0123:${from.join(".")};`,
        ]);
        const dropped = Array.from({ length: random.integer(0, 1) }, () => [field(), `${term()} 1`]).flat();
        const fields = Array.from({ length: random.integer(0, 3) }, () => [field(), random.pick(["", `${term()} 1`])]);
        return {
          source: leader.writeRegister,
          keys: [register, mailbox],
          args: [
            ...[...version(), ...from, gap, "86400000"],
            ...[String(dropped.length / 2), ...dropped, ...fields.flat()],
          ],
        };
      },
    };
    const kinds = Object.keys(requestOf);
    for (let step = 0; step < 500; step += 1) {
      if (random.chance(0.03)) await pair.delete(random.pick(keys));
      const made = requestOf[random.pick(kinds)]?.();
      if (made === undefined) throw new Error("no request");
      const { simulated, real } = await pair.run(made);
      expect(simulated).toEqual(real);
    }
    expect(pair.store.dump().length).toBeGreaterThan(3);
  });
});
