import { errorOf, ManualClock, startProxy } from "@x/test-support";
import { describe, expect, it, onTestFinished } from "vitest";
import { QuorumUnreachableError } from "../src/index.ts";
import { protocolOf } from "../src/protocol.ts";
import { everyNodeAnswers, openRedlock, startNodes } from "./support/nodes.ts";
import { granted, StubNode } from "./support/stub-node.ts";

describe("an attempt to acquire a lock", () => {
  it("fails early for nodes that have been silent, and counts them again as soon as they answer", async () => {
    const servers = await startNodes(3);
    const redlock = openRedlock(servers, { nodeTimeout: 300 });
    await everyNodeAnswers(redlock);
    await (await redlock.acquire("r")).release();
    servers[0]?.freeze();
    servers[1]?.freeze();
    onTestFinished(() => {
      servers[0]?.thaw();
      servers[1]?.thaw();
    });
    const first = await errorOf(redlock.tryAcquire("r"));
    expect(first).toBeInstanceOf(QuorumUnreachableError);
    const second = (await errorOf(redlock.tryAcquire("r"))) as QuorumUnreachableError;
    expect(second).toBeInstanceOf(QuorumUnreachableError);
    expect(second.votes.filter((vote) => vote.error?.startsWith("has not answered for")).length).toBe(2);
    servers[0]?.thaw();
    await expect.poll(async () => (await redlock.tryAcquire("r").catch(() => null))?.isHeld()).toBe(true);
  });

  it("never gives up on a node that answers while another node is down", async () => {
    const servers = await startNodes(3);
    const proxy = await startProxy({ path: servers[1]?.path ?? "" });
    onTestFinished(() => proxy.stop());
    const redlock = openRedlock([servers[0] ?? "", proxy.url, servers[2] ?? ""], { nodeTimeout: 300 });
    await everyNodeAnswers(redlock);
    await (await redlock.acquire("r")).release();
    proxy.delay(400, "down");
    for (let round = 0; round < 3; round += 1) await (await redlock.tryAcquire("r"))?.release();
    proxy.delay(0);
    await servers[0]?.kill();
    await expect.poll(async () => (await redlock.tryAcquire("r").catch(() => null))?.isHeld()).toBe(true);
  });

  it("leaves no waiter in line when a later attempt cannot be made", async () => {
    const [clock, node] = [new ManualClock(), new StubNode()];
    let isRandom = true;
    const token = (): string => {
      if (!isRandom) throw new Error("no randomness");
      return "0".repeat(40);
    };
    const redlock = openRedlock([node], { clock, random: { token, fraction: () => 0 } });
    const standsInLine = (): boolean => node.operations.some((operation) => operation.includes(" x:redlock:"));
    node.answer = (operations) =>
      Promise.resolve(
        operations.some((each) => /^[Aa]/.test(each)) ? ["1000000", 0, [0, 0, 9_000, 9_000]] : granted(operations),
      );
    const waiting = errorOf(redlock.acquire("r"));
    for (let turn = 0; turn < 100 && !standsInLine(); turn += 1) await clock.advance(10);
    isRandom = false;
    await clock.advance(200);
    expect(await waiting).toMatchObject({ message: "no randomness" });
    await clock.advance(1);
    expect(node.operations.at(-1)).toMatch(/^L/);
  });

  it("sends a release for a waiter only to nodes that grant the lock after a quorum has refused", async () => {
    const clock = new ManualClock();
    const nodes = Array.from({ length: 5 }, () => new StubNode());
    const held = ["1000000", 0, [0, 0, 60_000, 60_000]];
    const late: ((answer: unknown) => void)[] = [];
    for (const [index, node] of nodes.entries()) {
      node.answer = ([operation]) => {
        if (operation?.startsWith("A") !== true || index < 2) return Promise.resolve(held);
        return new Promise((resolve) => {
          late[index] = resolve;
        });
      };
    }
    const redlock = openRedlock(nodes, { clock, nodeTimeout: 300 });
    const waiting = errorOf(redlock.acquire("r", { timeout: 10_000 }));
    for (let turn = 0; turn < 100 && late[4] === undefined; turn += 1) await clock.advance(10);
    const token = nodes[4]?.operations.at(-1)?.split(" ")[1];
    const releases = (): readonly boolean[] => nodes.map(({ operations }) => operations.includes(`r${token}`));
    late[2]?.(held);
    await clock.advance(1);
    expect(releases()).toEqual([false, false, false, false, false]);
    late[3]?.(held);
    late[4]?.(["1000000", 0, 1]);
    await clock.advance(1);
    expect(releases()).toEqual([false, false, false, false, true]);
    for (const node of nodes) node.answer = () => Promise.resolve(held);
    for (const answer of late) answer?.(held);
    await clock.advance(10_000);
    await waiting;
  });

  it("sends a release for a waiter to a node that never answers", async () => {
    const clock = new ManualClock();
    const nodes = [new StubNode(), new StubNode(), new StubNode()];
    let answer: (() => void) | undefined;
    const answered = new Promise((_resolve, reject) => {
      answer = () => reject(new Error("closed"));
    });
    for (const [index, node] of nodes.entries()) {
      node.answer = ([operation]) => {
        if (index === 2 && operation?.startsWith("A") === true) return answered;
        return Promise.resolve(["1000000", 0, [0, 0, 60_000, 60_000]]);
      };
    }
    const redlock = openRedlock(nodes, { clock, nodeTimeout: 300 });
    const waiting = errorOf(redlock.acquire("r", { timeout: 10_000 }));
    const isReleased = (): boolean => {
      const asked = nodes[2]?.operations.find((operation) => operation.startsWith("A"));
      return nodes[2]?.operations.includes(`r${asked?.split(" ")[1]}`) === true;
    };
    for (let turn = 0; turn < 200 && !isReleased(); turn += 1) await clock.advance(10);
    expect(isReleased()).toBe(true);
    answer?.();
    await clock.advance(10_000);
    await waiting;
  });

  it("does not correct the clock when a refusal is read late", async () => {
    const [clock, node] = [new ManualClock(), new StubNode()];
    const redlock = openRedlock([node], { clock });
    const askedMs = clock.wallMs();
    const held = [0, 0, 1_000, 1_000];
    node.answer = async () => {
      await clock.advance(400);
      return [String((askedMs + 1) * 1_000), 0, held];
    };
    expect(await redlock.tryAcquire("r")).toBeNull();
    expect(protocolOf(redlock).placeAt(askedMs)).toBe(askedMs * 1_000);
    node.answer = (operations) => Promise.resolve(granted(operations));
  });

  const LATE = [
    { when: "the event loop was blocked", pass: (clock: ManualClock) => clock.block(400) },
    { when: "the machine was suspended", pass: (clock: ManualClock) => clock.suspend(400) },
  ];
  it.each(LATE)(
    "ignores an answer that is read after nodeTimeout because $when, and releases the key",
    async (late) => {
      const clock = new ManualClock();
      const nodes = [new StubNode(), new StubNode(), new StubNode()];
      for (const node of nodes) node.answer = (operations) => Promise.resolve(granted(operations));
      const redlock = openRedlock(nodes, { clock, nodeTimeout: 300 });
      const refused = errorOf(redlock.tryAcquire("r"));
      late.pass(clock);
      const error = await refused;
      expect(error).toBeInstanceOf(QuorumUnreachableError);
      expect((error as QuorumUnreachableError).message).toContain("answer was read 400 ms after the request");
      await clock.advance(1);
      for (const { operations } of nodes) expect(operations.at(-1)).toMatch(/^r/);
    },
  );

  it("counts an answer that is read just within nodeTimeout", async () => {
    const clock = new ManualClock();
    const nodes = [new StubNode(), new StubNode(), new StubNode()];
    for (const node of nodes) node.answer = (operations) => Promise.resolve(granted(operations));
    const redlock = openRedlock(nodes, { clock, nodeTimeout: 300 });
    const acquired = redlock.tryAcquire("r");
    clock.block(299);
    expect((await acquired)?.isHeld()).toBe(true);
  });

  it("leaves no waiter in line when it cannot begin", async () => {
    const random = { token: (): string => "0".repeat(40), fraction: (): number => 0 };
    const node = new StubNode();
    node.answer = (operations) => Promise.resolve(granted(operations));
    const redlock = openRedlock([node], { random });
    const broken = new Error("no entropy");
    random.token = (): string => {
      throw broken;
    };
    await expect(redlock.acquire("r")).rejects.toBe(broken);
    random.token = (): string => "1".repeat(40);
    await (await redlock.acquire("r", { timeout: 200 })).release();
  });
});
