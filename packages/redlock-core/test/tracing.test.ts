import { AsyncLocalStorage } from "node:async_hooks";
import { tracingChannel } from "node:diagnostics_channel";
import { type HeapProfiler, Session } from "node:inspector/promises";
import { LockHeldError, Redlock } from "@x/redlock-core";
import { type RedisServer, startRedis } from "@x/test-support";
import { afterAll, beforeAll, expect, it } from "vitest";

let server: RedisServer;

beforeAll(async () => {
  server = await startRedis();
});

afterAll(async () => await server.stop());

interface Facts {
  readonly resources: readonly string[];
  readonly fencingToken?: number;
  readonly result?: unknown;
  readonly error?: unknown;
}

/** Records the messages of the tracing channels and their callers until the scope ends. */
function listen(caller: AsyncLocalStorage<string>) {
  const told: string[] = [];
  const facts: Facts[] = [];
  const stops = ["acquire", "using", "extend", "release"].map((call) => {
    const note =
      (what: string) =>
      (message: unknown): void => {
        told.push(`${call} ${what} of ${caller.getStore()}`);
        if (what === "end") facts.push(message as Facts);
      };
    const nothing = (): void => undefined;
    const listeners = {
      start: note("start"),
      end: nothing,
      asyncStart: nothing,
      asyncEnd: note("end"),
      error: nothing,
    };
    const channels = tracingChannel<unknown, object>(`x.redlock:${call}`);
    channels.subscribe(listeners);
    return () => channels.unsubscribe(listeners);
  });
  return {
    told,
    facts,
    [Symbol.dispose]() {
      for (const stop of stops) stop();
    },
  };
}

it("publishes each call in its caller's asynchronous context, with its result", async () => {
  const caller = new AsyncLocalStorage<string>();
  await using redlock = new Redlock(server.url);
  using heard = listen(caller);
  const end = await caller.run("a", () =>
    redlock.using("traced", async (lock) => {
      await lock.extend(10_000);
      return "done";
    }),
  );
  expect(end).toBe("done");
  expect(heard.told).toEqual([
    "using start of a",
    "acquire start of a",
    "acquire end of a",
    "extend start of a",
    "extend end of a",
    "release start of a",
    "release end of a",
    "using end of a",
  ]);
  const [acquired, , released, used] = heard.facts;
  expect(acquired).toMatchObject({ resources: ["traced"], result: { resources: ["traced"] } });
  expect(released).toMatchObject({ fencingToken: expect.any(Number), result: true });
  expect(used).toMatchObject({ resources: ["traced"], result: "done" });
});

it("separates callers that wait in one local line, and names the refused caller", async () => {
  const caller = new AsyncLocalStorage<string>();
  await using redlock = new Redlock(server.url);
  const lock = await redlock.acquire("line");
  using heard = listen(caller);
  const first = caller.run("first", () => redlock.acquire("line"));
  const second = caller.run("second", () => redlock.acquire("line", { timeout: 50 }).catch((error: unknown) => error));
  expect(await second).toBeInstanceOf(LockHeldError);
  expect(await caller.run("third", () => redlock.tryAcquire("line"))).toBeNull();
  await lock.release();
  await (await first).release();
  expect(heard.told.filter((each) => each.startsWith("acquire end"))).toEqual([
    "acquire end of second",
    "acquire end of third",
    "acquire end of first",
  ]);
  const [refused, tried] = heard.facts;
  expect(refused?.error).toBeInstanceOf(LockHeldError);
  expect(tried).toMatchObject({ result: null });
});

/** Bytes that Node's channels and `Traced` allocate for one run of `call`, by the samples that V8 takes. */
async function allocatedByTracing(call: () => Promise<unknown>): Promise<number> {
  const runs = 200;
  const session = new Session();
  session.connect();
  for (let run = 0; run < runs; run += 1) await call();
  await session.post("HeapProfiler.startSampling", {
    samplingInterval: 64,
    includeObjectsCollectedByMajorGC: true,
    includeObjectsCollectedByMinorGC: true,
  } as HeapProfiler.StartSamplingParameterType);
  for (let run = 0; run < runs; run += 1) await call();
  const { profile } = await session.post("HeapProfiler.stopSampling");
  session.disconnect();
  const bytes = ({ callFrame, selfSize, children }: HeapProfiler.SamplingHeapProfileNode): number =>
    (/node:diagnostics_channel|\/kit\/emitter\./.test(callFrame.url) ? selfSize : 0) +
    children.reduce((sum, child) => sum + bytes(child), 0);
  return bytes(profile.head) / runs;
}

it("allocates nothing for a call without a subscriber", async () => {
  await using redlock = new Redlock(server.url);
  const pair = async (): Promise<unknown> => await (await redlock.acquire("untraced")).release();
  // A closure with its context has some 100 bytes in each look. V8's own notes about a function appear in some of these
  // checks.
  let least = Number.POSITIVE_INFINITY;
  for (let look = 0; look < 10 && least >= 24; look += 1) least = Math.min(least, await allocatedByTracing(pair));
  expect(least).toBeLessThan(24);
  using _ = listen(new AsyncLocalStorage<string>());
  expect(await allocatedByTracing(pair)).toBeGreaterThan(500);
});
