/** Fencing tokens that a node can neither continue nor represent exactly: the node grants none, and reports this. */

import type { RedisServer } from "@x/test-support";
import { errorOf } from "@x/test-support";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { QuorumUnreachableError, type Redlock, systemClock } from "../src/index.ts";
import { BatchRequests } from "../src/rounds/batch-request.ts";
import { Batcher } from "../src/rounds/batcher.ts";
import { NODE_KEYS, slotOf } from "../src/rules/keys.ts";
import { embedded } from "../src/scripts/embedded.lua.ts";
import { openRedlock, startNodes } from "./support/nodes.ts";
import { StubNode } from "./support/stub-node.ts";

const WRONG = ["9007199254740991", "9007199254740993", "90071992547409930", "5"];
const SAYS = /fencing tokens have 16 digits/;

/** Returns the refusal of a first attempt, as an acquisition usually makes it, and of later attempts. */
async function refusalOf(redlock: Redlock, resource: string): Promise<string | undefined> {
  const error = await errorOf(redlock.acquire(resource, { timeout: 200 }));
  return error instanceof QuorumUnreachableError ? error.votes.map((vote) => vote.error).join() : String(error);
}

async function startNode(): Promise<RedisServer> {
  const [server] = await startNodes(1);
  if (server === undefined) throw new Error("expected a node");
  return server;
}

describe.each(WRONG)("a single node whose last number is %s", (last) => {
  it("refuses a single acquisition, until the number is repaired", async () => {
    const server = await startNode();
    const redlock = openRedlock([server]);
    const before = await redlock.acquire("r");
    await before.release();
    await server.call("SET", NODE_KEYS.lastNumber, last);
    expect(await refusalOf(redlock, "r")).toMatch(SAYS);
    await expect.poll(() => server.call("EXISTS", "r")).toBe(0);
    await server.call("DEL", NODE_KEYS.lastNumber);
    expect((await redlock.acquire("r")).fencingToken).toBeGreaterThan(before.fencingToken);
  });

  it("refuses each acquisition of a batch, and executes the other operations", async () => {
    const server = await startNode();
    const redlock = openRedlock([server]);
    const [held, extended] = [await redlock.acquire("held"), await redlock.acquire("extended", { ttl: 5_000 })];
    await server.call("SET", NODE_KEYS.lastNumber, last);
    const asked = ["a", "b", "c"].map((resource) => refusalOf(redlock, resource));
    const done = [held.release(), extended.extend(9_000)];
    for (const refusal of await Promise.all(asked)) expect(refusal).toMatch(SAYS);
    expect((await Promise.all(done))[0]).toBe(true);
    expect(extended.remaining()).toBeGreaterThan(5_000);
    await expect.poll(() => server.call("EXISTS", "a", "b", "c", "held")).toBe(0);
  });

  it("refuses a script of another package", async () => {
    const server = await startNode();
    await server.call("SET", NODE_KEYS.lastNumber, last);
    const script = `local call = redis.call\n${embedded}\nreturn {pcall(lockIfFree, 'r', 'token', '5000')}`;
    const says = `local reply = (function() ${script} end)() return tostring(reply[2])`;
    expect(await server.call("EVAL", says, "0")).toMatch(SAYS);
    expect(await server.call("EXISTS", "r")).toBe(0);
  });
});

describe.each(WRONG)("one of several nodes whose register is %s", (register) => {
  it.each([1, 2])("has no vote: %i acquisitions at once", async (count) => {
    const nodes = await startNodes(3);
    const redlock = openRedlock(nodes);
    const resources = ["a", "b"].slice(0, count);
    const spoil = async (node: RedisServer | undefined): Promise<void> => {
      for (const each of resources) await node?.call("HSET", NODE_KEYS.hash, String(slotOf(each)), register);
    };
    await spoil(nodes[0]);
    for (const lock of await Promise.all(resources.map((each) => redlock.acquire(each)))) await lock.release();
    await spoil(nodes[1]);
    for (const refusal of await Promise.all(resources.map((each) => refusalOf(redlock, each)))) {
      expect(refusal).toMatch(SAYS);
    }
    await expect.poll(() => Promise.all(nodes.map((node) => node.call("EXISTS", ...resources)))).toEqual([0, 0, 0]);
  });
});

it.each(["9007199254740992", "90071992547409930", "5", [0, 0, 2 ** 53]].map((reply) => ({ reply })))(
  "a node that replies $reply has granted nothing, and receives a release",
  async ({ reply }) => {
    const node = new StubNode();
    node.answer = ([operation = ""]) => Promise.resolve(/^a/i.test(operation) ? reply : 1);
    const redlock = openRedlock([node]);
    expect(await refusalOf(redlock, "r")).toMatch(/unexpected reply|not a safe integer/);
    expect(node.operations.slice(0, 2).map((operation) => operation[0])).toEqual(["a", "r"]);
  },
);

it("a number that a node cannot have issued is not sent to it as its greatest number", () => {
  const requests = new BatchRequests(
    {
      isAlone: true,
      isCluster: false,
      quarantineMs: 1,
      grantTtlMs: 1_000,
      countsReceivers: true,
      waiterTtlMs: 60_000,
    },
    systemClock,
  );
  const of = vi.spyOn(requests, "of");
  const node = new StubNode("connecting");
  const batcher = new Batcher(node, 0, systemClock, requests, 1_000);
  onTestFinished(() => batcher.close());
  for (const number of [...WRONG.slice(1), "1795000000000000", "90071992547409930"]) batcher.numbers.note(number);
  node.become("ready");
  expect(of.mock.calls).toEqual([[[], "1795000000000000"]]);
});
