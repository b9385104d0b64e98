/** The promises of a read-write lock on one real node and on three. */
import { LockHeldError, QuorumUnreachableError, ReentrancyError, systemClock } from "@x/redlock-core";
import { type RedisServer, startRedisNodes } from "@x/test-support";
import { Redis } from "ioredis";
import { describe, expect, it, onTestFinished } from "vitest";
import { ReadWriteLock } from "../src/index.ts";
import { aName, openRedlock, useServers } from "./support/redlock.ts";

describe.each([1, 3])("a read-write lock on %i", (nodeCount) => {
  const servers = useServers(nodeCount);

  function twoOf(): readonly [ReadWriteLock, ReadWriteLock] {
    const name = aName();
    return [new ReadWriteLock(openRedlock(servers()), name), new ReadWriteLock(openRedlock(servers()), name)];
  }

  it("lets readers share, and excludes writers meanwhile", async () => {
    const [here, there] = twoOf();
    const readers = [await here.read.acquire(), await there.read.acquire(), await there.read.acquire()];
    expect(await here.write.tryAcquire()).toBeNull();
    expect(await here.inspect()).toMatchObject({ readers: 3, isWriting: false });
    await Promise.all(readers.map((reader) => reader.release()));
    const writer = await here.write.tryAcquire();
    expect(writer?.isHeld()).toBe(true);
    expect(await there.read.tryAcquire()).toBeNull();
    expect(await there.write.tryAcquire()).toBeNull();
    expect(await there.inspect()).toMatchObject({ readers: 0, isWriting: true });
  });

  it("lets no reader overtake a waiting writer", async () => {
    const [here, there] = twoOf();
    const reader = await here.read.acquire();
    const order: string[] = [];
    const writing = there.write.using(() => void order.push("writer"));
    await expect.poll(async () => (await here.inspect()).waiting, { timeout: 20_000 }).toBe(1);
    expect(await here.read.tryAcquire()).toBeNull();
    const reading = here.read.using(() => void order.push("reader"));
    await expect.poll(async () => (await here.inspect()).waiting, { timeout: 20_000 }).toBe(2);
    await reader.release();
    await Promise.all([writing, reading]);
    expect(order).toEqual(["writer", "reader"]);
  });

  it("grants all readers together that waited behind a writer", async () => {
    const [here, there] = twoOf();
    const writer = await here.write.acquire();
    // Two callers of one process have one place in line.
    const readers = [there.read.acquire(), there.read.acquire(), here.read.acquire()];
    await expect.poll(async () => (await here.inspect()).waiting, { timeout: 20_000 }).toBe(2);
    await writer.release();
    const held = await Promise.all(readers);
    expect(await here.inspect()).toMatchObject({ readers: 3 });
    await expect.poll(async () => (await here.inspect()).waiting, { timeout: 20_000 }).toBe(0);
    for (const reader of held) expect(reader.fencingToken).toBeGreaterThan(writer.fencingToken);
  });

  it.each([
    ["read", "read"],
    ["read", "write"],
    ["write", "read"],
    ["write", "write"],
  ] as const)("refuses a call that would wait for its caller: %s, and %s inside it", async (outer, inner) => {
    const [here] = twoOf();
    await here[outer].using(async () => {
      const nested = here[inner].using(() => expect.unreachable(), { timeout: Number.POSITIVE_INFINITY });
      const error = await nested.catch((thrown: unknown) => thrown);
      expect(error).toBeInstanceOf(ReentrancyError);
      expect(String(error)).toContain(`read-write lock "${here.name}" is held by the using() around this one`);
    });
  });

  it("names the kind of the holders in a refusal", async () => {
    const [here, there] = twoOf();
    await here.read.acquire();
    const error = await there.write.acquire({ timeout: 20 }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(LockHeldError);
    expect(String(error)).toMatch(/was not free to write: 1 read,/);
  });
});

/** A client for an operator's commands to a node, and for its data. */
function commands(node: RedisServer): Redis {
  const client = new Redis({ path: node.path });
  onTestFinished(() => client.disconnect());
  return client;
}

async function startThree(): Promise<readonly RedisServer[]> {
  const servers = await startRedisNodes(3);
  onTestFinished(async () => {
    await Promise.all(servers.map((server) => server.stop()));
  });
  return servers;
}

describe("a read-write lock on several nodes", () => {
  const servers = useServers(3);

  it("numbers writers in increasing order, and readers between the previous and the next writer", async () => {
    const [here, there] = [openRedlock(servers()), openRedlock(servers())];
    const name = aName();
    const tokens: number[] = [];
    for (const redlock of [here, there, here, there]) {
      const { read, write } = new ReadWriteLock(redlock, name);
      for (const side of [write, read]) await side.using(({ fencingToken }) => tokens.push(fencingToken));
    }
    expect(tokens).toEqual([...new Set(tokens)].toSorted((a, b) => a - b));
    expect((await new ReadWriteLock(here, name).inspect()).fencingToken).toBe(tokens.at(-1));
  });

  it("gives a writer a greater token than earlier writers, near the nodes' time, with any clock", async () => {
    let behindMs = 2_000;
    const name = aName();
    const lock = (): ReadWriteLock => {
      const clock = { ...systemClock, wallMs: () => systemClock.wallMs() - behindMs };
      return new ReadWriteLock(openRedlock(servers(), { clock }), name);
    };
    const { read, write } = lock();
    const first = await write.using(({ fencingToken }) => fencingToken);
    behindMs = 0;
    const reader = await read.using(({ fencingToken }) => fencingToken);
    expect(reader).toBeGreaterThan(first);
    behindMs = 1_000;
    const writer = await lock().write.using(({ fencingToken }) => fencingToken);
    expect(writer).toBeGreaterThan(reader);
    const HOUR_MS = 3_600_000;
    behindMs = -HOUR_MS;
    const fast = await lock().write.using(({ fencingToken }) => fencingToken);
    expect(fast).toBeGreaterThan(writer);
    expect(fast / 1_000).toBeLessThan(systemClock.wallMs() + HOUR_MS / 2);
  });

  it("leaves no key on any node, neither of holders nor of waiters", async () => {
    const name = aName();
    const locks = Array.from({ length: 3 }, () => new ReadWriteLock(openRedlock(servers()), name));
    let writers = 0;
    await Promise.all(
      locks.flatMap(({ read, write }) => [
        write.using(async () => {
          writers += 1;
          expect(writers).toBe(1);
          await commands(servers()[0] as RedisServer).ping();
          writers -= 1;
        }),
        read.using(() => expect(writers).toBe(0)),
      ]),
    );
    for (const server of servers()) {
      const keys = [`{${name}}:readwrite:holders`, `{${name}}:readwrite:waiters`];
      await expect.poll(() => commands(server).exists(...keys), { timeout: 20_000 }).toBe(0);
    }
  });

  it("is granted and extended while a minority of the nodes is down, and refused without a majority", async () => {
    const nodes = await startThree();
    const { read, write } = new ReadWriteLock(openRedlock(nodes, { nodeTimeout: 500 }), "r");
    const writer = await write.acquire();
    await nodes[0]?.stop();
    await writer.extend();
    expect(await read.tryAcquire()).toBeNull();
    await writer.release();
    const reader = await read.acquire();
    expect(reader.fencingToken).toBeGreaterThan(writer.fencingToken);
    await nodes[1]?.stop();
    await expect(write.acquire({ timeout: 0 })).rejects.toBeInstanceOf(QuorumUnreachableError);
    await expect(reader.extend()).rejects.toBeInstanceOf(QuorumUnreachableError);
  });

  it("survives the loss of every node's data, one node after another", async () => {
    const nodes = await startThree();
    const { write } = new ReadWriteLock(openRedlock(nodes), "w");
    const writer = await write.acquire();
    for (const node of nodes) {
      await commands(node).flushall();
      await writer.extend();
    }
    expect(writer.isHeld()).toBe(true);
    for (const node of nodes)
      await expect.poll(() => commands(node).zcard("{w}:readwrite:holders"), { timeout: 20_000 }).toBe(1);
  });
});
