import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { ManualClock } from "@x/test-support";
import { describe, expect, it, onTestFinished } from "vitest";
import { type Clock, systemClock } from "../src/index.ts";
import { BatchRequests } from "../src/rounds/batch-request.ts";
import { Batcher, type Request } from "../src/rounds/batcher.ts";
import { granted, StubNode } from "./support/stub-node.ts";

function batcherOf(node: StubNode, clock: Clock = systemClock): Batcher {
  const requests = new BatchRequests(
    {
      isAlone: true,
      isCluster: false,
      countsReceivers: true,
      quarantineMs: 0,
      grantTtlMs: 1_000,
      waiterTtlMs: 60_000,
    },
    clock,
  );
  const batcher = new Batcher(node, 0, clock, requests, 60_000);
  onTestFinished(() => batcher.close());
  return batcher;
}

const targetOf = (text: string): Request["target"] => ({
  resources: [text],
  keys: [text],
  registers: undefined,
  slot: 0,
});

const questionOf = (text: string): Request & { isAbandoned: boolean } => ({
  kind: "leave",
  target: targetOf(text),
  text,
  sentTo: 0,
  isAbandoned: false,
  onReply: () => undefined,
  onError: () => undefined,
});

const turnEnds = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe("a node that refuses writes as a replica", () => {
  it.each([
    ["is connected again by the next refusal after some seconds, however rare the refusals are", [0, 60_000], 1],
    ["is not connected again by refusals that follow each other", [0, 1_000, 1_000], 0],
    ["is connected again by refusals in close succession", [0, 1_000, 1_000, 1_000], 1],
    ["counts the refusals of its new connection only", [0, 60_000, 0, 1_000], 1],
  ])("%s", async (_, pausesMs, expected) => {
    const clock = new ManualClock();
    const reconnects: string[] = [];
    const node = Object.assign(new StubNode(), { reconnect: (reason: string) => reconnects.push(reason) });
    const batcher = batcherOf(node, clock);
    node.answer = () => Promise.reject(new Error("READONLY You can't write against a read only replica."));
    for (const pauseMs of pausesMs) {
      await clock.advance(pauseMs);
      batcher.submit(questionOf("R1"));
      await turnEnds();
    }
    expect(reconnects).toHaveLength(expected);
  });

  it("starts again when the connection was lost", async () => {
    const clock = new ManualClock();
    const reconnects: string[] = [];
    const node = Object.assign(new StubNode(), { reconnect: (reason: string) => reconnects.push(reason) });
    const batcher = batcherOf(node, clock);
    node.answer = () => Promise.reject(new Error("READONLY You can't write against a read only replica."));
    const isRefused = async (): Promise<void> => {
      batcher.submit(questionOf("R1"));
      await turnEnds();
    };
    await isRefused();
    node.become("down");
    node.become("ready");
    await clock.advance(60_000);
    await isRefused();
    expect(reconnects).toEqual([]);
  });
});

describe("a node that never answers", () => {
  it("receives no more requests after a few, until it answers", async () => {
    const node = new StubNode();
    const batcher = batcherOf(node);
    const answers: (() => void)[] = [];
    node.answer = (operations) => new Promise((resolve) => answers.push(() => resolve(granted(operations))));
    const texts = Array.from({ length: 200 }, (_, index) => `R1 ${index}`);
    for (const text of texts) {
      batcher.submit(questionOf(text));
      await turnEnds();
    }
    expect(node.requests.length).toBeLessThan(50);
    while (answers.length > 0) {
      for (const answer of answers.splice(0)) answer();
      await turnEnds();
    }
    expect(node.operations).toEqual(texts);
  });

  it("keeps hardly any memory for abandoned requests", async () => {
    setFlagsFromString("--expose-gc");
    const collect = runInNewContext("gc") as () => void;
    const batcher = batcherOf(new StubNode());
    const questions: WeakRef<Request>[] = [];
    for (let index = 0; index < 10_000; index += 1) {
      const question = questionOf(`R1 ${index}`);
      questions.push(new WeakRef(question));
      batcher.submit(question);
      if (index < 100) await turnEnds();
      question.isAbandoned = true;
      batcher.onAbandoned();
    }
    await turnEnds();
    collect();
    expect(questions.filter((question) => question.deref() !== undefined).length).toBeLessThan(1_000);
  });
});

describe("a node that is down", () => {
  it("receives the last releases when it is back, but not one release for each made while it was down", async () => {
    const node = new StubNode("down");
    const batcher = batcherOf(node);
    node.answer = (operations) => Promise.resolve(granted(operations));
    const texts = Array.from({ length: 30_000 }, (_, index) => `R1 ${index}`);
    for (const text of texts) {
      batcher.keepUndelivered({ target: targetOf(text), text, kind: "release", untilMs: Number.POSITIVE_INFINITY });
    }
    node.become("ready");
    await batcher.untilAnswered();
    expect(node.operations.length).toBeGreaterThan(1_000);
    expect(node.operations.length).toBeLessThanOrEqual(10_000);
    expect(node.operations).toEqual(texts.slice(-node.operations.length));
  });
});
