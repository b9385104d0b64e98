/** `logTo` writes a line for each message on a channel. */
import { channel } from "node:diagnostics_channel";
import { logTo, Redlock } from "@x/redlock-core";
import { Channels, isLogging } from "@x/redlock-core/kit";
import { pinoLines, startRedis } from "@x/test-support";
import { describe, expect, it, onTestFinished, vi } from "vitest";

interface Messages {
  stored: { readonly keys: readonly string[] };
  moved: { readonly resources: readonly string[]; readonly isUrgent: boolean };
  broken: { readonly error: unknown };
}

const channels = new Channels<Messages>("x.test", {
  stored: ["debug", "stored"],
  moved: [({ isUrgent }) => (isUrgent ? "warn" : "debug"), "moved"],
  broken: ["error", "broken"],
});

function publishAll(): void {
  channels.publish("stored", () => ({ keys: ["a"] }));
  channels.publish("moved", () => ({ resources: ["a", "b"], isUrgent: true }));
  channels.publish("moved", () => ({ resources: ["c"], isUrgent: false }));
  channels.publish("broken", () => ({ error: new Error("no paper") }));
}

describe("logTo", () => {
  it("writes lines with the same names of fields for all packages, until it is stopped", () => {
    const { logger, lines } = pinoLines();
    const stop = logTo(logger);
    expect(isLogging()).toBe(true);
    publishAll();
    stop();
    stop();
    publishAll();
    expect(lines.map(({ time: _time, ...line }) => line)).toEqual([
      { level: 20, event: "x.test.stored", key: "a", msg: "stored" },
      { level: 40, event: "x.test.moved", resource: ["a", "b"], isUrgent: true, msg: "moved" },
      { level: 20, event: "x.test.moved", resource: "c", isUrgent: false, msg: "moved" },
      { level: 50, event: "x.test.broken", err: expect.objectContaining({ message: "no paper" }), msg: "broken" },
    ]);
    expect([isLogging(), channel("x.test.broken").hasSubscribers]).toEqual([false, false]);
  });

  it("leaves channels alone whose lines the logger would not write", () => {
    const { logger, lines } = pinoLines("info");
    {
      using _logging = logTo(logger);
      expect([channels.isHeard("stored"), channels.isHeard("moved")]).toEqual([false, true]);
      publishAll();
    }
    expect(lines.map(({ msg }) => msg)).toEqual(["moved", "broken"]);
    expect(channels.isHeard("moved")).toBe(false);
  });

  it("includes the channels of a package that is imported later", () => {
    const { logger, lines } = pinoLines();
    onTestFinished(logTo(logger));
    const later = new Channels<{ ended: { readonly jobId: string } }>("x.later", { ended: ["info", "ended"] });
    later.publish("ended", () => ({ jobId: "7" }));
    expect(lines).toMatchObject([{ event: "x.later.ended", jobId: "7" }]);
  });

  it.each([
    ["throws", () => expect.fail("sink is full")],
    ["rejects", () => Promise.reject(new Error("sink is full"))],
  ])("survives a logger that %s, and warns once", async (_title, fail) => {
    const warned: unknown[] = [];
    vi.spyOn(process, "emitWarning").mockImplementation((warning) => void warned.push(warning));
    onTestFinished(() => void vi.restoreAllMocks());
    onTestFinished(
      logTo(Object.fromEntries(["debug", "info", "warn", "error"].map((level) => [level, fail])) as never),
    );
    const server = await startRedis();
    onTestFinished(() => server.stop());
    await using redlock = new Redlock(server.url, { quarantine: false });
    const lock = await redlock.acquire("kept");
    expect(await lock.release()).toBe(true);
    expect(warned).toEqual([expect.objectContaining({ message: "sink is full" })]);
  });

  it.each([[undefined], [null], [() => undefined], [{ info: () => undefined }]])("refuses %o", (logger) => {
    expect(() => logTo(logger as never)).toThrow(
      new TypeError(
        `logger must be an object with the functions debug, info, warn and error, got ${logger === undefined || logger === null ? logger : typeof logger === "function" ? "a function" : "an object"}`,
      ),
    );
  });
});
