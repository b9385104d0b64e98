import { startProxy, startRedisNodes } from "@x/test-support";
import { Redis } from "ioredis";
import { Redis as Redis5 } from "ioredis5";
import { expect, it, onTestFinished } from "vitest";
import { openRedlock, startNodes } from "./support/nodes.ts";

it("follows a master that a sentinel promotes, and waits for the end of the promoted node's quarantine", async () => {
  const [master, replica] = await startNodes(2);
  await replica?.call("REPLICAOF", "127.0.0.1", master?.port ?? 0);
  await expect.poll(() => replica?.call("INFO", "replication"), { timeout: 20_000 }).toMatch(/master_link_status:up/);
  const [sentinel] = await startRedisNodes(1, { sentinel: true });
  onTestFinished(() => sentinel?.stop());
  await sentinel?.call("SENTINEL", "MONITOR", "lock", "127.0.0.1", master?.port ?? 0, 1);
  await sentinel?.call("SENTINEL", "SET", "lock", "down-after-milliseconds", 500);
  await expect
    .poll(async () => String(await sentinel?.call("SENTINEL", "REPLICAS", "lock")), { timeout: 20_000 })
    .toContain(String(replica?.port));
  const client = new Redis({ sentinels: [{ host: "127.0.0.1", port: sentinel?.port ?? 0 }], name: "lock" });
  client.on("error", () => undefined);
  onTestFinished(() => client.disconnect());
  const redlock = openRedlock([client], { ttl: 2_000, maxTtl: 2_000, quarantine: true, timeout: 25_000 });
  const lock = await redlock.acquire("r");
  await lock.release();
  await master?.kill();
  await sentinel?.call("SENTINEL", "FAILOVER", "lock").catch(() => undefined);
  const next = await redlock.acquire("r");
  expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
  expect(String(await replica?.call("ROLE"))).toContain("master");
  expect(await replica?.call("GET", "r")).toBe(next.token);
});

it.each<[string, typeof Redis]>([
  ["ioredis", Redis],
  ["ioredis 5", Redis5 as unknown as typeof Redis],
])(
  "finds the master when the sentinels are back, even with a client that gives up on them (%s)",
  async (_name, Client) => {
    const [master] = await startNodes(1);
    const [sentinel] = await startRedisNodes(1, { sentinel: true });
    onTestFinished(() => sentinel?.stop());
    await sentinel?.call("SENTINEL", "MONITOR", "lock", "127.0.0.1", master?.port ?? 0, 1);
    const proxy = await startProxy({ host: "127.0.0.1", port: sentinel?.port ?? 0 });
    onTestFinished(() => proxy.stop());
    proxy.refuse();
    const client = new Client({
      sentinels: [{ host: "127.0.0.1", port: proxy.port }],
      name: "lock",
      lazyConnect: true,
      sentinelRetryStrategy: () => null,
    });
    onTestFinished(() => client.disconnect());
    const redlock = openRedlock([client], { nodeTimeout: 1_000 });
    await expect(redlock.tryAcquire("r")).rejects.toThrow("no quorum");
    proxy.heal();
    await expect.poll(async () => await redlock.tryAcquire("r").catch(() => null)).not.toBeNull();
  },
);
