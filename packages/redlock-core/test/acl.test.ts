import { type RedisServer, rightsInGuide } from "@x/test-support";
import { Redis } from "ioredis";
import { beforeEach, describe, expect, it, onTestFinished } from "vitest";
import { type Lock, QuorumUnreachableError, type Redlock } from "../src/index.ts";
import { openRedlock, shortTtl, startNodes } from "./support/nodes.ts";

/** The guide's rights. test/integration/rights.test.ts tests that they suffice. */
const rights = rightsInGuide("locks");

describe("a Redis user", () => {
  let server: RedisServer;
  let url: string;
  beforeEach(async () => {
    [server] = (await startNodes(1, { persistence: true })) as [RedisServer];
    url = `redis://locks:secret@127.0.0.1:${server.port}`;
  });

  it("without a right that check() needs is reported as such, not as a silent node", async () => {
    await server.call("ACL", "SETUSER", "locks", ...rights, "-info");
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
      await server.call("ACL", "SETUSER", "locks", ...rights);
      await server.call("ACL", "SETUSER", "shop", ...rights.map((right) => right.replace("app:", "shop:")));
      shop = new Redis(server.port, { username: "shop", password: "secret" });
      onTestFinished(() => shop.disconnect());
      app = openRedlock([url], { ...shortTtl, keyPrefix: "app:", quarantine: true, timeout: 20_000 });
      held = await app.acquire("r", { autoExtend: true });
    });

    it("can neither read nor acquire nor release a lock", async () => {
      const keys = ["app:r", "{app:r}:fence", "{app:r}:note"];
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
