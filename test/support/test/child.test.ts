import { existsSync } from "node:fs";
import { runningProcesses, spawnChild } from "@x/test-support";
import { expect, it } from "vitest";

const echo = new URL("children/echo.ts", import.meta.url);
const startsServers = new URL("children/starts-servers.ts", import.meta.url);

const isReady = (message: unknown): message is { args: string[]; color: string } =>
  typeof message === "object" && message !== null && "ready" in message;
const isEcho = (message: unknown): message is { echo: unknown } =>
  typeof message === "object" && message !== null && "echo" in message;
const isStarted = (message: unknown): message is { pids: number[]; folder: string } =>
  typeof message === "object" && message !== null && "pids" in message;

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}

it("runs TypeScript from source and exchanges messages", async () => {
  await using child = spawnChild(echo, { args: ["a", "b"], env: { COLOR: "red" } });
  expect(await child.message(isReady)).toMatchObject({ args: ["a", "b"], color: "red" });
  child.send({ hello: 1 });
  expect(await child.message(isEcho)).toEqual({ echo: { hello: 1 } });
});

it("fails a wait for a message if the process ends, with the output of the process", async () => {
  const child = spawnChild(new URL("no-such-file.ts", import.meta.url));
  await expect(child.message(isReady)).rejects.toThrow(/ended[^]*no-such-file/);
});

it("fails a wait that takes too long", async () => {
  await using child = spawnChild(echo);
  await expect(child.message(isEcho, { timeout: 50 })).rejects.toThrow("within 50 ms");
});

it("reports how a process ended, and lists the process until then", async () => {
  const child = spawnChild(echo, { name: "echo" });
  expect(runningProcesses()).toEqual([`echo (${child.pid})`]);
  expect(await child.kill("SIGTERM")).toEqual({ code: null, signal: "SIGTERM" });
  expect(child.isRunning).toBe(false);
  expect(runningProcesses()).toEqual([]);
});

it("kills a frozen process", async () => {
  const child = spawnChild(echo);
  await child.message(isReady);
  child.freeze();
  expect(await child.kill()).toEqual({ code: null, signal: "SIGKILL" });
});

it.each(["SIGKILL", "SIGTERM", "SIGINT", "return", "throw", "exit"] as const)(
  "leaves no server, process or file behind when the process that started them ends by %s",
  async (how) => {
    await using child = spawnChild(startsServers);
    const { pids, folder } = await child.message(isStarted);
    expect(pids.every(isAlive)).toBe(true);
    if (how.startsWith("SIG")) await child.kill(how as NodeJS.Signals);
    else child.send(how);
    await child.exited;
    await expect.poll(() => pids.some(isAlive) || existsSync(folder), { timeout: 10_000 }).toBe(false);
  },
);
