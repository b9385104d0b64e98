/** Jobs that `enqueue` refuses: every job that BullMQ would refuse, because its row would block its queue forever. */
import type { RedisServer } from "@x/test-support";
import { errorOf, startRedis } from "@x/test-support";
import * as bullmq6 from "bullmq";
import * as bullmq5 from "bullmq5";
import * as bullmq566 from "bullmq566";
import { afterAll, beforeAll, expect, it } from "vitest";
import { rowOf } from "../src/rules/outbox-row.ts";

let server: RedisServer;
beforeAll(async () => {
  server = await startRedis();
});
afterAll(async () => await server.stop());

/** Options that BullMQ and `enqueue` either both accept or both refuse. */
const OPTIONS: readonly Record<string, unknown>[] = [
  {},
  ...["a", "a:b:c", "a:b", ":", "::", "1", "0", "-1", "01", "1a", ""].map((jobId) => ({ jobId })),
  ...[0, 1, 2 ** 21, 2 ** 21 + 1, 1.5].map((priority) => ({ priority })),
  { deduplication: { id: "d" } },
  { deduplication: { id: "" } },
  { deduplication: {} },
  { debounce: { id: "d" } },
  { removeDependencyOnFailure: true, failParentOnFailure: true },
  { removeDependencyOnFailure: true, failParentOnFailure: false },
  { sizeLimit: 2 },
  { sizeLimit: 14 },
  { sizeLimit: 15 },
  { backoff: { type: "fixed", delay: 1, jitter: 2 } },
  { backoff: { type: "fixed", delay: 1, jitter: 0.5 } },
  { delay: 1_000, attempts: 3, lifo: true, removeOnComplete: true, keepLogs: 3 },
];

/** An empty ID counts as none in BullMQ, and is refused here. BullMQ 5.66 also accepts the priority 2^21. */
const stricter = (options: Record<string, unknown>): boolean =>
  options["jobId"] === "" || options["priority"] === 2_097_152;

it.each([
  ["6", bullmq6.Queue],
  ["5", bullmq5.Queue as unknown as typeof bullmq6.Queue],
  ["5.66", bullmq566.Queue as unknown as typeof bullmq6.Queue],
] as const)("enqueue refuses what BullMQ %s refuses, and nothing else", async (version, Queue) => {
  const queue = new Queue(`rules${version}`, { connection: { port: server.port } });
  for (const opts of OPTIONS) {
    const data = { text: "äöü" };
    const refusal = await errorOf(queue.addBulk([{ name: "n", data, opts }])).catch(() => undefined);
    let own: unknown;
    try {
      rowOf("q", "n", data, opts);
    } catch (error) {
      own = error;
    }
    const isRefused = refusal !== undefined || stricter(opts) || (version !== "6" && "debounce" in opts);
    expect([opts, own !== undefined]).toEqual([opts, isRefused]);
    if (own !== undefined) expect([TypeError.name, RangeError.name]).toContain((own as Error).name);
  }
  await queue.close();
});

it.each([
  [{ parent: { id: "p", queue: "q" } }, "opts.parent must be left out"],
  [{ repeat: { every: 1 } }, "opts.repeat must be left out"],
  [{ repeatJobKey: "r" }, "opts.repeatJobKey must be left out"],
  [{ timestamp: 1 }, "opts.timestamp must be left out"],
  [{ delay: -1 }, "opts.delay must be an integer >= 0 (ms), got -1"],
  [{ jobId: 7 }, "opts.jobId must be an ID that BullMQ accepts"],
  [null, "opts must be an object, got null"],
])("enqueue refuses %j by name", (opts, message) => {
  expect(() => rowOf("q", "n", {}, opts as never)).toThrow(message);
});

it("enqueue refuses a queue that BullMQ refuses, and data that JSON cannot represent", () => {
  expect(() => rowOf("", "n", {})).toThrow("queue must be a queue's name");
  expect(() => rowOf("a:b", "n", {})).toThrow("queue must be a queue's name");
  expect(() => rowOf("q", "n", 1n)).toThrow("data must be a value that JSON has, got a bigint");
});

it("enqueue stores data as BullMQ does", () => {
  expect(rowOf("q", "n", undefined)).toEqual(["q", "n", "{}", "{}"]);
  expect(rowOf("q", "n", { nul: "\u0000" }, { attempts: 2 })).toEqual([
    "q",
    "n",
    '{"nul":"\\u0000"}',
    '{"attempts":2}',
  ]);
});
