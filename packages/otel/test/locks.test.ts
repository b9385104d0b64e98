import { channel } from "node:diagnostics_channel";
import { context, SpanStatusCode, trace } from "@opentelemetry/api";
import { instrument } from "@x/otel";
import { LockHeldError, Redlock } from "@x/redlock-core";
import { deferred } from "@x/redlock-core/kit";
import { type RedisServer, startRedis } from "@x/test-support";
import { afterAll, beforeAll, expect, it } from "vitest";
import { parentOf, startSdk } from "./support/sdk.ts";

let server: RedisServer;

beforeAll(async () => {
  server = await startRedis();
});

afterAll(async () => await server.stop());

it("draws a lock under its caller, with the calls of the routine as children", async () => {
  await using sdk = await startSdk();
  await using redlock = new Redlock(server.url);
  await sdk.tracer.startActiveSpan("request", async (request) => {
    await redlock.using("account:42", async (lock) => {
      sdk.tracer.startSpan("charge").end();
      await lock.extend();
    });
    request.end();
  });
  await expect.poll(() => sdk.spans().length).toBe(7);
  const spans = sdk.spans();
  expect(Object.fromEntries(spans.map((span) => [span.name, parentOf(span, spans)]))).toEqual({
    request: undefined,
    "lock using account:*": "request",
    "lock acquire account:*": "lock using account:*",
    "lock hold account:*": "lock using account:*",
    charge: "lock using account:*",
    "lock extend account:*": "lock using account:*",
    "lock release account:*": "lock using account:*",
  });
  const acquire = spans.find(({ name }) => name.startsWith("lock acquire"));
  expect(acquire?.attributes).toMatchObject({
    "x.lock.resources": ["account:42"],
    "x.lock.acquired": true,
    "x.fencing_token": expect.any(Number),
  });
});

it("separates the traces of callers in the same line, and shows a refusal as an error", async () => {
  await using sdk = await startSdk({ name: (resource) => resource.toUpperCase() });
  await using redlock = new Redlock(server.url);
  const lock = await redlock.acquire("line");
  const ask = async (name: string, timeout: number): Promise<unknown> =>
    await sdk.tracer.startActiveSpan(name, async (span) => {
      const result = await redlock.acquire("line", { timeout }).catch((error: unknown) => error);
      span.end();
      return result;
    });
  const first = ask("first", 10_000);
  expect(await ask("second", 50)).toBeInstanceOf(LockHeldError);
  await lock.release();
  await ((await first) as AsyncDisposable)[Symbol.asyncDispose]();
  const spans = sdk.spans();
  const acquired = spans.filter(({ name }) => name === "lock acquire LINE");
  expect(acquired.map((span) => parentOf(span, spans))).toEqual([undefined, "second", "first"]);
  const [, refused] = acquired;
  expect(refused?.status).toMatchObject({ code: SpanStatusCode.ERROR });
  expect(refused?.events[0]?.name).toBe("exception");
});

it("counts held, awaited and lost locks for Prometheus", async () => {
  await using sdk = await startSdk();
  await using redlock = new Redlock(server.url);
  const lock = await redlock.acquire("stock:1");
  const waiting = redlock.acquire("stock:1", { timeout: 10_000 });
  const during = await sdk.scrape();
  expect(during.get('x_lock_held{x_lock_name="stock:*"}')).toBe(1);
  expect(during.get('x_lock_waiting{x_lock_name="stock:*"}')).toBe(1);
  await lock.release();
  await redlock.forceRelease("stock:1");
  const taken = await waiting;
  await redlock.forceRelease("stock:1");
  expect(taken.signal.aborted).toBe(true);
  await taken.release();
  const after = await sdk.scrape();
  expect(after.get('x_lock_held{x_lock_name="stock:*"}')).toBe(0);
  expect(after.get('x_lock_waiting{x_lock_name="stock:*"}')).toBe(0);
  expect(after.get('x_lock_lost_total{x_lock_name="stock:*",x_lock_loss_reason="forced"}')).toBe(1);
  expect(after.get('x_lock_wait_duration_count{x_lock_name="stock:*",x_lock_outcome="acquired"}')).toBe(2);
  expect(after.get('x_lock_hold_duration_count{x_lock_name="stock:*"}')).toBe(2);
});

