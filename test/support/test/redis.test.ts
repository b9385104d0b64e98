import { once } from "node:events";
import { existsSync } from "node:fs";
import { createServer } from "node:net";
import { dirname } from "node:path";
import {
  RedisServer,
  runningProcesses,
  startCluster,
  startRedis,
  startRedisNodes,
  temporaryFolder,
} from "@x/test-support";
import { Cluster, Redis } from "ioredis";
import { expect, it, vi } from "vitest";
import { firstPort, portCount } from "../src/ports.ts";

it("answers on the unix socket and on the loopback port", async () => {
  await using server = await startRedis();
  const overTcp = new Redis(server.url);
  const overSocket = new Redis({ path: server.path });
  await overTcp.set("a", "1");
  expect(await overSocket.get("a")).toBe("1");
  overTcp.disconnect();
  overSocket.disconnect();
});

it("forgets all data on a restart, on the same port", async () => {
  await using server = await startRedis();
  const { port } = server;
  await server.call("SET", "a", "1");
  await server.restart();
  expect(await server.call("GET", "a")).toBeNull();
  expect(server.port).toBe(port);
});

it("keeps its port while it is down, so that no other server takes the port by chance", async () => {
  await using server = await startRedis();
  await server.kill();
  // The next server tries this port first, and another port afterwards.
  vi.spyOn(Math, "random").mockReturnValueOnce((server.port - firstPort + 0.5) / portCount);
  await using other = await startRedis();
  expect(other.port).not.toBe(server.port);
  await server.start();
  expect(await server.call("PING")).toBe("PONG");
});

it("reports that its port was taken while it was down, and starts once the port is free", async () => {
  await using server = await startRedis();
  await server.kill();
  const squatter = createServer().listen(server.port, server.host);
  await once(squatter, "listening");
  await expect(server.start()).rejects.toThrow(/address already in use|failed listening/i);
  const restarted = server.restart();
  squatter.close();
  await restarted;
  expect(await server.call("PING")).toBe("PONG");
});

it("keeps its data over SIGKILL with persistence", async () => {
  await using server = await startRedis({ persistence: true });
  await server.call("SET", "a", "1");
  await server.restart();
  expect(await server.call("GET", "a")).toBe("1");
});

it("deletes its data on flush", async () => {
  await using server = await startRedis();
  await server.call("SET", "a", "1");
  await server.flush();
  expect(await server.call("DBSIZE")).toBe(0);
});

it("answers nothing while frozen, and every command once thawed", async () => {
  await using server = await startRedis();
  const client = new Redis(server.url);
  await client.ping();
  server.freeze();
  let answered = false;
  const pong = client.ping().then((reply) => {
    answered = true;
    return reply;
  });
  await expect(
    new Redis(server.url, { commandTimeout: 100, retryStrategy: () => null, maxRetriesPerRequest: 0 })
      .on("error", () => {})
      .ping(),
  ).rejects.toThrow();
  expect(answered).toBe(false);
  server.thaw();
  expect(await pong).toBe("PONG");
  client.disconnect();
});

it("passes arguments on, and reports why a server does not start", async () => {
  await using server = await startRedis({ args: ["--maxmemory-policy", "allkeys-lru"] });
  expect(await server.call("CONFIG", "GET", "maxmemory-policy")).toEqual(["maxmemory-policy", "allkeys-lru"]);
  await expect(startRedis({ args: ["--no-such-option", "1"] })).rejects.toThrow(/did not start[^]*no-such-option/i);
});

it("reports every time that a port is taken", async () => {
  await using server = await startRedis();
  const other = new RedisServer(
    dirname(server.path),
    { port: server.port, [Symbol.dispose]: () => {} },
    { args: ["--unixsocket", ""] },
  );
  for (let time = 0; time < 10; time += 1)
    await expect(other.start()).rejects.toThrow(/already in use|Failed listening/);
});

it("leaves no process and no folder after stop, even when frozen", async () => {
  const servers = await startRedisNodes(2);
  const folders = servers.map((server) => dirname(server.path));
  expect(runningProcesses()).toHaveLength(2);
  expect(folders.every((folder) => folder.startsWith(temporaryFolder()) && existsSync(folder))).toBe(true);
  servers[0]?.freeze();
  await Promise.all(servers.map((server) => server.stop()));
  expect(runningProcesses()).toEqual([]);
  expect(folders.some((folder) => existsSync(folder))).toBe(false);
});

it("forms a cluster of three masters that stores keys on all masters", async () => {
  await using cluster = await startCluster();
  const client = new Cluster(cluster.nodes.map(({ host, port }) => ({ host, port })));
  for (let n = 0; n < 30; n++) await client.set(`key:${n}`, n);
  const sizes = await Promise.all(cluster.nodes.map((node) => node.call("DBSIZE")));
  expect(sizes.every((size) => Number(size) > 0)).toBe(true);
  expect(sizes.reduce<number>((sum, size) => sum + Number(size), 0)).toBe(30);
  client.disconnect();
});
