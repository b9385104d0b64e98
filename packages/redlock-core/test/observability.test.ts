import { subscribe, unsubscribe } from "node:diagnostics_channel";
import type { RedisServer } from "@x/test-support";
import { errorOf } from "@x/test-support";
import { describe, expect, it, onTestFinished } from "vitest";
import { type RedlockEventName, type RedlockEvents, systemClock } from "../src/index.ts";
import { openRedlock, startNodes } from "./support/nodes.ts";

describe("events and diagnostics channels", () => {
  it("report acquisitions, waits, extensions, releases and nodes alike", async () => {
    const servers = await startNodes(3);
    const redlock = openRedlock(servers, { nodeTimeout: 1_000 });
    const names: readonly RedlockEventName[] = [
      "acquired",
      "acquireFailed",
      "refused",
      "extended",
      "extendFailed",
      "released",
      "lost",
      "nodeChanged",
    ];
    const events: [RedlockEventName, unknown][] = [];
    const messages: [string, unknown][] = [];
    for (const name of names) {
      redlock.on(name, (message) => events.push([name, message]));
      const onMessage = (message: unknown): void => {
        messages.push([name, message]);
      };
      subscribe(`x.redlock.${name}`, onMessage);
      onTestFinished(() => {
        unsubscribe(`x.redlock.${name}`, onMessage);
      });
    }
    const lock = await redlock.acquire("seen");
    await errorOf(redlock.acquire(["seen", "other"], { timeout: 100 }));
    await lock.extend();
    await lock.release();
    await servers[0]?.kill();
    await expect
      .poll(() =>
        events.some(
          ([name, message]) => name === "nodeChanged" && (message as RedlockEvents["nodeChanged"]).state === "down",
        ),
      )
      .toBe(true);

    expect(messages).toEqual(events);
    const of = (name: RedlockEventName): unknown[] =>
      events.filter(([each]) => each === name).map(([, message]) => message);
    expect(of("acquired")).toMatchObject([{ resources: ["seen"], attempts: 1, fencingToken: lock.fencingToken }]);
    expect(of("acquireFailed")).toMatchObject([{ resources: ["seen", "other"], reason: "held" }]);
    expect(of("refused")[0]).toMatchObject({ resources: ["seen", "other"], attempts: 1 });
    expect(of("extended")).toMatchObject([
      { resources: ["seen"], fencingToken: lock.fencingToken, ttlMs: expect.any(Number) as number },
    ]);
    expect(of("released")).toMatchObject([{ resources: ["seen"], confirmed: true, fencingToken: lock.fencingToken }]);
    for (const message of [...of("acquired"), ...of("released")]) expect(structuredClone(message)).toEqual(message);
  });

  it("report the duration of a wait, and the time for which a lock was held", async () => {
    let aheadMs = 0;
    const clock = { ...systemClock, monotonicMs: (): number => systemClock.monotonicMs() + aheadMs };
    const [server] = await startNodes(1);
    const redlock = openRedlock([server as RedisServer], { clock, ttl: 3_600_000 });
    const told = new Set<string>();
    const note = (name: RedlockEventName, ms: number): void => void told.add(`${name} ${Math.floor(ms / 60_000)}`);
    redlock.on("acquired", ({ waitMs }) => note("acquired", waitMs));
    redlock.on("refused", ({ waitMs }) => note("refused", waitMs));
    redlock.on("released", ({ heldMs }) => note("released", heldMs));
    redlock.on("lost", ({ heldMs }) => note("lost", heldMs));
    await server?.call("SET", "timed", "another library's", "PX", 3_600_000);
    const waiting = redlock.acquire("timed", { timeout: 3_600_000 });
    await expect.poll(() => [...told]).toEqual(["refused 0"]);
    aheadMs += 600_000;
    await expect.poll(() => [...told]).toEqual(["refused 0", "refused 10"]);
    await server?.call("DEL", "timed");
    const lock = await waiting;
    aheadMs += 1_200_000;
    await lock.release();
    const lost = await redlock.acquire("lost");
    aheadMs += 7_200_000;
    expect(lost.isHeld()).toBe(false);
    expect([...told]).toEqual(["refused 0", "refused 10", "acquired 10", "released 20", "acquired 0", "lost 120"]);
    expect(String(lost.signal.reason)).toMatch(/after 72\d{5} ms/);
  });

  it("stop on request, and survive a listener that throws", async () => {
    const redlock = openRedlock(await startNodes(1));
    let heard = 0;
    const warnings: string[] = [];
    const onWarning = (warning: Error): void => {
      warnings.push(warning.message);
    };
    process.on("warning", onWarning);
    onTestFinished(() => {
      process.off("warning", onWarning);
    });
    redlock.on("acquired", () => {
      throw new Error("listener's own mistake");
    });
    const stop = redlock.on("acquired", () => {
      heard += 1;
    });
    await (await redlock.acquire("one")).release();
    stop();
    await (await redlock.acquire("two")).release();
    expect(heard).toBe(1);
    await expect.poll(() => warnings).toContain("listener's own mistake");
  });
});
