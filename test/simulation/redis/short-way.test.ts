/** The short way through the lock's script against the long one: the same replies, messages and keys, whatever is there before. */
import { expect, it } from "vitest";
import { keysOf } from "../../../packages/redlock-core/src/keys.ts";
import {
  acquireOperation,
  extendOperation,
  type Operation,
  releaseOperation,
  waitOperation,
} from "../../../packages/redlock-core/src/operation.ts";
import { SeededRandom } from "../world/random.ts";
import { evaluate } from "./scripts.ts";
import { SCRIPTS } from "./scripts-under-test.ts";
import { Store } from "./store.ts";

const short = SCRIPTS.batch;
const long = short.replace("while n <= #ARGV do", "while false do");
const HEADER = "86400000 500000 1000 1 60000";
const NODE_KEY = "x:node";
const START_US = 1_795_000_000_000_000;

class Node {
  readonly sent: string[] = [];
  readonly store: Store;
  readonly #quarantineMs: number;

  constructor(quarantineMs: number, nowUs: () => number) {
    this.#quarantineMs = quarantineMs;
    this.store = new Store({
      nowUs,
      info: () => "run_id:1\r\n",
      publish: (channel, message) => {
        this.sent.push(`${channel} ${message}`);
        return 1;
      },
    });
  }

  run(source: string, batch: readonly Operation[]): readonly unknown[] {
    const keys = [...(this.#quarantineMs > 0 ? [NODE_KEY] : []), ...batch.flatMap((operation) => operation.keys)];
    const reply = evaluate(this.store, source, keys, [
      `${this.#quarantineMs} ${HEADER}`,
      ...batch.map(({ text }) => text),
    ]);
    return (reply as readonly unknown[]).map((each) => (isError(each) ? "error" : each));
  }
}

it.each([0, 1_000])("does what the long way does, with %i ms of quarantine", (quarantineMs) => {
  const random = new SeededRandom("short way");
  let nowUs = START_US;
  const [one, other] = [new Node(quarantineMs, () => nowUs), new Node(quarantineMs, () => nowUs)];
  const tokens = ["a1", "b2"].map((name) => name.padEnd(40, "0"));
  const draw = (): Operation => {
    const resources = random.chance(0.9) ? [random.pick(["a", "{t}b"])] : ["a", "{t}b"];
    const target = { resources, keys: keysOf("", resources), slot: 0 };
    const token = random.pick(tokens);
    const order = nowUs + random.integer(-5, 5);
    const member = `x:redlock:p#${random.integer(1, 3)}`;
    const facts = { token, ttlMs: random.integer(20, 3_000), order };
    switch (random.pick(["A", "A", "A", "R", "R", "E", "W"])) {
      case "A": {
        const ballot = nowUs + random.pick([0, 1, 1_000, 400_000, 700_000, -1_000]);
        return acquireOperation(target, { ...facts, ballot, member: random.chance(0.2) ? member : undefined });
      }
      case "E":
        return extendOperation(target, { ...facts, fencingToken: nowUs });
      case "W":
        return random.chance(0.2) ? waitOperation(target, { order, member }) : releaseOperation(target, token);
      default:
        return releaseOperation(target, token);
    }
  };
  let [taken, errors] = [0, 0];
  for (let step = 0; step < 4_000; step += 1) {
    nowUs += random.pick([0, 100, 5_000, 900_000, 4_000_000]);
    if (random.chance(0.02)) {
      const [command, ...args] = random.pick([
        ["SET", "a", "somebody", "PX", "500"],
        ["HSET", "{a}:fence", "f", "1"],
        ["HSET", "{t}b", "f", "1"],
        ["DEL", "a", "{t}b", "{a}:fence"],
      ]);
      for (const { store } of [one, other]) {
        store.call("DEL", args.slice(0, 1));
        store.call(command ?? "", args);
      }
    }
    const batch = Array.from({ length: random.pick([0, 1, 1, 2, 3, 6]) }, draw);
    const replies = one.run(short, batch);
    expect(replies).toHaveLength(batch.length + 3);
    expect({ batch, replies }).toEqual({ batch, replies: other.run(long, batch) });
    expect(one.store.dump()).toEqual(other.store.dump());
    taken += replies.slice(3).filter((reply) => reply === 1).length;
    errors += replies.filter((reply) => reply === "error").length;
  }
  expect(one.sent).toEqual(other.sent);
  expect(taken).toBeGreaterThan(1_000);
  expect(errors).toBeGreaterThan(50);
});

function isError(reply: unknown): boolean {
  return Array.isArray(reply) && reply[0] === -1;
}
