import { createRequire } from "node:module";
import { type RedisServer, startRedis } from "@x/test-support";
import * as bullmq6 from "bullmq";
import * as bullmq5 from "bullmq5";
import * as bullmq566 from "bullmq566";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { JobEnd, replaceEndArguments } from "../src/bullmq/job-end.ts";

const { unpack } = createRequire(createRequire(import.meta.url).resolve("bullmq"))("msgpackr") as {
  unpack: (packed: Uint8Array) => unknown;
};
const versions = { "5.66": bullmq566, "5.81": bullmq5, "6.7": bullmq6 };

interface Target {
  moveToFinishedArgs(...args: readonly unknown[]): readonly unknown[] | JobEnd;
}

let server: RedisServer;
beforeAll(async () => {
  server = await startRedis();
});
afterAll(async () => await server.stop());

/** Calls `look` with the object through which a worker sends its commands. */
async function withTarget({ Worker }: typeof bullmq6, options: object, look: (target: Target) => void): Promise<void> {
  const connection = { path: server.path, maxRetriesPerRequest: null };
  const worker = new Worker("q", null, { connection, autorun: false, ...options });
  try {
    await worker.waitUntilReady();
    const { backend, scripts } = worker as unknown as { readonly backend?: Target; readonly scripts?: Target };
    look(backend ?? (scripts as Target));
  } finally {
    await worker.close();
  }
}

const KEYS = 14;
const ends: readonly (readonly [string, object, readonly unknown[]])[] = [
  [
    "completed",
    {},
    [{ id: "7", opts: { attempts: 3 } }, '"done"', "returnvalue", undefined, "completed", "t:1", 12, true],
  ],
  ["completed without a result", {}, [{ id: "7", opts: {} }, undefined, "returnvalue", true, "completed", "t:1", 12]],
  [
    "failed, with fields and flags",
    {
      removeOnFail: { age: 10, count: 5, limit: 7 },
      name: "w",
      metrics: { maxDataPoints: 60 },
      limiter: { max: 3, duration: 9 },
    },
    [
      { id: "7", opts: { attempts: 1, failParentOnFailure: true, removeDependencyOnFailure: true } },
      "half of a pair: \uD83D",
      "failedReason",
      undefined,
      "failed",
      "t:1",
      12,
      false,
      { failedReason: "é", stacktrace: "[]", tm: undefined },
    ],
  ],
  [
    "completed, null for options",
    { limiter: null, name: null },
    [{ id: "7", opts: {} }, "1", "returnvalue", 9, "completed", "t:1", 12],
  ],
];

it("passes limits that were changed since the last end", async () => {
  const limiter = { max: 3, duration: 9 };
  const removeOnComplete = { count: 5 };
  await withTarget(bullmq6, { limiter, removeOnComplete }, (target) => {
    replaceEndArguments(target);
    const told = (): unknown => {
      const end = target.moveToFinishedArgs(
        { id: "7", opts: {} },
        "1",
        "returnvalue",
        undefined,
        "completed",
        "t:1",
        12,
      );
      return JSON.parse((end as JobEnd).facts.options);
    };
    expect(told()).toMatchObject({ limiter: { max: 3, duration: 9 }, keepJobs: { count: 5 } });
    limiter.max = 4;
    expect(told()).toMatchObject({ limiter: { max: 4, duration: 9 }, keepJobs: { count: 5 } });
    removeOnComplete.count = 6;
    expect(told()).toMatchObject({ limiter: { max: 4, duration: 9 }, keepJobs: { count: 6 } });
  });
});

describe.each(Object.entries(versions))("the end of a job in BullMQ %s", (_version, bullmq) => {
  it.each(ends)("passes the same facts to the script as BullMQ does: %s", async (_name, options, args) => {
    await withTarget(bullmq as never, options, (target) => {
      const theirs = target.moveToFinishedArgs(...args) as readonly unknown[];
      replaceEndArguments(target);
      const ours = target.moveToFinishedArgs(...args) as JobEnd;
      const [id, time, property, value, state, fetch, prefix, packed, packedFields] = theirs.slice(KEYS);
      const { token, ...facts } = unpack(packed as Uint8Array) as { readonly token: string };
      const known = Object.entries(facts).filter(([, fact]) => (fact ?? undefined) !== undefined);
      expect(ours).toBeInstanceOf(JobEnd);
      const fields = packedFields === undefined ? [] : (unpack(packedFields as Uint8Array) as readonly unknown[]);
      const last = ["keys", "last", fields.length, ...fields];
      expect(ours.argumentsWith("keys", "last")).toEqual([
        id,
        time,
        property,
        value,
        state,
        fetch,
        ours.facts.options,
        token,
        ...last,
      ]);
      const told = Object.entries(JSON.parse(ours.facts.options) as object).filter(([, fact]) => fact !== null);
      expect(Object.fromEntries(told)).toEqual(Object.fromEntries(known));
      expect(ours.facts.prefix).toBe(prefix);
      expect(ours[15]).toBe(theirs[15]);
    });
  });
});
