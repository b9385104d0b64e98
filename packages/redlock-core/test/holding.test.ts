import { ManualClock } from "@x/test-support";
import { expect, it, onTestFinished } from "vitest";
import { openRedlock } from "./support/nodes.ts";
import { granted, StubNode } from "./support/stub-node.ts";

it("tries three times within a lease to extend it on a node that does not answer, however patient it is with nodes", async () => {
  const [clock, node] = [new ManualClock(), new StubNode()];
  const redlock = openRedlock([node], { clock, nodeTimeout: 60_000 });
  node.answer = (operations) => Promise.resolve(granted(operations));
  const lock = await redlock.acquire("r", { ttl: 6_000, autoExtend: true });
  const unanswered: (() => void)[] = [];
  node.answer = (operations) => new Promise((resolve) => unanswered.push(() => resolve(granted(operations))));
  onTestFinished(() => {
    node.answer = (operations) => Promise.resolve(granted(operations));
    for (const answer of unanswered) answer();
  });
  await clock.advance(6_000);
  expect(lock.isHeld()).toBe(false);
  expect(node.operations.filter((operation) => operation.startsWith("e"))).toHaveLength(3);
});

it.each([
  { name: "where a quorum still had it", replies: [1, 1, 3], repaired: [false, false, true] },
  { name: "where nobody else can have a quorum", replies: ["gone", 1, 3], repaired: [false, false, true] },
  {
    name: "nowhere if the others could be somebody else's quorum",
    replies: [1, 3, 3],
    repaired: [false, false, false],
  },
  { name: "nowhere if a majority has lost it", replies: [3, 3, "gone"], repaired: [false, false, false] },
])("asks for a key again that a node would not set by itself: $name", async ({ replies, repaired }) => {
  const nodes = replies.map(() => new StubNode());
  const redlock = openRedlock(nodes, { clock: new ManualClock(), quarantine: false });
  for (const node of nodes) node.answer = (operations) => Promise.resolve(granted(operations));
  const lock = await redlock.acquire("r", { ttl: 6_000 });
  await new Promise(setImmediate);
  for (const [index, node] of nodes.entries()) {
    node.answer = ([operation = ""]) => {
      const reply = operation.startsWith("e") ? replies[index] : 1;
      return reply === "gone" ? Promise.reject(new Error("gone")) : Promise.resolve(["1000000", 0, reply]);
    };
  }
  await lock.extend().catch(() => undefined);
  await new Promise(setImmediate);
  const isAsked = (node: StubNode): boolean => node.operations.some((operation) => operation.startsWith("P"));
  expect(nodes.map(isAsked)).toEqual(repaired);
  for (const node of nodes) node.answer = (operations) => Promise.resolve(granted(operations));
});

it("is lost when the machine was suspended, though its wall clock was set back by as much", async () => {
  const [clock, node] = [new ManualClock(), new StubNode()];
  node.answer = (operations) => Promise.resolve(granted(operations));
  const redlock = openRedlock([node], { clock });
  const lock = await redlock.acquire("r", { ttl: 6_000 });
  clock.suspend(6_000);
  clock.stepWallClock(-6_000);
  expect([lock.isHeld(), lock.remaining(), lock.signal.aborted]).toEqual([false, 0, true]);
});
