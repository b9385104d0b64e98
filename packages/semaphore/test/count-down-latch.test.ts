/** The promises of a latch on a real node. */
import { setImmediate } from "node:timers/promises";
import { RedlockClosedError } from "@x/redlock-core";
import { DAY_MS, deferred } from "@x/redlock-core/kit";
import { protocolOf, type RedlockProtocol } from "@x/redlock-core/protocol";
import { errorOf, ManualClock, spawnChild } from "@x/test-support";
import { describe, expect, it, onTestFinished, vi } from "vitest";
import { CountDownLatch, LatchClosedError, LatchNotSetError } from "../src/index.ts";
import { aName, openRedlock, useServer } from "./support/redlock.ts";

const server = useServer();

function twoOf(): readonly [CountDownLatch, CountDownLatch] {
  const name = aName();
  return [new CountDownLatch(openRedlock(server()), name), new CountDownLatch(openRedlock(server()), name)];
}

/** Makes a latch whose process reads it only when called: the timer that reads it again never fires. */
function openWatched() {
  const redlock = openRedlock(server(), { clock: new ManualClock() });
  const protocol = protocolOf(redlock);
  return { protocol, latch: new CountDownLatch(redlock, aName()) };
}

/** Holds the reply to the next read of a latch until `pass` is called. */
function holdNextRead(protocol: RedlockProtocol) {
  const run = protocol.run.bind(protocol);
  const [answered, passed] = [deferred<void>(), deferred<void>()];
  const spied = vi.spyOn(protocol, "run").mockImplementationOnce(async (...request) => {
    const replies = await run(...request);
    answered.resolve();
    await passed.promise;
    return replies;
  });
  onTestFinished(() => spied.mockRestore());
  return { untilAnswered: answered.promise, pass: () => passed.resolve() };
}

