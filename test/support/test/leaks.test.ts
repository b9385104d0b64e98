import { once } from "node:events";
import { createServer } from "node:net";
import { spawnChild, startRedis, watchForLeaks } from "@x/test-support";
import { expect, it } from "vitest";

it("passes if everything was closed", async () => {
  const check = watchForLeaks();
  await using server = await startRedis();
  await server.stop();
  await check();
});

it("finds an open server, socket and timer", async () => {
  const check = watchForLeaks();
  const listener = createServer().listen(0, "127.0.0.1");
  await once(listener, "listening");
  const timer = setTimeout(() => {}, 60_000);
  await expect(check()).rejects.toThrow(/left open:.*TCPServerWrap.*Timeout/);
  clearTimeout(timer);
  listener.close();
  await check();
});

it("finds a Redis server and a child process that still run", async () => {
  const check = watchForLeaks();
  const server = await startRedis();
  const child = spawnChild(new URL("children/echo.ts", import.meta.url), { name: "forgotten" });
  await expect(check()).rejects.toThrow(/redis-server :\d+ \(\d+\).*forgotten/);
  await Promise.all([server.stop(), child.kill()]);
  await check();
});

it("reports where an open timer was set, if timers remember", async () => {
  await using child = spawnChild(new URL("children/leaves-timer.ts", import.meta.url));
  const told = await child.message((message): message is string => typeof message === "string");
  expect(told).toMatch(/left open: 1 Timeout\n(.*\n)*.*setForgotten/);
});
