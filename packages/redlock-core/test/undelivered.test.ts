import { ManualClock } from "@x/test-support";
import { describe, expect, it, onTestFinished } from "vitest";
import { resolveOptions } from "../src/api/options.ts";
import { systemRandom } from "../src/kit/random.ts";
import { Engine } from "../src/lock/engine.ts";
import { releaseEverywhere } from "../src/lock/release.ts";
import { takeBack } from "../src/lock/script-lease.ts";
import { defineScript } from "../src/protocol.ts";
import { leaveLines } from "../src/waiting/leave.ts";
import { granted, StubNode } from "./support/stub-node.ts";

interface Situation {
  readonly clock: ManualClock;
  readonly node: StubNode;
  readonly engine: Engine;
  readonly release: (name: string) => void;
  readonly leave: (name: string) => void;
}

function situation(): Situation {
  const [clock, node] = [new ManualClock(), new StubNode()];
  const { options } = resolveOptions({}, { count: 1, isCluster: false });
  const engine = new Engine([node], options, clock, systemRandom);
  onTestFinished(() => engine.batchers[0]?.close());
  return {
    clock,
    node,
    engine,
    release: (token) => {
      const target = engine.targets.of(["r"]);
      void releaseEverywhere(engine, { target, token, ttlMs: options.ttl, mayHoldOn: engine.everyNode });
    },
    leave: (member) => leaveLines(engine, engine.targets.of(["r"]), { member, enrolledOn: 1 }),
  };
}

/** Returns the operations that begin with the letter. */
const sent = ({ operations }: StubNode, letter: string): readonly string[] =>
  operations.filter((operation) => operation.startsWith(letter));

const turnEnds = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

/** Makes the node hang with as many requests as may be pending. Returns a function that lets it answer all requests. */
async function hang({ node, release }: Situation): Promise<() => void> {
  const answers: (() => void)[] = [];
  node.answer = (operations) => new Promise((resolve) => answers.push(() => resolve(granted(operations))));
  for (let before = -1; before < node.requests.length; ) {
    before = node.requests.length;
    release(`hang${before}`);
    await turnEnds();
  }
  return () => {
    node.answer = (operations) => Promise.resolve(granted(operations));
    for (const answer of answers) answer();
  };
}

describe("a node that hangs while it is connected", () => {
  it("receives the operations that were not sent in time when it answers again, each once", async () => {
    const given = situation();
    const answer = await hang(given);
    const names = Array.from({ length: 1_000 }, (_, index) => `late${index}`);
    for (const name of names) {
      given.release(name);
      given.leave(name);
    }
    await given.clock.advance(5_000);
    answer();
    await given.engine.batchers[0]?.untilAnswered();
    expect(sent(given.node, "rlate")).toEqual(names.map((name) => `r${name}`));
    expect(sent(given.node, "L")).toEqual(names.map((name) => `L1 ${name}`));
  });

  it("has a limited number of pending operations, and loses no release because of waiters that leave", async () => {
    const given = situation();
    const answer = await hang(given);
    given.release("first");
    for (let index = 0; index < 30_000; index += 1) given.leave(String(index));
    await given.clock.advance(5_000);
    answer();
    await given.engine.batchers[0]?.untilAnswered();
    expect(sent(given.node, "rfirst")).toHaveLength(1);
    expect(sent(given.node, "L").length).toBeGreaterThan(1_000);
    expect(sent(given.node, "L").length).toBeLessThanOrEqual(10_000);
  });
});

it("a failing node has a limited number of pending script calls, the newest ones", async () => {
  const { clock, node, engine } = situation();
  const script = defineScript("take-back", "return 1");
  node.answer = () => Promise.reject(new Error("fails"));
  for (let index = 0; index < 12_000; index += 1) {
    void takeBack(engine, { script, keys: ["k"], args: ["", `s${index}`] }, clock.monotonicMs() + 60_000);
  }
  await turnEnds();
  const before = node.requests.length;
  node.answer = () => Promise.resolve(1);
  await clock.advance(250);
  // Each request is sent when the previous one is answered, and no time passes in between.
  for (let seen = -1; seen < node.requests.length; await turnEnds()) seen = node.requests.length;
  const again = node.requests.slice(before).flat();
  expect(again.length).toBeGreaterThan(1_000);
  expect(again.length).toBeLessThanOrEqual(10_000);
  expect(again.at(-1)).toBe("s11999");
});

it("a node that refuses a release receives it again, but only a few times a second", async () => {
  const { clock, node, release, engine } = situation();
  const readonly = [-1, "READONLY You can't write against a read only replica."];
  node.answer = (operations) => Promise.resolve(["1000000", 0, ...operations.map(() => readonly)]);
  release("refused");
  await turnEnds();
  await clock.advance(1_000);
  expect(node.requests.length).toBeGreaterThan(2);
  expect(node.requests.length).toBeLessThan(10);
  node.answer = (operations) => Promise.resolve(granted(operations));
  await clock.advance(500);
  const before = node.requests.length;
  await clock.advance(5_000);
  expect(node.requests.length).toBe(before);
  await engine.batchers[0]?.untilAnswered();
});
