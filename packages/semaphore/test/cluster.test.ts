/** Semaphores, read-write locks and latches on a Cluster of three masters: names on each master. */
import { Redlock } from "@x/redlock-core";
import { type RedisCluster, startCluster } from "@x/test-support";
import { Cluster } from "ioredis";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";
import { CountDownLatch, ReadWriteLock, Semaphore } from "../src/index.ts";

/** By their slots, one on each master: the first has up to 5460, the second up to 10922. */
const NAMES = ["shard:0", "shard:1", "shard:2", "shard:3", "shard:4", "shard:5"];

let cluster: RedisCluster;
let client: Cluster;

beforeAll(async () => {
  cluster = await startCluster();
  client = new Cluster(cluster.nodes.map(({ host, port }) => ({ host, port })));
  client.on("error", () => undefined);
});

afterAll(async () => {
  client.disconnect();
  await cluster.stop();
});

function openRedlock(options = {}): Redlock {
  const redlock = new Redlock(client, { nodeTimeout: 10_000, timeout: 60_000, ...options });
  onTestFinished(() => redlock.close());
  return redlock;
}

const masterOf = async (name: string): Promise<number> =>
  Math.floor(Number(await cluster.nodes[0]?.call("CLUSTER", "KEYSLOT", name)) / (16_384 / 3));

const patient = { timeout: 20_000 } as const;

describe("on a Cluster", () => {
  it("the test's names are on every master", async () => {
    const masters = await Promise.all(NAMES.map(masterOf));
    expect(new Set(masters)).toEqual(new Set([0, 1, 2]));
  });

  it("a semaphore grants its permits, wakes its waiters in order, and numbers its grants", async () => {
    const [here, there] = [openRedlock(), openRedlock()];
    await Promise.all(
      NAMES.map(async (name) => {
        const [ours, theirs] = [here, there].map((redlock) => new Semaphore(redlock, name, { permits: 2 }));
        if (ours === undefined || theirs === undefined) throw new Error("two processes");
        const first = await ours.acquire();
        const second = await theirs.acquire();
        expect(await ours.tryAcquire()).toBeNull();
        const order: string[] = [];
        const both = theirs.acquire({ permits: 2 }).then((permit) => {
          order.push("both");
          return permit;
        });
        await expect.poll(async () => (await ours.inspect()).waiting, patient).toBe(1);
        const one = ours.using((permit) => {
          order.push("one");
          return permit.fencingToken;
        });
        await expect.poll(async () => (await ours.inspect()).waiting, patient).toBe(2);
        await first.release();
        expect(await ours.tryAcquire()).toBeNull();
        await second.release();
        const granted = await both;
        expect(granted.fencingToken).toBeGreaterThan(second.fencingToken);
        expect(await granted.release()).toBe(true);
        expect(await one).toBeGreaterThan(granted.fencingToken);
        expect(order).toEqual(["both", "one"]);
      }),
    );
  });

  it("a semaphore never has more permits out than exist, under contention", async () => {
    const processes = [openRedlock(), openRedlock(), openRedlock()];
    await Promise.all(
      NAMES.map(async (name) => {
        let held = 0;
        let most = 0;
        const work = async (semaphore: Semaphore): Promise<void> => {
          await semaphore.using(async () => {
            held += 1;
            most = Math.max(most, held);
            await new Promise((resolve) => setTimeout(resolve, 2));
            held -= 1;
          });
        };
        const semaphores = processes.map((redlock) => new Semaphore(redlock, `busy:${name}`, { permits: 3 }));
        await Promise.all(semaphores.flatMap((semaphore) => Array.from({ length: 8 }, () => work(semaphore))));
        expect(most).toBeLessThanOrEqual(3);
        expect(held).toBe(0);
      }),
    );
  });

  it("a read-write lock excludes other holders from writers, and no reader overtakes a writer", async () => {
    const [here, there] = [openRedlock(), openRedlock()];
    await Promise.all(
      NAMES.map(async (name) => {
        const [ours, theirs] = [new ReadWriteLock(here, name), new ReadWriteLock(there, name)];
        const readers = [await ours.read.acquire(), await theirs.read.acquire()];
        const order: string[] = [];
        const writing = theirs.write.using(() => order.push("writer"));
        await expect.poll(async () => (await ours.inspect()).waiting, patient).toBe(1);
        const reading = ours.read.using(() => order.push("reader"));
        await expect.poll(async () => (await ours.inspect()).waiting, patient).toBe(2);
        await Promise.all(readers.map((reader) => reader.release()));
        await Promise.all([writing, reading]);
        expect(order).toEqual(["writer", "reader"]);
      }),
    );
  });

  it("a latch wakes its waiters on any master", async () => {
    const [here, there] = [openRedlock(), openRedlock()];
    await Promise.all(
      NAMES.map(async (name) => {
        await new CountDownLatch(here, name).set(2);
        const opened = new CountDownLatch(there, name).wait({ timeout: 60_000 });
        await new CountDownLatch(here, name).countDown("a");
        await new CountDownLatch(there, name).countDown("b");
        await opened;
      }),
    );
  });

  it("semaphores on the other masters continue while one master hangs", async () => {
    const redlock = openRedlock({ nodeTimeout: 500 });
    const semaphores = NAMES.map((name) => new Semaphore(redlock, `hang:${name}`, { permits: 1 }));
    for (const semaphore of semaphores) await (await semaphore.acquire()).release();
    await Promise.all(cluster.nodes.map((node) => node.call("CONFIG", "SET", "cluster-require-full-coverage", "no")));
    cluster.nodes[0]?.freeze();
    onTestFinished(() => cluster.nodes[0]?.thaw());
    const masters = await Promise.all(
      NAMES.map(async (name) =>
        Math.floor(Number(await cluster.nodes[1]?.call("CLUSTER", "KEYSLOT", `hang:${name}`)) / (16_384 / 3)),
      ),
    );
    const [lost, kept] = [0, 1].map((hung) => semaphores.filter((_, index) => (masters[index] === 0) === (hung === 0)));
    expect(lost?.length).toBeGreaterThan(0);
    expect(kept?.length).toBeGreaterThan(0);
    for (const semaphore of lost ?? [])
      await expect(semaphore.tryAcquire()).rejects.toThrow(/no quorum|did not answer/);
    for (const semaphore of kept ?? []) {
      await expect.poll(async () => (await semaphore.tryAcquire())?.isHeld(), { timeout: 20_000 }).toBe(true);
    }
  });
});
