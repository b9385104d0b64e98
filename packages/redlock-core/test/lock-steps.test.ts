import { ManualClock } from "@x/test-support";
import { expect, it, onTestFinished } from "vitest";
import { readClock } from "../src/kit.ts";
import { GRACE_MS } from "../src/lock/step-answers.ts";
import {
  type Attempted,
  type Grant,
  type LockSteps,
  leaseEnd,
  protocolOf,
  type RefusedAttempt,
} from "../src/protocol.ts";
import { openRedlock } from "./support/nodes.ts";
import { granted, StubNode } from "./support/stub-node.ts";

interface Setting {
  readonly clock: ManualClock;
  readonly nodes: readonly StubNode[];
  readonly steps: LockSteps;
  /** Answers the requests to the last node, which stays silent until then. */
  readonly answerLast: () => void;
}

function open(driftFactor = 0.01): Setting {
  const clock = new ManualClock();
  const nodes = [new StubNode(), new StubNode(), new StubNode()];
  const waiting: (() => void)[] = [];
  for (const node of nodes) node.answer = (operations) => Promise.resolve(granted(operations));
  const last = nodes[2] as StubNode;
  last.answer = (operations) => new Promise((resolve) => void waiting.push(() => resolve(granted(operations))));
  const redlock = openRedlock(nodes, { clock, nodeTimeout: 500 });
  const answerLast = (): void => {
    for (const answer of waiting.splice(0)) answer();
  };
  onTestFinished(answerLast);
  return { clock, nodes, steps: protocolOf(redlock).stepsOf("r", driftFactor), answerLast };
}

/** Starts an attempt. Returns the results so far: none, or one. */
function attempt({ clock, steps }: Setting, ttlMs = 10_000): readonly Attempted<Grant, RefusedAttempt>[] {
  const results: Attempted<Grant, RefusedAttempt>[] = [];
  const request = { asked: readClock(clock), ttlMs, place: undefined };
  steps.attempt(request, () => undefined, { onResult: (result) => void results.push(result) });
  return results;
}

it("a granted attempt waits for a missing answer", async () => {
  const setting = open();
  const results = attempt(setting);
  await setting.clock.advance(0);
  expect(results).toEqual([]);
  setting.answerLast();
  await setting.clock.advance(0);
  expect(results).toMatchObject([{ kind: "granted" }]);
});

it("a step waits for a short time, and not at all for a node that has owed an answer for longer", async () => {
  const setting = open();
  const first = attempt(setting);
  await setting.clock.advance(0);
  await setting.clock.advance(GRACE_MS);
  expect(first).toMatchObject([{ kind: "granted" }]);
  const second = attempt(setting);
  await setting.clock.advance(0);
  expect(second).toMatchObject([{ kind: "granted" }]);
  setting.answerLast();
  await setting.clock.advance(0);
  const third = attempt(setting);
  await setting.clock.advance(0);
  expect(third).toEqual([]);
});

it("a step does not wait for a node that is not connected", async () => {
  const setting = open();
  setting.nodes[2]?.become("connecting");
  const results = attempt(setting);
  await setting.clock.advance(0);
  expect(results).toMatchObject([{ kind: "granted" }]);
});

it("a grant that expires during the wait is released, and counts as refused", async () => {
  const setting = open();
  const results = attempt(setting, GRACE_MS);
  await setting.clock.advance(0);
  await setting.clock.advance(GRACE_MS);
  expect(results).toMatchObject([{ kind: "refused", refusal: "unreachable" }]);
  await setting.clock.advance(0);
  expect(setting.nodes[0]?.operations.at(-1)).toMatch(/^r/i);
});

it.each([0.01, 0.1])("the end of a grant counts the drift of the steps: %f", async (driftFactor) => {
  const setting = open(driftFactor);
  setting.nodes[2]?.become("down");
  const asked = readClock(setting.clock);
  const results = attempt(setting, 1_000);
  await setting.clock.advance(0);
  expect(results).toMatchObject([{ grant: { end: leaseEnd(asked, 1_000, driftFactor) } }]);
});

it("a release is lost once the nodes that may still have the key are fewer than a quorum", async () => {
  const setting = open();
  for (const node of setting.nodes.slice(0, 2)) {
    node.answer = (operations) => Promise.resolve(["1000000", 0, ...operations.map(() => 0)]);
  }
  const released = setting.steps.release({ token: "0".repeat(40), ttlMs: 1_000 }, () => undefined);
  await setting.clock.advance(0);
  setting.answerLast();
  expect(await released).toEqual({ kind: "lost" });
});
