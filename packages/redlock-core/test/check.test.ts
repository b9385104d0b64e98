import { errorOf, ManualClock, type RedisServer, sinceRedis7 } from "@x/test-support";
import { Redis as Redis5 } from "ioredis5";
import { createClient } from "redis";
import { describe, expect, it, onTestFinished } from "vitest";
import { type Finding, type LockNode, type Redlock, systemClock } from "../src/index.ts";
import { defineScript, protocolOf } from "../src/protocol.ts";
import { openRedlock, shortTtl, startNodes } from "./support/nodes.ts";
import { StubNode } from "./support/stub-node.ts";

/** A node that claims to be the server of this INFO, with a clock that is wrong by `offMs`. */
function nodeSaying(name: string, info: string, offMs = 0): LockNode {
  const time = (): readonly string[] => {
    const nowMs = Date.now() + offMs;
    return [String(Math.floor(nowMs / 1_000)), String((nowMs % 1_000) * 1_000)];
  };
  return {
    name,
    state: "ready",
    eval: () => Promise.resolve([`run_id:${name}\r\n${info}`, ...time(), "", ""]),
    onStateChange: () => () => undefined,
    close: () => Promise.resolve(),
  };
}

describe("check", () => {
  it("finds nothing wrong with three healthy nodes that have been up for maxTtl", async () => {
    const redlock = openRedlock(await startNodes(3), { ...shortTtl, quarantine: true });
    await (await redlock.acquire("warm", { timeout: 10_000 })).release();
    expect(await redlock.check()).toEqual([]);
  });

  it("reports two nodes that are one server", async () => {
    const [one, two] = await startNodes(2);
    const redlock = openRedlock([one as RedisServer, one?.url ?? "", two as RedisServer]);
    expect(await redlock.check()).toContainEqual(
      expect.objectContaining({
        code: "SAME_SERVER",
        severity: "error",
        subjects: [one?.path, `127.0.0.1:${one?.port}`],
      }),
    );
  });

  it("reports a node that may evict locks, but not a node that has no memory limit", async () => {
    const servers = await startNodes(3);
    await servers[0]?.call("CONFIG", "SET", "maxmemory", "100mb");
    for (const server of servers) await server.call("CONFIG", "SET", "maxmemory-policy", "volatile-lru");
    const findings = await openRedlock(servers).check();
    expect(findings.filter((finding) => finding.code === "EVICTION")).toMatchObject([
      { subjects: [servers[0]?.path], severity: "error" },
    ]);
  });

  const hidden = (name: string): string[] => ["--rename-command", name, ""];
  const withoutLua = [
    ...["eval", "evalsha", "script"].flatMap(hidden),
    ...sinceRedis7(...["fcall", "function"].flatMap(hidden)),
  ];

  it.each(["ioredis", "node-redis"])(
    "reports servers without Lua, and every call names the reason: %s",
    async (client) => {
      const [server] = await startNodes(1, { args: withoutLua });
      const url = server?.url ?? "";
      const redlock = openRedlock([client === "ioredis" ? url : createClient({ url })], { timeout: 0 });
      expect(await redlock.check()).toMatchObject([
        { code: "NO_LUA", severity: "error", message: expect.stringContaining("Alpine: valkey-lua") as string },
      ]);
      for (const call of [redlock.acquire("r"), redlock.tryAcquire("r"), redlock.using("r", () => 1)]) {
        expect(await errorOf(call)).toMatchObject({
          code: "NO_LUA",
          message: expect.stringContaining("runs no Lua scripts") as string,
        });
      }
      expect((await redlock.inspect("r")).nodes[0]?.error).toContain("NO_LUA");
      expect(await redlock.forceRelease("r")).toBe(false);
      const [reply] = await protocolOf(redlock).run(defineScript("none", "return 1"), { keys: [], args: [] });
      expect(reply).toMatchObject({ ok: false, error: { code: "NO_LUA" } });
    },
  );

  it("does not report a working quorum for a minority without Lua", async () => {
    const [[bare], others] = [await startNodes(1, { args: withoutLua }), await startNodes(2)];
    const redlock = openRedlock([bare as RedisServer, ...others], { timeout: 0 });
    expect(await redlock.check()).toContainEqual(expect.objectContaining({ code: "NO_LUA", severity: "warning" }));
    await (await redlock.acquire("r")).release();
    await others[0]?.kill();
    expect(await errorOf(redlock.acquire("r"))).toMatchObject({ code: "QUORUM_UNREACHABLE" });
  });

  it.each([
    ["OOM", [["CONFIG", "SET", "maxmemory", "1"]]],
    ["MISCONF", [["CONFIG", "SET", "dir", "/proc"], ["CONFIG", "SET", "save", "1 1"], ["SET", "a", "b"], ["BGSAVE"]]],
    ["NOREPLICAS", [["CONFIG", "SET", "min-replicas-to-write", "1"]]],
  ] as const)("reports a node that refuses writes: %s", async (reason, commands) => {
    const [server] = await startNodes(1, { args: sinceRedis7("--enable-protected-configs", "yes") });
    const redlock = openRedlock([server as RedisServer], { timeout: 0 });
    expect((await redlock.check()).map(({ code }) => code)).not.toContain("REFUSES_WRITES");
    for (const [command, ...rest] of commands) await server?.call(command, ...rest);
    await expect
      .poll(() => redlock.check())
      .toContainEqual(
        expect.objectContaining({
          code: "REFUSES_WRITES",
          severity: "error",
          message: expect.stringContaining(reason) as string,
        }),
      );
    expect(await errorOf(redlock.acquire("r"))).toMatchObject({ message: expect.stringContaining(reason) as string });
  });

  it.each(["ioredis", "ioredis 5", "node-redis"])(
    "reports an append-only file that is flushed when the system chooses: %s",
    async (name) => {
      const [server] = await startNodes(1, { args: ["--appendonly", "yes", "--appendfsync", "no"] });
      const url = server?.url ?? "";
      const clients = {
        ioredis: () => url,
        "ioredis 5": () => new Redis5(url),
        "node-redis": () => createClient({ url }),
      };
      const client = clients[name as keyof typeof clients]();
      if (client instanceof Redis5) onTestFinished(() => client.disconnect());
      const finding = expect.objectContaining({
        code: "NO_PERSISTENCE",
        severity: "warning",
        message: expect.stringContaining("appendfsync no") as string,
      }) as unknown;
      expect(await openRedlock([client]).check()).toContainEqual(finding);
      expect(await openRedlock([url], { quarantine: true }).check()).not.toContainEqual(finding);
      await server?.call("CONFIG", "SET", "appendfsync", "everysec");
      expect(await openRedlock([url]).check()).toEqual([]);
    },
  );

  it("checks what a user without the right to read settings may see", async () => {
    const [server] = await startNodes(1, { args: ["--appendonly", "yes", "--appendfsync", "no"] });
    await server?.call("ACL", "SETUSER", "locks", "on", ">secret", "~*", "&*", "+@all", "-config");
    const redlock = openRedlock([(server?.url ?? "").replace("//", "//locks:secret@")]);
    expect(await redlock.check()).toEqual([]);
  });

  it("checks everything else if an adapter throws because it cannot read settings", async () => {
    const config = (): Promise<string> => {
      throw new Error("not supported");
    };
    const redlock = openRedlock([{ ...nodeSaying("odd", "aof_enabled:1\r\nrole:slave"), config }]);
    expect(await redlock.check()).toMatchObject([{ code: "REPLICA" }]);
  });

  it("reports a custom node as failed if its reply is not one that a server sends", async () => {
    const redlock = openRedlock([{ ...nodeSaying("odd", ""), eval: () => Promise.resolve(null) }]);
    expect(await redlock.check()).toMatchObject([
      { code: "UNREACHABLE", message: "no answer: odd: unexpected reply null" },
    ]);
    expect(await redlock.inspect("r")).toMatchObject({
      verdict: "unknown",
      nodes: [{ error: "unexpected reply null" }],
    });
  });

  it.each([
    ["the locks", "~other:* ~{app:*"],
    ["their lines", "~app:*"],
  ])("reports a user without rights to %s", async (_what, keys) => {
    const [server] = await startNodes(1);
    await server?.call("ACL", "SETUSER", "locks", "on", ">secret", ...keys.split(" "), "~{x}:*", "&*", "+@all");
    const url = (server?.url ?? "").replace("//", "//locks:secret@");
    const codes = (findings: readonly Finding[]): readonly string[] => findings.map(({ code }) => code);
    expect(codes(await openRedlock([url], { keyPrefix: "app:" }).check())).toEqual(["REFUSED", "NO_PERSISTENCE"]);
  });

  it("reports an even number of nodes, unreachable nodes and nodes in quarantine", async () => {
    const servers = await startNodes(4);
    const redlock = openRedlock(servers, { ...shortTtl, maxTtl: 60_000, quarantine: true });
    await servers[1]?.kill();
    const findings = await redlock.check();
    const codes = findings.map((finding) => finding.code);
    expect(codes).toContain("EVEN_NODES");
    expect(codes.filter((code) => code === "QUARANTINED")).toHaveLength(3);
    expect(findings).toContainEqual(
      expect.objectContaining({ code: "UNREACHABLE", subjects: [servers[1]?.path], severity: "warning" }),
    );
  });

  it("waits for nodes that are still connecting while its caller's code continues", async () => {
    const redlock = openRedlock(await startNodes(3), { nodeTimeout: 1_000 });
    const checking = redlock.check();
    const busyUntilMs = performance.now() + 1_200;
    while (performance.now() < busyUntilMs);
    expect((await checking).filter(({ code }) => code === "UNREACHABLE")).toEqual([]);
  });

  it("waits some seconds for a first connection, and then reports that there is none", async () => {
    const clock = new ManualClock();
    const [late, never] = [new StubNode("connecting"), new StubNode("connecting")];
    late.answer = () => Promise.resolve(["run_id:late", "1000000000", "0", "", ""]);
    let findings: readonly Finding[] | undefined;
    const checking = openRedlock([late, Object.assign(never, { name: "never" })], { clock, nodeTimeout: 500 }).check();
    const told = checking.then((all) => {
      findings = all;
    });
    await clock.advance(3_400);
    expect(findings).toBeUndefined();
    late.become("ready");
    await clock.advance(600);
    await told;
    expect(findings).toContainEqual(expect.objectContaining({ code: "UNREACHABLE", subjects: ["never"] }));
  });

  it.each([
    ["5.0.14", 1],
    ["6.0.20", 1],
    ["6.2.0", 0],
    ["7.4.1", 0],
    ["10.0.0", 0],
  ])("reports a server that is too old for the scripts: %s", async (version, count) => {
    const findings = await openRedlock([nodeSaying("old", `redis_version:${version}`)]).check();
    expect(findings.filter(({ code, severity }) => code === "OLD_VERSION" && severity === "error")).toHaveLength(count);
  });

  it("reports a client whose clock is wrong", async () => {
    const servers = await startNodes(3);
    const clock = { ...systemClock, wallMs: (): number => systemClock.wallMs() + 300_000 };
    const findings = await openRedlock(servers, { clock }).check();
    expect(findings).toContainEqual(expect.objectContaining({ code: "CLIENT_CLOCK", severity: "warning" }));
  });

  it.each([60_000, -60_000])("reports the node whose clock is %i ms off the other nodes' clocks", async (offMs) => {
    const nodes = [nodeSaying("a", ""), nodeSaying("wrong", "", offMs), nodeSaying("c", "")];
    const findings = await openRedlock(nodes).check();
    expect(findings).toMatchObject([{ code: "NODE_CLOCK", severity: "warning", subjects: ["wrong"] }]);
    const [toldMs] = /-?\d+(?= ms off)/.exec(findings[0]?.message ?? "") ?? [];
    expect(Math.round(Number(toldMs) / 10_000)).toBe(offMs / 10_000);
  });

  it("reports that another client has another maxTtl, and nothing once all have the same", async () => {
    const servers = await startNodes(3);
    const others = async (redlock: Redlock): Promise<readonly Finding[]> =>
      (await redlock.check()).filter(({ code }) => code === "OTHER_QUARANTINE");
    const short = openRedlock(servers, { maxTtl: 60_000, quarantine: true });
    await expect
      .poll(async () => {
        await short.tryAcquire("r").catch(() => undefined);
        return await Promise.all(servers.map((server) => server.call("HGET", "{x}:node", "quarantine")));
      })
      .toEqual(servers.map(() => "60902"));
    const long = openRedlock(servers, { maxTtl: 90_000, quarantine: true });
    expect(await others(long)).toMatchObject([{ severity: "error", subjects: servers.map(({ path }) => path) }]);
    expect(await others(long)).toEqual([]);
    expect(await others(short)).toMatchObject([{ message: expect.stringContaining("91202 ms") as string }]);
    expect(await others(openRedlock(servers))).toEqual([]);
  });

  it("reports nodes that have replicas, and no others", async () => {
    const master = (name: string, replicas: number): LockNode =>
      nodeSaying(name, `role:master\r\nconnected_slaves:${replicas}`);
    const findings = await openRedlock([master("a", 0), master("b", 1), master("c", 2)]).check();
    expect(findings).toMatchObject([
      { code: "HAS_REPLICAS", severity: "warning", subjects: ["b"] },
      { code: "HAS_REPLICAS", severity: "warning", subjects: ["c"] },
    ]);
  });
});
