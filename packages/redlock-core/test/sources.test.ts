import { errorOf } from "@x/test-support";
import { Redis } from "ioredis";
import { Redis as Redis5 } from "ioredis5";
import { createClient } from "redis";
import { createClient as createClient5 } from "redis5";
import { describe, expect, it, onTestFinished } from "vitest";
import { type NodeSource, QuorumUnreachableError, Redlock } from "../src/index.ts";
import { openRedlock, startNodes } from "./support/nodes.ts";

function refusalOf(source: unknown): TypeError {
  try {
    void new Redlock(source as NodeSource).close();
  } catch (error) {
    if (error instanceof TypeError) return error;
    throw error;
  }
  throw new Error("not refused");
}

describe("an invalid URL", () => {
  it.each([
    "redi://:hunter2@prod:6379",
    "hunter2@prod:6379",
    ":hunter2@prod",
    '"redis://:hunter2@prod"',
    "  redis://user:hunter2@prod",
    "redis//:hunter2@prod",
    "redi://:pass@hunter2@prod",
    "redi://:pass\nhunter2@prod",
    "redi://prod?password=hunter2",
    "redi://prod?db=1&Password=pass@hunter2",
    "redis://:hunter2@prod:port",
    "redis://:hunter2%@prod",
    "redis://:hunter2@prod/first",
    "redis://:hunter2@prod/-1",
    "redis://:hunter2@prod/1.5",
    "redis://:hunter2@prod/3/",
    "unix://:hunter2@prod/sock?db=-1",
    "redis://user:123#hunter2@prod",
    "redis://user:123?hunter2@prod",
    "redis://user:123/hunter2@prod",
    "unix://:hunter2@prod:port/sock",
  ])("is refused with the host of %j, but without user and password", (url) => {
    const error = refusalOf(url);
    expect(error.message).toContain("prod");
    expect(error.message).toContain("***");
    for (const secret of ["hunter2", "pass@", "user"]) {
      expect(`${error.message} ${JSON.stringify(error)} ${String(error.cause)}`).not.toContain(secret);
    }
  });

  it("is refused with its scheme, where the mistake may be", () => {
    expect(refusalOf("redi://:hunter2@prod").message).toBe(
      'node must be a redis://, rediss:// or unix:// URL, or the path of a socket, got "redi://***@prod"',
    );
  });
});

describe("several addresses in one string", () => {
  it.each([
    ["redis://h1,redis://h2", "redis://h1***"],
    ["redis://h1:6379, redis://h2:6379", "redis://h1***"],
    ["redis://h1/0,rediss://h2/0", "redis://h1***"],
    ["redis://h1,h2", "redis://h1***"],
    ["redis://h1:6379,h2:6379", "redis://h1***"],
    ["redis://:hunter2@h1,redis://:hunter2@h2", "redis://***@h2"],
    ["unix:///tmp/one,unix:///tmp/two", "unix://***"],
  ])("are refused, with advice on the correct form: %j", (url, shown) => {
    expect(refusalOf(url).message).toBe(
      `node must be one address: pass several as an array of strings, got "${shown}"`,
    );
  });

  it.each(["redis://user:a,b@127.0.0.1:1", "unix:///tmp/a@b,c"])("are not detected in %j", (url) => {
    expect(() => openRedlock([url])).not.toThrow();
  });
});

describe("an invalid object", () => {
  const accepted = "a client of ioredis or node-redis, a URL string, ioredis options (host, port, path or sentinels)";

  it.each([
    [{ url: "redis://:hunter2@prod" }, "got an object with url: pass the URL itself, as a string"],
    [{ prot: 7801, db: 1 }, "got an object with prot, db"],
    [{}, "got an object with nothing in it"],
    [new Map(), "got an instance of Map"],
    [[[]], "got an array"],
  ])("is refused with its own name and the accepted kinds: %j", (source, got) => {
    expect(refusalOf(source).message).toBe(`node must be ${accepted} or a LockNode, ${got}`);
  });
});

/** As node_redis 3 makes it. */
class RedisClient {
  readonly connected = true;
  readonly server_info = {};
  duplicate(): RedisClient {
    return new RedisClient();
  }
  eval(): boolean {
    return true;
  }
}

it("a client of node_redis 3 is refused, with advice on another client", () => {
  const expected = "got a client of node_redis 3 or older: use node-redis 5 or later, or ioredis";
  expect(refusalOf(new RedisClient()).message).toMatch(new RegExp(`${expected}$`));
});

