import type { RedisServer } from "@x/test-support";
import { describe, expect, it } from "vitest";
import { type LockNode, systemClock } from "../src/index.ts";
import { openRedlock, shortTtl, startNodes } from "./support/nodes.ts";

describe("check", () => {
  it("finds nothing wrong with three healthy nodes that have been up for maxTtl", async () => {
    const redlock = openRedlock(await startNodes(3), { ...shortTtl, quarantine: true });
    await (await redlock.acquire("warm", { timeout: 10_000 })).release();
    expect(await redlock.check()).toEqual([]);
  });

  it("finds two nodes that are one server", async () => {
    const [one, two] = await startNodes(2);
    const redlock = openRedlock([one as RedisServer, one?.url ?? "", two as RedisServer]);
    expect(await redlock.check()).toContainEqual(
      expect.objectContaining({ code: "SAME_SERVER", severity: "error", nodes: [one?.path, `127.0.0.1:${one?.port}`] }),
    );
  });

  it("finds a node that may evict locks, and not one that only could if it had a limit", async () => {
    const servers = await startNodes(3);
    await servers[0]?.call("CONFIG", "SET", "maxmemory", "100mb");
    for (const server of servers) await server.call("CONFIG", "SET", "maxmemory-policy", "volatile-lru");
    const findings = await openRedlock(servers).check();
    expect(findings.filter((finding) => finding.code === "EVICTION")).toMatchObject([
      { nodes: [servers[0]?.path], severity: "error" },
    ]);
  });

  it("finds an even number of nodes, unreachable and quarantined ones", async () => {
    const servers = await startNodes(4);
    const redlock = openRedlock(servers, { ...shortTtl, maxTtl: 60_000, quarantine: true });
    await servers[1]?.kill();
    const findings = await redlock.check();
    const codes = findings.map((finding) => finding.code);
    expect(codes).toContain("EVEN_NODES");
    expect(codes.filter((code) => code === "QUARANTINED")).toHaveLength(3);
    expect(findings).toContainEqual(
      expect.objectContaining({ code: "UNREACHABLE", nodes: [servers[1]?.path], severity: "warning" }),
    );
  });

  it.each([
    ["5.0.14", 1],
    ["6.0.20", 1],
    ["6.2.0", 0],
    ["7.4.1", 0],
    ["10.0.0", 0],
  ])("finds a server that is too old for the scripts: %s", async (version, count) => {
    const node: LockNode = {
      name: "old",
      state: "ready",
      eval: () => Promise.resolve([`redis_version:${version}\r\nrun_id:a`, "0", "0", "", ""]),
      onStateChange: () => () => undefined,
      close: () => Promise.resolve(),
    };
    const findings = await openRedlock([node]).check();
    expect(findings.filter(({ code, severity }) => code === "OLD_VERSION" && severity === "error")).toHaveLength(count);
  });

  it("finds a client whose clock is wrong", async () => {
    const servers = await startNodes(3);
    const clock = { ...systemClock, wallMs: (): number => systemClock.wallMs() + 300_000 };
    const findings = await openRedlock(servers, { clock }).check();
    expect(findings).toContainEqual(expect.objectContaining({ code: "CLIENT_CLOCK", severity: "warning" }));
  });
});
