/** One primary with a replica, as in managed services: the replica is promoted without the last grant. */
import { errorOf, type RedisServer, startProxy } from "@x/test-support";
import { describe, expect, it, onTestFinished } from "vitest";
import { LockHeldError, type Redlock, type RedlockOptions } from "../src/index.ts";
import { openRedlock, startNodes } from "./support/nodes.ts";

interface Service {
  readonly primary: RedisServer;
  readonly replica: RedisServer;
  /** Two processes that know one address. */
  readonly clients: readonly [Redlock, Redlock];
  /** Stops the replication: later writes do not reach the replica. */
  readonly loseReplication: () => Promise<void>;
  /** The address leads to the replica, a primary from now on. */
  readonly promote: () => Promise<void>;
}

async function startService(options: RedlockOptions): Promise<Service> {
  const [primary, replica] = (await startNodes(2)) as [RedisServer, RedisServer];
  await replica.call("REPLICAOF", primary.host, primary.port);
  await expect.poll(() => replica.call("INFO", "replication"), { timeout: 20_000 }).toMatch(/master_link_status:up/);
  const target = { host: primary.host, port: primary.port };
  const proxy = await startProxy(target);
  onTestFinished(() => proxy.stop());
  const open = (): Redlock => openRedlock([proxy.url], { ttl: 4_000, maxTtl: 4_000, timeout: 60_000, ...options });
  return {
    primary,
    replica,
    clients: [open(), open()],
    loseReplication: async () => void (await replica.call("REPLICAOF", "NO", "ONE")),
    promote: async () => {
      target.port = replica.port;
      await primary.kill();
      proxy.drop();
    },
  };
}

describe("a failover to a replica that does not have the lock", () => {
  it("grants the lock twice without quarantine, which is why check() warns of replicas", async () => {
    const lasting = { ttl: 60_000, maxTtl: 60_000 };
    const { clients, loseReplication, promote } = await startService({ quarantine: false, ...lasting });
    const [a, b] = clients;
    expect((await a.check()).map(({ code }) => code)).toContain("HAS_REPLICAS");
    await loseReplication();
    const lock = await a.acquire("r");
    await promote();
    const other = await b.acquire("r");
    expect([lock.isHeld(), other.isHeld()]).toEqual([true, true]);
  });

  it.each([false, true])(
    "grants the lock to no other client with quarantine before the holder has lost it; it extends: %s",
    async (autoExtend) => {
      const { clients, replica, loseReplication, promote } = await startService({ quarantine: true });
      const [a, b] = clients;
      for (const client of clients) await (await client.acquire("r")).release();
      await loseReplication();
      const lock = await a.acquire("r", { autoExtend });
      const queued = await b.acquire("r", { timeout: 500 }).catch((error: unknown) => error);
      expect(queued).toBeInstanceOf(LockHeldError);
      await promote();
      expect(lock.isHeld()).toBe(true);
      expect(await errorOf(b.tryAcquire("r"))).toMatchObject({ code: "QUORUM_UNREACHABLE" });
      let wasHeld = true;
      const next = b.acquire("r").then((granted) => {
        wasHeld = lock.isHeld();
        return granted;
      });
      const granted = await next;
      expect(wasHeld).toBe(false);
      expect(granted.fencingToken).toBeGreaterThan(lock.fencingToken);
      expect(await replica.call("GET", "r")).toBe(granted.token);
    },
  );

  it("ends the lock of a holder on the isolated primary, if the primary needs a replica to write", async () => {
    const { clients, primary, loseReplication } = await startService({ quarantine: true });
    const lock = await clients[0].acquire("r", { autoExtend: true });
    await primary.call("CONFIG", "SET", "min-replicas-to-write", "1");
    await primary.call("CONFIG", "SET", "min-replicas-max-lag", "1");
    await loseReplication();
    await expect.poll(() => lock.isHeld(), { timeout: 60_000 }).toBe(false);
    expect(lock.signal.reason).toMatchObject({ reason: "expired" });
    await expect
      .poll(() => errorOf(clients[0].tryAcquire("r")))
      .toMatchObject({
        message: expect.stringContaining("NOREPLICAS") as string,
      });
  });
});
