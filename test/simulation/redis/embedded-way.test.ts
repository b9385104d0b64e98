/**
 * Compares the locks that a script of another package acquires and releases with the lock's own script, in any state.
 */

import { expect, it } from "vitest";
import { systemClock } from "../../../packages/redlock-core/src/kit/clock.ts";
import { type BatchOperation, BatchRequests } from "../../../packages/redlock-core/src/rounds/batch-request.ts";
import { NODE_KEYS } from "../../../packages/redlock-core/src/rules/keys.ts";
import { acquireText, digits, memberOf, releaseText } from "../../../packages/redlock-core/src/rules/operation.ts";
import { embedded } from "../../../packages/redlock-core/src/scripts/embedded.lua.ts";
import { type ClientReply, evaluate, SeededRandom, Store } from "../../../packages/testing/src/world.ts";
import { SCRIPTS } from "./scripts-under-test.ts";

const START_US = 1_795_000_000_000_000;
const TTL_MS = 2_000;
const KEYS = ["a", "{t}b"];
/** The keys of many locks that one script acquires. */
const MANY = Array.from({ length: 40 }, (_, index) => `k${index}`);
/** All keys that the functions may touch. A script of a queue computes their names. */
const TOUCHED = [...MANY, ...KEYS, NODE_KEYS.lines, NODE_KEYS.lineEnds, NODE_KEYS.lastNumber];
const [OURS, NEXT, FOREIGN] = ["1", "2", "3"].map((end) => `x${end.repeat(40)}`) as [string, string, string];

/** Returns the state before the script, as commands for a store. */
function drawState(random: SeededRandom, key: string, nowUs: number): readonly (readonly string[])[] {
  const life = ["PX", String(random.integer(1, 5_000))];
  const near = (): string => String(nowUs + random.pick([-1, 0, 1, 1_000, -1_000_000, 60_000_000]));
  const inLineOf = (lockKey: string): readonly string[] => [
    ...["ZADD", NODE_KEYS.lines, "0"],
    `${lockKey.length}:${lockKey}:${memberOf(Number(near()), "x:redlock:p#1")}`,
  ];
  return [
    random.pick([
      [],
      [],
      ["SET", key, OURS, ...life],
      ["SET", key, OURS],
      ["SET", key, FOREIGN, ...life],
      ["SET", key, "somebody", ...life],
      ["SET", key, `reserved:${memberOf(Number(near()), "x:redlock:p#1")}`, ...life],
      ["HSET", key, "f", "1"],
    ]),
    ...random.pick([[], [inLineOf(key)], [inLineOf("another")], [inLineOf(`${key}:2`)]]),
    random.pick([[], ["SET", NODE_KEYS.lastNumber, near()], ["SET", NODE_KEYS.lastNumber, "9007199254740993"]]),
  ].filter((command) => command.length > 0);
}

class Side {
  readonly store: Store;
  readonly #requests = new BatchRequests(
    {
      isAlone: true,
      isCluster: false,
      quarantineMs: 0,
      grantTtlMs: 1_000,
      countsReceivers: true,
      waiterTtlMs: 60_000,
    },
    systemClock,
  );

  constructor(nowUs: number, state: readonly (readonly string[])[]) {
    this.store = new Store({ nowUs: () => nowUs, info: () => "run_id:1\r\n", publish: () => 1 });
    for (const [command = "", ...args] of state) this.store.call(command, args);
  }

  /** Returns the reply of the lock's script to the last operation. */
  batch(key: string, texts: readonly string[]): unknown {
    const target = { resources: [key], keys: [key], registers: undefined, slot: 0 };
    const operations = texts.map((text): BatchOperation => {
      return { target, text, kind: text.startsWith("a") ? "acquire" : "release" };
    });
    const { keys, args } = this.#requests.of(operations, digits(0));
    const reply = evaluate(this.store, SCRIPTS.batch, keys, args);
    return Array.isArray(reply) ? reply.at(-1) : reply;
  }

  /**
   * Returns the reply of a function that the script of another package calls. Null even if the function raised an
   * error.
   */
  embedded(call: string, args: readonly string[]): ClientReply {
    const source = `local call = redis.call\n${embedded}\nlocal ok, reply = pcall(function() return ${call} end)\nreturn ok and reply or nil`;
    return evaluate(this.store, source, TOUCHED, args);
  }

  /** Returns the state, without the number that a refusal may use up. */
  dump(): unknown {
    return this.store.dump().filter(({ key }) => key !== NODE_KEYS.lastNumber);
  }
}

const acquire = (token: string): string => acquireText(1, token, { ttlMs: TTL_MS, ballot: 0 });

it.each([
  ["lockIfFree", "lockIfFree(ARGV[1], ARGV[3], ARGV[4])", [acquire(NEXT)]],
  ["passOnIfUnwanted", "passOnIfUnwanted(ARGV[1], ARGV[2], ARGV[3], ARGV[4])", [releaseText(1, OURS), acquire(NEXT)]],
  ["unlockIfUnwanted", "unlockIfUnwanted(ARGV[1], ARGV[2])", [releaseText(1, OURS)]],
] as const)("an embedded %s does the same as the lock's script, or nothing", (name, call, texts) => {
  const random = new SeededRandom(name);
  let [done, left] = [0, 0];
  for (let step = 0; step < 3_000; step += 1) {
    const key = random.pick(KEYS);
    const nowUs = START_US + random.integer(0, 9_999_999);
    const state = drawState(random, key, nowUs);
    const [before, ours, reference] = [new Side(nowUs, state), new Side(nowUs, state), new Side(nowUs, state)];
    const reply = ours.embedded(call, [key, OURS, NEXT, String(TTL_MS)]);
    const isFreeFor = name === "lockIfFree" ? null : OURS;
    const isWaitedFor = state.some(([, , , text]) => text?.startsWith(`${key.length}:${key}:`));
    if (reply === null) {
      left += 1;
      expect({ step, state, keys: ours.dump() }).toEqual({ step, state, keys: before.dump() });
      const isOffered = !isWaitedFor && valueOf(before.store, key) === isFreeFor;
      if (isOffered) expect(Array.isArray(reference.batch(key, texts))).toBe(true);
      continue;
    }
    done += 1;
    expect({ step, state, reply: Number(reply) }).toEqual({ step, state, reply: Number(reference.batch(key, texts)) });
    expect({ step, state, keys: ours.store.dump() }).toEqual({ step, state, keys: reference.store.dump() });
  }
  expect(Math.min(done, left)).toBeGreaterThan(200);
});

/** Returns the string at the key, null if the key does not exist, or undefined if it has another type. */
function valueOf(store: Store, key: string): unknown {
  const facts = store.dump().find((each) => each.key === key);
  if (facts === undefined) return null;
  return facts.type === "string" ? facts.content : undefined;
}

it("an embedded script gives each of its locks a greater fencing token, and later locks still greater ones", () => {
  const nowUs = START_US;
  const side = new Side(nowUs, [["SET", NODE_KEYS.lastNumber, String(nowUs + 60_000_000)]]);
  const tokens = String(
    side.embedded(
      "(function() local all = {} for i = 1, #ARGV do all[i] = lockIfFree(ARGV[i], 'x', '1000') end return table.concat(all, ' ') end)()",
      MANY,
    ),
  );
  const given = tokens.split(" ").map(Number);
  expect(given).toEqual(MANY.map((_, index) => nowUs + 60_000_001 + index));
  expect(Number(side.batch("later", [acquire(NEXT)]))).toBeGreaterThan(given.at(-1) ?? Number.POSITIVE_INFINITY);
});
