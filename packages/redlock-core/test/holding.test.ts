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
