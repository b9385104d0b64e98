/** Servers that are neither Redis nor Valkey, or that refuse a command: a proxy answers as they do. */
import { errorOf, type RedisServer, startVendorProxy, type VendorRules } from "@x/test-support";
import { createClient } from "redis";
import { describe, expect, it, onTestFinished } from "vitest";
import { readInfo, serverOf, serverRefusal } from "../src/rules/server.ts";
import { openRedlock, startNodes } from "./support/nodes.ts";

async function startVendor(rules: VendorRules): Promise<{ readonly server: RedisServer; readonly url: string }> {
  const [server] = (await startNodes(1, { args: ["--appendonly", "yes"] })) as [RedisServer];
  const proxy = await startVendorProxy(server, rules);
  onTestFinished(() => proxy.stop());
  return { server, url: proxy.url };
}

/** Clients of the server at a URL, by name. */
const clients: Readonly<Record<string, (url: string) => string | ReturnType<typeof createClient>>> = {
  ioredis: (url) => url,
  "node-redis": (url) => createClient({ url }),
};

const withField = (field: string) => (text: string) => text.replace(/^redis_version:/m, `${field}\r\nredis_version:`);
const withoutRunId = (text: string): string => text.replace(/^run_id:.*\r\n/m, "");
const dragonfly = (text: string): string => withoutRunId(withField("dragonfly_version:df-v1.40.1")(text));

describe("a server whose scripts are not atomic", () => {
  it.each(Object.keys(clients))("grants no lock, not even with the first request: %s", async (client) => {
    const { server, url } = await startVendor({ info: withField("garnet_version:2.1.4") });
    const redlock = openRedlock([clients[client]?.(url) ?? ""], { timeout: 0 });
    for (const call of [redlock.acquire("r"), redlock.tryAcquire("s")]) {
      expect(await errorOf(call)).toMatchObject({
        message: expect.stringContaining("NOT_ATOMIC this server is Garnet"),
      });
    }
    expect(await redlock.check()).toMatchObject([
      { code: "NOT_ATOMIC", severity: "error", message: expect.stringContaining("Garnet 2.1.4") },
    ]);
    await server.call("FLUSHALL");
    expect(await errorOf(redlock.acquire("r"))).toMatchObject({ code: "QUORUM_UNREACHABLE" });
    expect(await server.call("GET", "r")).toBeNull();
  });

  it("is only a missing vote among other nodes", async () => {
    const { url } = await startVendor({ info: withField("garnet_version:2.1.4") });
    const redlock = openRedlock([url, ...(await startNodes(2))], { timeout: 0 });
    await (await redlock.acquire("r")).release();
    expect(await redlock.check()).toContainEqual(expect.objectContaining({ code: "NOT_ATOMIC", severity: "warning" }));
  });
});

describe("a server that refuses to load scripts", () => {
  const reason = "NOPERM this user has no permissions to run the 'script|load' command";

  it.each(Object.keys(clients))("is named with its reason: %s", async (client) => {
    const { url } = await startVendor({ refused: { SCRIPT: reason } });
    const redlock = openRedlock([clients[client]?.(url) ?? ""], { timeout: 0 });
    const named = expect.stringContaining(
      `SCRIPT_REFUSED the server has not loaded a script of locks: ${reason}`,
    ) as string;
    expect(await errorOf(redlock.acquire("r"))).toMatchObject({ message: named });
    expect(await redlock.check()).toMatchObject([{ code: "REFUSED", severity: "error", message: named }]);
  });
});

describe("check", () => {
  it.each([
    ["Dragonfly 1.40.1", withField("dragonfly_version:df-v1.40.1")],
    ["Upstash 1.2", withField("upstash_version:1.2")],
    ["KeyDB 6.3.4", (text: string) => text.replace(/^redis_version:.*$/m, "redis_version:6.3.4")],
  ])("names a server that the tests have not seen: %s", async (name, info) => {
    const { url } = await startVendor({ info });
    expect(await openRedlock([url]).check()).toMatchObject([
      { code: "OTHER_SERVER", severity: "info", message: expect.stringContaining(`(${name}) is neither Redis`) },
    ]);
  });

  it.each([
    [true, "error", "grants no lock with quarantine"],
    [false, "warning", "cannot be used for schedules"],
  ])("reports a server without run_id; quarantine: %s", async (quarantine, severity, message) => {
    const { url } = await startVendor({ info: dragonfly });
    const redlock = openRedlock([url], { quarantine });
    expect(await redlock.check()).toContainEqual(
      expect.objectContaining({ code: "NO_RUN_ID", severity, message: expect.stringContaining(message) as string }),
    );
  });

  it("names product and version of a Redis in what it finds", async () => {
    const [server] = (await startNodes(1)) as [RedisServer];
    await server.call("CONFIG", "SET", "maxmemory", "100mb");
    await server.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru");
    const findings = await openRedlock([server]).check();
    expect(findings.find(({ code }) => code === "EVICTION")?.message).toMatch(
      / \((Redis|Valkey) \d+\.\d+\.\d+\) may evict/,
    );
  });
});

describe("the product of a server", () => {
  it.each([
    ["redis_version:7.0.15", "Redis", "7.0.15"],
    ["redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.0.1", "Valkey", "9.0.1"],
    ["redis_version:7.4.0\r\ndragonfly_version:df-v1.40.1", "Dragonfly", "1.40.1"],
    ["redis_version:7.4.3\r\ngarnet_version:2.1.4", "Garnet", "2.1.4"],
    ["redis_version:6.3.4", "KeyDB", "6.3.4"],
  ])("is read from %j", (info, product, version) => {
    expect(serverOf(readInfo(info))).toEqual({ product, version });
  });

  it("is unknown without a version, and such a server is not refused", () => {
    expect(serverOf(readInfo("role:master"))).toBeUndefined();
    expect(serverRefusal("role:master")).toBeUndefined();
  });
});
