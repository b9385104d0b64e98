/** What Prometheus gets from a process of the boards. */
import { Redlock } from "@x/redlock-core";
import { reservePort, startRedis } from "@x/test-support";
import { afterEach, expect, it, vi } from "vitest";
import { serveMetrics } from "../src/metrics.ts";

afterEach(() => vi.unstubAllEnvs());

it("serves metrics of locks on the port that it is given, until it is stopped", async () => {
  using reserved = await reservePort();
  const { port } = reserved;
  vi.stubEnv("METRICS_PORT", String(port));
  await using server = await startRedis();
  const stop = await serveMetrics();
  await using redlock = new Redlock(server.url);
  await (await redlock.acquire("gate:1")).release();
  const scrape = async (): Promise<string> => await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  await expect.poll(scrape).toMatch(/^x_lock_held\{.*gate:\*/m);
  await stop();
  await expect(scrape()).rejects.toThrow("fetch failed");
});

it("serves nothing without a port", async () => {
  vi.stubEnv("METRICS_PORT", "");
  const servers = (): string[] => process.getActiveResourcesInfo().filter((name) => name === "TCPServerWrap");
  const before = servers();
  const stop = await serveMetrics();
  expect(servers()).toEqual(before);
  await stop();
});
