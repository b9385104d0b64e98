import { startProxy, startRedis } from "@x/test-support";
import { Redis } from "ioredis";
import { expect, it } from "vitest";

function connect(url: string, more: { commandTimeout?: number } = {}): Redis {
  const client = new Redis(url, {
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
    enableReadyCheck: false,
    ...more,
  });
  return client.on("error", () => {});
}

it("passes everything on, byte for byte", async () => {
  await using server = await startRedis();
  await using proxy = await startProxy(server);
  const client = connect(proxy.url);
  const value = "x".repeat(1_000_000);
  await client.set("a", value);
  expect(await client.get("a")).toBe(value);
  expect(proxy.connectionCount).toBe(1);
  expect(proxy.forwardedBytes("up")).toBeGreaterThan(1_000_000);
  expect(proxy.forwardedBytes("down")).toBeGreaterThan(1_000_000);
  client.disconnect();
  await expect.poll(() => proxy.connectionCount).toBe(0);
});

it("delays in order, even when the delay shrinks", async () => {
  await using server = await startRedis();
  await using proxy = await startProxy(server);
  const client = connect(proxy.url);
  await client.ping();
  const answered: string[] = [];
  const ask = async (name: string): Promise<void> => {
    await client.rpush("order", name);
    answered.push(name);
  };
  proxy.delay(150);
  const slow = ask("slow");
  await expect.poll(() => proxy.forwardedBytes("up")).toBeGreaterThan(0);
  proxy.delay(0);
  const quick = ask("quick");
  await Promise.all([slow, quick]);
  expect(answered).toEqual(["slow", "quick"]);
  expect(await client.lrange("order", 0, -1)).toEqual(["slow", "quick"]);
  client.disconnect();
});

it("swallows requests, replies or both, and keeps the connection open", async () => {
  await using server = await startRedis();
  await using proxy = await startProxy(server);
  const client = connect(proxy.url, { commandTimeout: 150 });
  await client.ping();
  proxy.blackhole("down");
  await expect(client.set("reply-lost", 1)).rejects.toThrow("timed out");
  expect(await server.call("GET", "reply-lost")).toBe("1");
  proxy.blackhole("up");
  await expect(client.set("request-lost", 1)).rejects.toThrow("timed out");
  expect(await server.call("GET", "request-lost")).toBeNull();
  expect(proxy.connectionCount).toBe(1);
  client.disconnect();
});

it("drops connections, and accepts new ones", async () => {
  await using server = await startRedis();
  await using proxy = await startProxy(server);
  const client = connect(proxy.url);
  await client.ping();
  proxy.drop();
  await expect(client.ping()).rejects.toThrow();
  const next = connect(proxy.url);
  expect(await next.ping()).toBe("PONG");
  next.disconnect();
});

it("refuses connections until healed", async () => {
  await using server = await startRedis();
  await using proxy = await startProxy(server);
  proxy.refuse();
  await expect(connect(proxy.url).ping()).rejects.toThrow();
  proxy.heal();
  const next = connect(proxy.url);
  expect(await next.ping()).toBe("PONG");
  next.disconnect();
});

it("half-closes: the client gets no reply, but the server receives the request", async () => {
  await using server = await startRedis();
  await using proxy = await startProxy({ path: server.path });
  const client = connect(proxy.url);
  await client.ping();
  const ended = new Promise((resolve) => client.once("end", resolve));
  proxy.halfClose();
  await ended;
  await expect(client.ping()).rejects.toThrow();
  await expect.poll(() => proxy.connectionCount).toBe(0);
});
