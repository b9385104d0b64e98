/** node-redlock 5's known defects, each of which must be gone: B1 to B8, as its reports and its source have them. */
import { setTimeout as delay, setImmediate as immediate } from "node:timers/promises";
import { errorOf, startProxy } from "@x/test-support";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { ExecutionError, type RedlockAbortSignal } from "../src/index.ts";
import {
  clientOf,
  executionErrorOf,
  lockUntilCalled,
  nodes,
  open,
  votesAgainst,
  votesOf,
} from "./support/node-redlock-5.ts";

describe("node-redlock's defects are gone", () => {
  it("B1: a tie of an even number of clients is decided", async () => {
    const { clients } = await nodes(2);
    const redlock = open(clients, { retryCount: 0 });
    await (await redlock.acquire(["warm"], 10_000)).release();
    await clients[1]?.set("tie", "another's");
    const error = await executionErrorOf(redlock.acquire(["tie"], 10_000));
    expect(await votesOf(error, clients)).toEqual([
      { membershipSize: 2, quorumSize: 2, votesFor: [0], votesAgainst: [1] },
    ]);
  });

  it("B1: clients that hang do not make a call hang", async () => {
    const { servers, clients } = await nodes(3);
    await Promise.all(clients.map((client) => client.ping()));
    const redlock = open(clients, { retryCount: 1, retryDelay: 10, retryJitter: 5, nodeTimeout: 100 });
    await (await redlock.acquire(["warm"], 10_000)).release();
    for (const server of servers.slice(1)) server.freeze();
    onTestFinished(() => {
      for (const server of servers) server.thaw();
    });
    const error = await executionErrorOf(redlock.acquire(["hung"], 10_000));
    expect(error.attempts).toHaveLength(2);
    const votes = await votesAgainst(error);
    expect(votes).toHaveLength(4);
    for (const vote of votes) expect(vote.message).toContain("no answer within 100 ms");
  });

  it("B1: connected clients that hang do not make a call hang, even if no other connection is open", async () => {
    const { servers, clients } = await nodes(1);
    await clients[0]?.ping();
    servers[0]?.freeze();
    onTestFinished(() => servers[0]?.thaw());
    const redlock = open(clients, { retryCount: 0 });
    await executionErrorOf(redlock.acquire(["hung"], 10_000));
    expect(clients[0]?.status).toBe("ready");
  });

  it("B2: the keys of a failed attempt do not block the next attempt", async () => {
    const { servers, clients } = await nodes(3);
    const redlock = open(clients, { retryDelay: 50, retryJitter: 0, retryCount: 100, nodeTimeout: 100 });
    await (await redlock.acquire(["warm"], 10_000)).release();
    await clients[2]?.set("self", "another's");
    servers[1]?.freeze();
    const acquired = redlock.acquire(["self"], 10_000);
    await expect.poll(() => clients[0]?.get("self")).toEqual(expect.any(String));
    await expect.poll(() => clients[0]?.get("self")).toBeNull();
    servers[1]?.thaw();
    const lock = await acquired;
    expect(lock.attempts.length).toBeGreaterThan(1);
    expect(await clients[0]?.get("self")).toBe(lock.value);
    expect(await clients[1]?.get("self")).toBe(lock.value);
  });

  it("B3: a lock that has expired by the time of the quorum is not returned", async () => {
    const { servers } = await nodes(1);
    const proxy = await startProxy({ path: servers[0]?.path ?? "" });
    onTestFinished(() => proxy.stop());
    const client = clientOf({ host: proxy.host, port: proxy.port });
    const redlock = open([client], { retryCount: 0, nodeTimeout: 5_000 });
    await (await redlock.acquire(["warm"], 10_000)).release();
    proxy.delay(400, "down");
    await executionErrorOf(redlock.acquire(["late"], 300));
    proxy.delay(0, "down");
  });

  it("B3: a lock acquired after retries is valid from its last attempt", async () => {
    const { clients } = await nodes(1);
    await clients[0]?.set("retried", "another's", "PX", 3_500);
    const redlock = open(clients, { retryDelay: 100, retryJitter: 0, retryCount: 50 });
    const lock = await redlock.acquire(["retried"], 3_000);
    expect(lock.expiration).toBeGreaterThan(Date.now());
    expect((await lock.extend(10_000)).expiration).toBeGreaterThan(lock.expiration);
  });

  it("B4: `using` settles as its routine does if the lock is lost at the end", async () => {
    const { clients } = await nodes(1);
    const redlock = open(clients);
    const result = await redlock.using(["gone"], 10_000, async () => {
      await clients[0]?.del("gone");
      return "result";
    });
    expect(result).toBe("result");
    const failure = new Error("the routine's own");
    const error = await errorOf(
      redlock.using(["gone"], 10_000, async () => {
        await clients[0]?.del("gone");
        throw failure;
      }),
    );
    expect(error).toBe(failure);
  });

  it("B4: releasing a lost lock rejects immediately, without retries", async () => {
    const { clients } = await nodes(3);
    const redlock = open(clients, { retryCount: -1 });
    const lock = await redlock.acquire(["gone"], 10_000);
    await Promise.all(clients.map((client) => client.del("gone")));
    const error = await executionErrorOf(lock.release());
    expect(error.attempts).toHaveLength(1);
  });

  it("B5: nothing is extended or aborted after the routine has ended", async () => {
    const { servers } = await nodes(1);
    const proxy = await startProxy({ path: servers[0]?.path ?? "" });
    onTestFinished(() => proxy.stop());
    const client = clientOf({ host: proxy.host, port: proxy.port });
    const redlock = open([client], { nodeTimeout: 5_000 });
    let seen: RedlockAbortSignal | undefined;
    const scripts = async (): Promise<number> => (await servers[0]?.calls("evalsha")) ?? 0;
    await redlock.using(["b5"], 2_000, { automaticExtensionThreshold: 1_900 }, async (signal) => {
      seen = signal;
      // The first extension is under way when the routine ends.
      const sent = await scripts();
      proxy.delay(300, "down");
      await expect.poll(scripts).toBeGreaterThan(sent);
    });
    proxy.delay(0);
    // Longer than the lease, whose end would abort the signal.
    await delay(2_200);
    expect(seen?.aborted).toBe(false);
    expect(await servers[0]?.call("GET", "b5")).toBeNull();
  });

  it("B6: the signal aborts when the validity ends, even if no client answers", async () => {
    const { servers, clients } = await nodes(1);
    const redlock = open(clients);
    const error = await redlock.using(["b6"], 800, { automaticExtensionThreshold: 400 }, async (signal) => {
      servers[0]?.freeze();
      try {
        await abortOf(signal);
        return signal.error;
      } finally {
        servers[0]?.thaw();
      }
    });
    expect(error).toBeInstanceOf(ExecutionError);
  });

  it("B6: the signal aborts soon after the machine was suspended, which timers do not notice", async () => {
    const { clients } = await nodes(1);
    await open(clients).using(["b6"], 60_000, async (signal) => {
      const { now } = Date;
      vi.spyOn(Date, "now").mockImplementation(() => now() + 3_600_000);
      onTestFinished(() => void vi.restoreAllMocks());
      await expect.poll(() => signal.aborted).toBe(true);
    });
  });

  it("B6: extensions that fail immediately are repeated with pauses, until the lock is lost", async () => {
    const { servers, clients } = await nodes(1);
    const redlock = open(clients);
    const errors: Error[] = [];
    redlock.on("error", (error: Error) => errors.push(error));
    await redlock.using(["b6b"], 1_000, { automaticExtensionThreshold: 800 }, async (signal) => {
      await servers[0]?.kill();
      await abortOf(signal);
      expect(signal.reason).toBe(signal.error);
      expect(signal.error).toBeInstanceOf(ExecutionError);
    });
    expect(errors.length).toBeGreaterThan(2);
    expect(errors.length).toBeLessThan(100);
  });

  it("B6: the signal aborts immediately when a quorum reports that the lock is lost", async () => {
    const { clients } = await nodes(1);
    const redlock = open(clients);
    const aborted = await redlock.using(["b6c"], 60_000, { automaticExtensionThreshold: 59_800 }, async (signal) => {
      await clients[0]?.set("b6c", "another's");
      await abortOf(signal);
      return signal.aborted;
    });
    expect(aborted).toBe(true);
    expect(await clients[0]?.get("b6c")).toBe("another's");
  });

  it("B7: contention emits no `error` event, and causes no unhandled rejection", async () => {
    const unhandled = vi.fn<(reason: unknown) => void>();
    process.on("unhandledRejection", unhandled);
    onTestFinished(() => void process.removeListener("unhandledRejection", unhandled));
    const { servers, clients } = await nodes(3);
    const redlock = open(clients, { retryCount: 2, retryDelay: 20, retryJitter: 10 });
    const errors = vi.fn<(error: Error) => void>();
    redlock.on("error", errors);
    const lock = await redlock.acquire(["b7"], 10_000);
    await executionErrorOf(redlock.acquire(["b7"], 10_000));
    expect(errors).not.toHaveBeenCalled();
    await lock.release();
    await servers[0]?.kill();
    await lockUntilCalled(redlock, "b7", errors);
    await immediate();
    expect(unhandled).not.toHaveBeenCalled();
  });

  it("B8: a flushed script cache leaves no orphaned key behind", async () => {
    const { clients } = await nodes(3);
    const redlock = open(clients, { retryCount: 3, retryDelay: 20, retryJitter: 10 });
    await (await redlock.acquire(["warm"], 10_000)).release();
    await Promise.all(clients.map((client) => client.script("FLUSH")));
    const lock = await redlock.acquire(["b8"], 10_000);
    await lock.release();
    for (const client of clients) expect(await client.get("b8")).toBeNull();
  });
});

/** Resolves when the signal is, or was already, aborted. */
async function abortOf(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return;
  await new Promise((resolve) => signal.addEventListener("abort", resolve, { once: true }));
}