describe("a latch", () => {
  it("opens for all waiters when the count reaches zero", async () => {
    const [here, there] = twoOf();
    expect(await here.set(3)).toBe(true);
    const opened: string[] = [];
    const waiting = [here.wait().then(() => opened.push("here")), there.wait().then(() => opened.push("there"))];
    expect(await there.countDown()).toBe(2);
    expect(await here.countDown()).toBe(1);
    expect(opened).toEqual([]);
    expect(await here.count()).toBe(1);
    expect(await there.countDown()).toBe(0);
    await Promise.all(waiting);
    expect(opened).toHaveLength(2);
    await here.wait({ timeout: 0 });
  });

  it("counts an ID once, however often it is counted down", async () => {
    const [here, there] = twoOf();
    await here.set(2);
    expect(await here.countDown("row 1")).toBe(1);
    expect(await there.countDown("row 1")).toBe(1);
    expect(await there.countDown("row 2")).toBe(0);
    expect(await there.countDown("row 3")).toBe(0);
  });

  it("can be set only once until it has opened", async () => {
    const [here, there] = twoOf();
    expect(await here.set(1)).toBe(true);
    expect(await there.set(5)).toBe(false);
    await here.countDown();
    expect(await there.set(2)).toBe(true);
    expect(await here.count()).toBe(2);
  });

  it.each([
    ["stays open if it has opened meanwhile", 1, 0],
    ["reports that the call has set it if it is still closed", 2, 1],
  ])("whose set() is sent again because the reply was lost %s", async (_what, count, left) => {
    const redlock = openRedlock(server());
    const protocol = protocolOf(redlock);
    const latch = new CountDownLatch(redlock, aName());
    const run = protocol.run.bind(protocol);
    const sent: Parameters<typeof run>[] = [];
    const spied = vi.spyOn(protocol, "run").mockImplementation(async (...request) => {
      sent.push(request);
      const replies = await run(...request);
      if (sent.length > 1) return replies;
      await latch.countDown();
      return replies.map(({ node, tookMs }) => ({ node, tookMs, ok: false, error: new Error("lost") }));
    });
    onTestFinished(() => spied.mockRestore());
    expect(await latch.set(count)).toBe(true);
    expect(sent.map(([, { args }]) => args?.[0])).toEqual(["set", "down", "set"]);
    expect(await latch.count()).toBe(left);
  });

  it.each(["set", "down"])("ignores a late %s of an earlier round", async (operation) => {
    const redlock = openRedlock(server());
    const protocol = protocolOf(redlock);
    const latch = new CountDownLatch(redlock, aName());
    const sent: Parameters<typeof protocol.run>[] = [];
    const run = protocol.run.bind(protocol);
    const spied = vi.spyOn(protocol, "run").mockImplementation((...request) => {
      sent.push(request);
      return run(...request);
    });
    onTestFinished(() => spied.mockRestore());
    await latch.set(1);
    await latch.countDown("row 1");
    await latch.countDown("row 1");
    await latch.set(1);
    if (operation === "set") await latch.countDown("row 1");
    const left = await latch.count();
    for (const request of sent.slice(0, 3)) if (request[1].args?.[0] === operation) await run(...request);
    expect(await latch.count()).toBe(left);
    expect(await latch.countDown("row 1")).toBe(0);
  });

  it("is closed until it is set, and lets callers wait for this", async () => {
    const [here, there] = twoOf();
    expect(await here.count()).toBeUndefined();
    await expect(here.countDown()).rejects.toBeInstanceOf(LatchNotSetError);
    await expect(here.wait({ timeout: 20 })).rejects.toMatchObject({ code: "LATCH_CLOSED", left: undefined });
    const waiting = here.wait();
    await there.set(0);
    await waiting;
  });

  it("ends a wait by its signal immediately, even while its node does not answer", async () => {
    const redlock = openRedlock({ path: `${server().path}.none` }, { nodeTimeout: DAY_MS });
    const [controller, reason] = [new AbortController(), new Error("enough")];
    const waiting = errorOf(new CountDownLatch(redlock, aName()).wait({ signal: controller.signal }));
    controller.abort(reason);
    expect(await waiting).toBe(reason);
  });

  it("ends a pending repetition of a count-down when its Redlock is closed", async () => {
    const redlock = openRedlock({ path: `${server().path}.none` }, { retryDelay: DAY_MS });
    const down = errorOf(new CountDownLatch(redlock, aName()).countDown());
    // The request is answered behind the count-down.
    expect((await redlock.inspect("any")).verdict).toBe("unknown");
    await redlock.close();
    expect(await down).toBeInstanceOf(RedlockClosedError);
  });

  it("keeps the process alive until a wait has ended, and between the tries of a count-down", async () => {
    await using child = spawnChild(new URL("./children/waits-only.ts", import.meta.url), { args: [server().path] });
    expect(await child.exited).toMatchObject({ code: 0 });
    expect(child.output).toContain("refused");
    expect(child.output).toContain("closed");
  });

  it("ends a wait by timeout, signal and close, and reports the remaining count", async () => {
    const [here, there] = twoOf();
    await here.set(2);
    const error = await here.wait({ timeout: 20 }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(LatchClosedError);
    expect(String(error)).toMatch(/is closed, 2 to count down/);
    const reason = new Error("enough");
    await expect(here.wait({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    const controller = new AbortController();
    const cancelled = there.wait({ signal: controller.signal });
    controller.abort(reason);
    await expect(cancelled).rejects.toBe(reason);
    const redlock = openRedlock(server());
    const closed = new CountDownLatch(redlock, here.name).wait().catch((thrown: unknown) => thrown);
    await redlock.close();
    expect(await closed).toBeInstanceOf(RedlockClosedError);
  });
});

describe("the waiters of one process at one latch", () => {
  const there = () => openRedlock(server());

  it("cost the server one read at a time, however many they are", async () => {
    const redlock = openRedlock(server());
    const latch = new CountDownLatch(redlock, aName());
    await latch.set(1);
    const [reads, subscribed] = [await server().calls("evalsha"), await server().calls("subscribe")];
    const { untilAnswered, pass } = holdNextRead(protocolOf(redlock));
    const waiting: Promise<void>[] = [];
    for (let turn = 0; turn < 200; turn += 1) {
      waiting.push(...Array.from({ length: 3 }, () => new CountDownLatch(redlock, latch.name).wait()));
      await setImmediate();
    }
    await untilAnswered;
    pass();
    await latch.countDown();
    await Promise.all(waiting);
    expect((await server().calls("evalsha")) - reads).toBeLessThan(100);
    expect((await server().calls("subscribe")) - subscribed).toBe(1);
  });

  it("still receive the message when one waiter has cancelled", async () => {
    const { latch, protocol } = openWatched();
    await latch.set(1);
    const read = holdNextRead(protocol);
    const [controller, reason] = [new AbortController(), new Error("enough")];
    const [cancelled, waiting] = [errorOf(latch.wait({ signal: controller.signal })), latch.wait()];
    await read.untilAnswered;
    controller.abort(reason);
    expect(await cancelled).toBe(reason);
    read.pass();
    await latch.count();
    await new CountDownLatch(there(), latch.name).countDown();
    await waiting;
  });

  it("leave the channel when the last one ends, and a later wait subscribes again", async () => {
    const { latch, protocol } = openWatched();
    const channels = (): Promise<unknown> => server().call("PUBSUB", "CHANNELS", `*{${latch.name}}*`);
    const controller = new AbortController();
    const waiting = [1, 2].map(() => errorOf(latch.wait({ signal: controller.signal })));
    await expect.poll(channels).toHaveLength(1);
    controller.abort();
    await Promise.all(waiting);
    await expect.poll(channels).toHaveLength(0);
    await latch.set(1);
    const read = holdNextRead(protocol);
    const next = latch.wait();
    await read.untilAnswered;
    read.pass();
    await latch.count();
    await new CountDownLatch(there(), latch.name).countDown();
    await next;
  });

  it("notice a message that arrives during a read", async () => {
    const { latch, protocol } = openWatched();
    await latch.set(1);
    const arrived = deferred<void>();
    const subscribe = protocol.subscribe.bind(protocol);
    vi.spyOn(protocol, "subscribe").mockImplementation((channel, listener) =>
      subscribe(channel, (...message) => {
        listener(...message);
        arrived.resolve();
      }),
    );
    const { untilAnswered, pass } = holdNextRead(protocol);
    const waiting = latch.wait();
    await untilAnswered;
    await new CountDownLatch(there(), latch.name).countDown();
    await arrived.promise;
    pass();
    await waiting;
  });

  it("do not use the reply to a read from before their call", async () => {
    const { latch, protocol } = openWatched();
    await latch.set(1);
    const { untilAnswered, pass } = holdNextRead(protocol);
    const early = latch.wait();
    await untilAnswered;
    await new CountDownLatch(there(), latch.name).countDown();
    const late = latch.wait({ timeout: 0 });
    await setImmediate();
    pass();
    await Promise.all([early, late]);
  });

  it("continue because of another waiter's read if the message is lost", async () => {
    const { latch, protocol } = openWatched();
    vi.spyOn(protocol, "subscribe").mockResolvedValue(() => undefined);
    await latch.set(1);
    const read = holdNextRead(protocol);
    const early = latch.wait();
    await read.untilAnswered;
    read.pass();
    await setImmediate();
    await new CountDownLatch(there(), latch.name).countDown();
    await latch.wait();
    await early;
  });
});
