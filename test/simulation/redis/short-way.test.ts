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
const long = short.replace("if #ARGV == 2 then", "if false then");
const HEADER = "0 86400000 500000 1000 1 60000";
const START_US = 1_795_000_000_000_000;

class Node {
  readonly sent: string[] = [];
  readonly store: Store;

  constructor(nowUs: () => number) {
    this.store = new Store({
      nowUs,
      info: () => "run_id:1\r\n",
      publish: (channel, message) => {
        this.sent.push(`${channel} ${message}`);
        return 1;
      },
    });
  }

  run(source: string, operation: Operation): unknown {
    return evaluate(this.store, source, operation.keys, [HEADER, operation.text]);
  }
}

it("does what the long way does", () => {
  const random = new SeededRandom("short way");
  let nowUs = START_US;
  const [one, other] = [new Node(() => nowUs), new Node(() => nowUs)];
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
  let taken = 0;
  for (let step = 0; step < 4_000; step += 1) {
    nowUs += random.pick([0, 100, 5_000, 900_000, 4_000_000]);
    if (random.chance(0.02)) {
      const [command, ...args] = random.pick([
        ["SET", "a", "somebody", "PX", "500"],
        ["HSET", "{a}:fence", "f", "1"],
        ["HSET", "{t}b", "f", "1"],
        ["DEL", "a", "{t}b", "{a}:fence"],
      ]);
      for (const { store } of [one, other]) attempt(() => store.call(command ?? "", args));
    }
    const operation = draw();
    const [shortReply, longReply] = [
      attempt(() => one.run(short, operation)),
      attempt(() => other.run(long, operation)),
    ];
    expect({ operation, reply: valueOf(shortReply) }).toEqual({ operation, reply: valueOf(longReply) });
    expect(one.store.dump()).toEqual(other.store.dump());
    if (valueOf(shortReply) === 1) taken += 1;
  }
  expect(one.sent).toEqual(other.sent);
  expect(taken).toBeGreaterThan(500);
});

function attempt(run: () => unknown): unknown {
  try {
    return run();
  } catch (error) {
    return [0, 0, 0, [-1, String(error)]];
  }
}

/** An error ends the whole request on the short way, and only its operation on the long one. */
function valueOf(reply: unknown): unknown {
  const value = (reply as readonly unknown[])[3];
  return Array.isArray(value) && value[0] === -1 ? "error" : value;
}