it("ends open spans and counts when it is stopped", async () => {
  await using sdk = await startSdk();
  await using redlock = new Redlock(server.url);
  const end = deferred<void>();
  const running = redlock.using("shut:1", () => end.promise);
  await expect.poll(() => redlock.inspect("shut:1").then(({ verdict }) => verdict)).toBe("held");
  const waiting = redlock.acquire("shut:1", { timeout: 10_000 });
  const held = async (): Promise<readonly (number | undefined)[]> => {
    const samples = await sdk.scrape();
    return ["held", "waiting"].map((name) => samples.get(`x_lock_${name}{x_lock_name="shut:*"}`));
  };
  expect(await held()).toEqual([1, 1]);
  sdk.stop();
  expect(await held()).toEqual([0, 0]);
  expect(
    sdk
      .spans()
      .map(({ name }) => name)
      .toSorted(),
  ).toEqual(["lock acquire shut:*", "lock acquire shut:*", "lock hold shut:*", "lock using shut:*"]);
  end.resolve();
  await running;
  await (await waiting).release();
  expect(await held()).toEqual([0, 0]);
});

it("reports a node that is down, and its return", async () => {
  await using own = await startRedis();
  await using sdk = await startSdk();
  await using redlock = new Redlock(own.url);
  await (await redlock.acquire("a")).release();
  const up = async (): Promise<number | undefined> =>
    [...(await sdk.scrape())].find(([name]) => name.startsWith("x_lock_node_up"))?.[1];
  await own.kill();
  await expect.poll(up).toBe(0);
  await own.start();
  await expect.poll(up, { timeout: 10_000 }).toBe(1);
});

it("reports a node as down during its quarantine, and as up afterwards", async () => {
  await using sdk = await startSdk();
  const node = channel("x.redlock.nodeChanged");
  const up = async (): Promise<number | undefined> => (await sdk.scrape()).get('x_lock_node_up{x_lock_node="n1"}');
  node.publish({ node: "n1", state: "ready" });
  node.publish({ node: "n1", state: "quarantined", quarantineLeftMs: 500 });
  expect(await up()).toBe(0);
  await expect.poll(up).toBe(1);
  node.publish({ node: "n1", state: "quarantined", quarantineLeftMs: 60_000 });
  expect(await up()).toBe(0);
});

it("reports nothing and keeps no subscription after its stop function", async () => {
  await using sdk = await startSdk();
  await using redlock = new Redlock(server.url);
  sdk.stop();
  await redlock.using("gone", async () => undefined);
  expect(sdk.spans()).toEqual([]);
  expect([...(await sdk.scrape()).keys()].filter((name) => name.startsWith("x_"))).toEqual([]);
});

it("breaks nothing if the name function throws", async () => {
  await using sdk = await startSdk({
    name: () => {
      throw new Error("own mistake");
    },
  });
  await using redlock = new Redlock(server.url);
  expect(await redlock.using("named", async () => "done")).toBe("done");
  await expect.poll(() => sdk.spans().map(({ name }) => name)).toContain("lock acquire ?");
});

it("leaves the active span of the caller alone", async () => {
  await using sdk = await startSdk();
  await using redlock = new Redlock(server.url);
  await sdk.tracer.startActiveSpan("outer", async (outer) => {
    const lock = await redlock.acquire("plain");
    expect(trace.getActiveSpan()).toBe(outer);
    await lock.release();
    outer.end();
  });
});

it("draws calls without OpenTelemetry's context manager", async () => {
  await using sdk = await startSdk();
  await using redlock = new Redlock(server.url);
  sdk.stop();
  context.disable();
  const stop = instrument({ tracer: sdk.tracer });
  await redlock.using("alone", async () => undefined);
  const names = (): readonly string[] => sdk.spans().map(({ name }) => name);
  await expect
    .poll(() => names().toSorted())
    .toEqual(["lock acquire alone", "lock hold alone", "lock release alone", "lock using alone"]);
  stop();
});

it("counts each renewal that left less than a third of the lease, for the alerts", async () => {
  await using sdk = await startSdk();
  const lock = { resources: ["account:42"], fencingToken: 1, votes: [], tookMs: 1, ttlMs: 10_000 };
  for (const remainingMs of [0, 3_000, 3_400, 60_000])
    channel("x.redlock.extendFailed").publish({ ...lock, remainingMs });
  const term = { election: "billing", candidate: "a", term: 1, error: new Error("late"), deadlineMs: 10_000 };
  for (const remainingMs of [3_000, 9_000]) channel("x.leader.renewFailed").publish({ ...term, remainingMs });
  const samples = await sdk.scrape();
  const ofLock = (le: string): unknown =>
    samples.get(`x_lock_validity_share_bucket{x_lock_name="account:*",x_lock_extended="false",le="${le}"}`);
  expect([ofLock("0.33"), ofLock("0.5"), ofLock("1")]).toEqual([2, 3, 4]);
  const ofLeader = (le: string): unknown =>
    samples.get(`x_leader_renewal_share_bucket{x_leader_election="billing",le="${le}"}`);
  expect([ofLeader("0.33"), ofLeader("1")]).toEqual([1, 2]);
});