describe("ioredis options that are refused", () => {
  it.each([
    [{ host: "h", db: "x" }, TypeError, 'node.db must be an integer >= 0, got "x"'],
    [{ host: "h", db: Number.NaN }, RangeError, "node.db must be an integer >= 0, got NaN"],
    [{ host: "h", db: -1 }, RangeError, "node.db must be an integer >= 0, got -1"],
    [{ path: "/sock", db: 1.5 }, RangeError, "node.db must be an integer >= 0, got 1.5"],
    [{ sentinels: [], name: "lock" }, RangeError, "node.sentinels must be a non-empty array, got an array"],
    [{ sentinels: 5, name: "lock" }, TypeError, "node.sentinels must be a non-empty array, got 5"],
    [
      { sentinels: [{ port: 1 }] },
      TypeError,
      "node.name must be given with sentinels: the name of their master, got undefined",
    ],
    [{ sentinels: [{ port: 1 }], name: "" }, TypeError, "node.name must be given with sentinels"],
  ])("%j", (source, kind, message) => {
    const construct = (): Redlock => new Redlock(source as unknown as NodeSource);
    expect(construct).toThrow(kind);
    expect(construct).toThrow(message);
  });
});

it("a node is down, and reports the reason, if its client cannot be duplicated", async () => {
  const client = {
    status: "wait",
    options: {},
    duplicate: (): never => {
      throw new Error("no more of this client");
    },
  };
  const error = await errorOf(openRedlock([client]).tryAcquire("r"));
  expect(error).toBeInstanceOf(QuorumUnreachableError);
  expect((error as Error).message).toContain("no more of this client");
});

const sources: Readonly<Record<string, (url: string) => NodeSource>> = {
  "a URL": (url) => url,
  "ioredis 6": (url) => withoutNoise(new Redis(url, { lazyConnect: true })),
  "ioredis 5": (url) => withoutNoise(new Redis5(url, { lazyConnect: true })),
  "node-redis": (url) => createClient({ url }),
};

function withoutNoise<Client extends { on(event: "error", listener: () => void): unknown }>(client: Client): Client {
  client.on("error", () => undefined);
  return client;
}

describe.each(Object.keys(sources))("a node that cannot be used, passed as %s,", (name) => {
  async function told(url: string): Promise<readonly string[]> {
    const redlock = openRedlock([sources[name]?.(url) ?? ""], { nodeTimeout: 2_000 });
    const error = await errorOf(redlock.tryAcquire("told"));
    expect(error).toBeInstanceOf(QuorumUnreachableError);
    const findings = await redlock.check();
    expect(findings).toMatchObject([{ code: "UNREACHABLE", severity: "error" }]);
    const inspection = await redlock.inspect("told");
    return [(error as Error).message, findings[0]?.message ?? "", inspection.nodes[0]?.error ?? ""];
  }

  it("is reported with the reason by acquire, check and inspect: no server listens", async () => {
    for (const message of await told("redis://localhost:1")) expect(message).toContain("ECONNREFUSED");
  });

  it("is reported with the reason by acquire, check and inspect: a wrong password", async () => {
    const [server] = await startNodes(1, { args: ["--requirepass", "secret"] });
    const url = `redis://:hunter2@127.0.0.1:${server?.port}`;
    for (const message of await told(url)) {
      expect(message).toContain("WRONGPASS");
      expect(message).not.toContain("hunter2");
    }
  });

  it("is reported with the reason, and grants nothing in database 0: a database that does not exist", async () => {
    const [server] = await startNodes(1);
    for (const message of await told(`${server?.url}/77`)) expect(message).toContain("DB index is out of range");
    expect(await server?.call("DBSIZE")).toBe(0);
  });
});

describe("a node in another database", () => {
  it.each(["redis://", "unix://"])("is used there: %s", async (scheme) => {
    const [server] = await startNodes(1);
    const url = scheme === "redis://" ? `${server?.url}/3` : `unix://${server?.path}?db=3`;
    const redlock = openRedlock([url]);
    await redlock.acquire("elsewhere");
    expect(await server?.call("INFO", "keyspace")).toMatch(/db3:keys=2/);
    expect(await server?.call("DBSIZE")).toBe(0);
  });

  it("is used again when a connection that was refused the database may select it", async () => {
    const [server] = await startNodes(1);
    await server?.call("ACL", "SETUSER", "default", "-select");
    const redlock = openRedlock([`${server?.url}/3`], { timeout: 10_000 });
    const error = await errorOf(redlock.tryAcquire("allowed"));
    expect((error as Error).message).toContain("NOPERM");
    await server?.call("ACL", "SETUSER", "default", "+select");
    await server?.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
    expect((await redlock.acquire("allowed")).isHeld()).toBe(true);
  });
});

