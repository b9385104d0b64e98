import { channel } from "node:diagnostics_channel";
import { trace } from "@opentelemetry/api";
import { deferred } from "@x/redlock-core/kit";
import { type RedisServer, startRedis } from "@x/test-support";
import { ExclusiveQueue, ExclusiveWorker } from "@x/workers";
import { Queue } from "bullmq";
import { BullMQOtel } from "bullmq-otel";
import { Redis } from "ioredis";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import { connectionOf, parentOf, startSdk } from "./support/sdk.ts";

let server: RedisServer;

beforeAll(async () => {
  server = await startRedis();
});

afterAll(async () => await server.stop());

it("draws a job with the calls of its processor as children", async () => {
  await using sdk = await startSdk();
  const queue = new Queue("plain", { connection: connectionOf(server) });
  const worker = new ExclusiveWorker("plain", async () => sdk.tracer.startSpan("charge").end(), {
    connection: connectionOf(server),
    key: "account",
  });
  onTestFinished(async () => void (await Promise.all([worker.close(), queue.close()])));
  await queue.add("pay", { account: 42 }, { jobId: "first" });
  await expect.poll(() => sdk.spans().some(({ name }) => name === "exclusive job plain")).toBe(true);
  const spans = sdk.spans();
  const job = spans.find(({ name }) => name === "exclusive job plain");
  expect(job?.attributes).toMatchObject({
    "x.workers.job_id": "first",
    "x.workers.keys": ["42"],
    "x.fencing_token": expect.any(Number),
  });
  const charge = spans.find(({ name }) => name === "charge");
  expect(charge && parentOf(charge, spans)).toBe("exclusive job plain");
});

it("adds the job's keys and fencing token to BullMQ's own span", async () => {
  await using sdk = await startSdk();
  trace.setGlobalTracerProvider({ getTracer: () => sdk.tracer });
  const telemetry = new BullMQOtel({ tracerName: "shop" });
  const queue = new ExclusiveQueue("traced", { connection: connectionOf(server), telemetry });
  const worker = new ExclusiveWorker("traced", async () => "paid", {
    connection: connectionOf(server),
    key: "account",
    telemetry,
  });
  onTestFinished(async () => void (await Promise.all([worker.close(), queue.close()])));
  // As if the job had waited in line for an hour.
  await queue.pauseKey("42");
  await queue.add("pay", { account: 42 }, { jobId: "parked" });
  await expect.poll(async () => (await queue.jobsOf("42")).parked).toEqual(["parked"]);
  const redis = new Redis(connectionOf(server));
  await redis.hset("bull:traced:parked", "lp", Date.now() - 3_600_000);
  redis.disconnect();
  await queue.resumeKey("42");
  const found = (): Partial<Record<"job" | "own", ReturnType<typeof sdk.spans>[number]>> => {
    const spans = sdk.spans();
    const job = spans.find(({ name }) => name === "exclusive job traced");
    const own = spans.find((span) => span.spanContext().spanId === job?.parentSpanContext?.spanId);
    return job === undefined || own === undefined ? {} : { job, own };
  };
  // BullMQ's span ends after the span inside it.
  await expect.poll(() => found().own).toBeDefined();
  trace.disable();
  const { job, own } = found();
  for (const { attributes } of [job, own].flatMap((span) => span ?? [])) {
    expect(attributes["x.workers.parked"]).toBeGreaterThanOrEqual(3_600);
  }
  const sum = (await sdk.scrape()).get('x_workers_parked_duration_sum{x_workers_queue="traced"}');
  expect(sum).toBeGreaterThanOrEqual(3_600);
  expect(own?.attributes).toMatchObject({ "bullmq.queue.name": "traced", "x.workers.keys": ["42"] });
  expect(own?.attributes["x.fencing_token"]).toBe(job?.attributes["x.fencing_token"]);
});

it("counts jobs and keys of the given queues, and the keys with the longest lines", async () => {
  const connection = connectionOf(server);
  const queue = new ExclusiveQueue("counted", { connection });
  let release = (): void => undefined;
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  const worker = new ExclusiveWorker("counted", async () => await held, { connection, key: "account", concurrency: 4 });
  onTestFinished(async () => void (await Promise.all([worker.close(), queue.close()])));
  {
    await using sdk = await startSdk({ queues: [queue], topKeys: 1 });
    const accounts = [1, 1, 1, 2, 2];
    await queue.addBulk(accounts.map((account) => ({ name: "pay", data: { account } })));
    const sample = async (name: string): Promise<number | undefined> => (await sdk.scrape()).get(name);
    const jobs = (state: string): string => `x_workers_jobs{x_workers_queue="counted",x_workers_state="${state}"}`;
    await expect.poll(() => sample(jobs("parked"))).toBe(3);
    expect(await sample(jobs("active"))).toBe(2);
    expect(await sample('x_workers_keys{x_workers_queue="counted",x_workers_state="busy"}')).toBe(2);
    expect(await sample('x_workers_key_waiting{x_workers_queue="counted",x_workers_key="1"}')).toBe(2);
    expect(await sample('x_workers_key_waiting{x_workers_queue="counted",x_workers_key="2"}')).toBeUndefined();
    release();
    await expect.poll(() => sample(jobs("active"))).toBe(0);
    await expect.poll(() => sample('x_workers_lock_hold_duration_count{x_workers_queue="counted"}')).toBe(5);
  }
});

it("counts the messages of partitions for their queue", async () => {
  await using sdk = await startSdk({});
  for (const queue of ["{divided-3of16}", "{divided-4of16}"])
    channel("x.workers.yielded").publish({ queue, jobId: "1", keys: ["42"], reason: "held" });
  expect((await sdk.scrape()).get('x_workers_yielded_total{x_workers_queue="divided",x_workers_reason="held"}')).toBe(
    2,
  );
});

it("neither waits for a queue that does not answer nor queries it again", async () => {
  const untilAnswered = deferred<void>();
  const counts = { runnable: 7, active: 0, parked: 0, busyKeys: 0, pausedKeys: 0 };
  let asked = 0;
  const hung = {
    name: "hung",
    counts: async () => {
      asked += 1;
      await untilAnswered.promise;
      return counts;
    },
    listKeys: () => Promise.resolve([]),
  };
  const fine = { name: "fine", counts: () => Promise.resolve(counts), listKeys: () => Promise.resolve([]) };
  await using sdk = await startSdk({ queues: [hung, fine] });
  const runnable = async (queue: string): Promise<number | undefined> =>
    (await sdk.scrape()).get(`x_workers_jobs{x_workers_queue="${queue}",x_workers_state="runnable"}`);
  expect(await runnable("fine")).toBe(7);
  expect([await runnable("hung"), asked]).toEqual([undefined, 1]);
  untilAnswered.resolve();
  expect(await runnable("hung")).toBe(7);
});

it("exports metrics of other queues when a queue fails", async () => {
  const broken = {
    name: "gone",
    counts: () => Promise.reject(new Error("no Redis")),
    listKeys: () => Promise.resolve([]),
  };
  const counts = { runnable: 7, active: 0, parked: 0, busyKeys: 0, pausedKeys: 0 };
  const fine = { name: "fine", counts: () => Promise.resolve(counts), listKeys: () => Promise.resolve([]) };
  await using sdk = await startSdk({ queues: [broken, fine] });
  const samples = await sdk.scrape();
  expect(samples.get('x_workers_jobs{x_workers_queue="fine",x_workers_state="runnable"}')).toBe(7);
  expect([...samples.keys()].some((name) => name.includes("gone"))).toBe(false);
});
