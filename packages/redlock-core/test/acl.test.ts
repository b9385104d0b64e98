import { readFileSync } from "node:fs";
import type { RedisServer } from "@x/test-support";
import { Redis } from "ioredis";
import { createClient } from "redis";
import { beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { type Lock, type NodeSource, QuorumUnreachableError, type Redlock } from "../src/index.ts";
import { openRedlock, shortTtl, startNodes } from "./support/nodes.ts";

/** The rights that the guide names, word by word. */
const guide = readFileSync(new URL("../../../docs/locks/rights.md", import.meta.url), "utf8");
const [, rights = ""] = /ACL SETUSER locks ([^`]*)```/.exec(guide) ?? [];

describe("a Redis user", () => {
  let server: RedisServer;
  let url: string;
  beforeEach(async () => {
    [server] = (await startNodes(1, { persistence: true })) as [RedisServer];
    url = `redis://locks:secret@127.0.0.1:${server.port}`;
  });

  it.each<[string, (from: string) => NodeSource, boolean]>([
    ["ioredis", (from) => from, false],
    ["ioredis, with quarantine", (from) => from, true],
    ["node-redis", (from) => createClient({ url: from }), false],
  ])("with the rights from the guide can use every feature (%s)", async (_name, sourceOf, quarantine) => {
    expect(rights).toContain("evalsha");
    await server.call("ACL", "SETUSER", "locks", ...rights.trim().split(/\s+/));
    const options = { ...shortTtl, keyPrefix: "app:", quarantine, timeout: 20_000 };
    const [a, b] = [openRedlock([sourceOf(url)], options), openRedlock([sourceOf(url)], options)];
    const lock = await a.acquire("r", { autoExtend: true });
    const waiting = b.acquire("r", { autoExtend: true });
    await expect.poll(() => server.call("ZCARD", "{app:r}:waiters")).toBe(1);
    expect(await server.call("PUBSUB", "CHANNELS", "x:redlock:*")).toHaveLength(1);
    await lock.extend();
    expect(await lock.release()).toBe(true);
    const next = await waiting;
    expect(await a.inspect("r")).toMatchObject({ verdict: "held", fencingToken: next.fencingToken });
    expect(await a.forceRelease("r")).toBe(true);
    expect(await next.release()).toBe(false);
    await (await a.acquire(["r", "s"])).release();
    expect(await a.check()).toEqual([]);
    const refused = (await server.call("ACL", "LOG")) as unknown[];
    // Commands that the guide says are optional; before Redis 7 the log has no subcommands.
    const spared = /client\|setinfo|config\|get|,object,(?:client|config),/;
    expect(refused.filter((entry) => !spared.test(String(entry)))).toEqual([]);
  });

  it("without a right that check() needs is reported as such, not as a silent node", async () => {
    await server.call("ACL", "SETUSER", "locks", ...rights.trim().split(/\s+/), "-info");
    const findings = await openRedlock([url], { keyPrefix: "app:" }).check();
    expect(findings).toMatchObject([{ code: "REFUSED", severity: "error", subjects: [`127.0.0.1:${server.port}`] }]);
    expect(findings[0]?.message).toMatch(
      /^answered with an error: 127\.0\.0\.1:\d+: .*(NOPERM|can't run this command|no permissions to run)/,
    );
  });

  describe("with the rights for another prefix", () => {
    let shop: Redis;
    let app: Redlock;
    let held: Lock;
    beforeEach(async () => {
      await server.call("ACL", "SETUSER", "locks", ...rights.trim().split(/\s+/));
      await server.call("ACL", "SETUSER", "shop", ...rights.replaceAll("app:", "shop:").trim().split(/\s+/));
      shop = new Redis(server.port, { username: "shop", password: "secret" });
      onTestFinished(() => shop.disconnect());
      app = openRedlock([url], { ...shortTtl, keyPrefix: "app:", quarantine: true, timeout: 20_000 });
      held = await app.acquire("r", { autoExtend: true });
    });

    it("can neither read nor acquire nor release a lock", async () => {
      const keys = ["app:r", "{app:r}:fence", "{app:r}:waiters"];
      for (const key of keys) {
        for (const call of [shop.get(key), shop.set(key, "x"), shop.del(key), shop.zadd(key, 1, "x")]) {
          await expect(call).rejects.toThrow("NOPERM");
        }
      }
      const asApp = openRedlock([url.replace("locks:", "shop:")], { ...shortTtl, keyPrefix: "app:" });
      await expect(asApp.acquire("s", { timeout: 0 })).rejects.toThrow(QuorumUnreachableError);
      expect(await asApp.forceRelease("r").catch(() => false)).toBe(false);
      expect(await held.release()).toBe(true);
    });

    it("can end or start the quarantine for all prefixes, and wake their waiters, because nodes are one trust domain", async () => {
      const waiting = app.acquire("r");
      await expect.poll(() => server.call("PUBSUB", "CHANNELS", "x:redlock:*")).toHaveLength(1);
      const [channel = ""] = (await server.call("PUBSUB", "CHANNELS", "x:redlock:*")) as string[];
      expect(await shop.publish(channel, "text")).toBe(1);
      await held.release();
      await (await waiting).release();

      await shop.del("{x}:node");
      await expect(app.acquire("s", { timeout: 0 })).rejects.toThrow("in quarantine for");
      await shop.hset("{x}:node", "since", 1);
      await (await app.acquire("s", { timeout: 0 })).release();
      await shop.set("{x}:node", "boo");
      await expect(app.acquire("s", { timeout: 0 })).rejects.toThrow("WRONGTYPE");
    });
  });
});