describe("a client that selects a database", () => {
  const clients: Readonly<Record<string, (url: string) => Redis | Redis5>> = {
    "ioredis 6": (url) => new Redis(url),
    "ioredis 5": (url) => new Redis5(url),
  };

  it.each(Object.keys(clients))(
    "is followed to a database that it selected earlier, connected or not: %s",
    async (name) => {
      const [server] = await startNodes(1);
      for (const isConnected of [false, true]) {
        const client = clients[name]?.(server?.url ?? "") as Redis;
        onTestFinished(() => client.disconnect());
        if (isConnected) await client.ping();
        const selecting = client.select(3);
        const redlock = openRedlock([client]);
        await selecting;
        const lock = await redlock.acquire("chosen");
        expect(await client.get("chosen")).toBe(lock.token);
        await lock.release();
      }
      expect(await server?.call("DBSIZE")).toBe(0);
    },
  );

  it.each(Object.keys(clients))(
    "makes the node unusable while it has selected another database later: %s",
    async (name) => {
      const [server] = await startNodes(1);
      const client = clients[name]?.(server?.url ?? "") as Redis;
      onTestFinished(() => client.disconnect());
      const redlock = openRedlock([client], { timeout: 0 });
      await (await redlock.acquire("before")).release();
      const selecting = client.select(3);
      expect(await errorOf(redlock.acquire("after"))).toMatchObject({
        code: "QUORUM_UNREACHABLE",
        message: expect.stringContaining("its client selected database 3, and this Redlock is in 0") as string,
      });
      await selecting;
      await server?.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes");
      await client.ping();
      expect(await errorOf(redlock.tryAcquire("after"))).toMatchObject({ code: "QUORUM_UNREACHABLE" });
      await client.select(0);
      await expect.poll(async () => (await redlock.tryAcquire("again").catch(() => null))?.isHeld()).toBe(true);
    },
  );

  it.each(["node-redis 6", "node-redis 5"])(
    "makes the node unusable if it selects another database, earlier or later: %s",
    async (name) => {
      const [server] = await startNodes(1);
      const url = server?.url ?? "";
      const client = (name === "node-redis 6" ? createClient({ url }) : createClient5({ url })) as ReturnType<
        typeof createClient
      >;
      await client.connect();
      onTestFinished(() => client.destroy());
      const early = openRedlock([client], { timeout: 0 });
      await (await early.acquire("before")).release();
      await client.select(3);
      const late = openRedlock([client], { timeout: 0 });
      for (const redlock of [early, late]) {
        expect(await errorOf(redlock.acquire("after"))).toMatchObject({
          code: "QUORUM_UNREACHABLE",
          message: expect.stringContaining("its client selected database 3, and this Redlock is in 0") as string,
        });
      }
      await client.select(0);
      for (const redlock of [early, late]) await (await redlock.acquire("again")).release();
    },
  );

  it("is asked for its database, if it selected one earlier: node-redis", async () => {
    const [server] = await startNodes(1);
    const client = createClient({ url: server?.url ?? "" });
    await client.connect();
    onTestFinished(() => client.destroy());
    const selecting = client.select(3);
    expect(await errorOf(openRedlock([client]).acquire("r", { timeout: 0 }))).toMatchObject({
      code: "QUORUM_UNREACHABLE",
    });
    await selecting;
  });
});

it("a URL object is treated as its text", async () => {
  const [server] = await startNodes(1);
  const redlock = openRedlock([new URL(`${server?.url}/3`)]);
  await redlock.acquire("url");
  expect(await server?.call("INFO", "keyspace")).toMatch(/db3:keys=2/);
  const error = await errorOf((async () => new Redlock(new URL("https://:secret@h")))());
  expect(error).toBeInstanceOf(TypeError);
  expect((error as Error).message).not.toContain("secret");
});

it("options that are passed as undefined are treated as left out", async () => {
  const [server] = await startNodes(1);
  const left = undefined as { readonly name?: string } | undefined;
  const redlock = openRedlock([
    {
      host: server?.host,
      port: server?.port,
      path: undefined,
      username: undefined,
      password: undefined,
      db: undefined,
      tls: undefined,
      sentinels: undefined,
      name: left?.name,
      keyPrefix: undefined,
    },
  ]);
  expect((await redlock.acquire("undefined")).isHeld()).toBe(true);
  onTestFinished(() => redlock.close());
});
