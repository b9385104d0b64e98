import { setImmediate as turn } from "node:timers/promises";
import { until } from "@x/test-support";
import { describe, expect, it } from "vitest";
import { EndBatches } from "../src/bullmq/end-batches.ts";
import { finished, jobs, Lab } from "./support/lab.ts";

/** Commands that are answered by hand. */
class Commands {
  readonly sent: (readonly string[])[] = [];
  readonly #answers: { resolve(replies: readonly unknown[]): void; reject(error: Error): void }[] = [];
  readonly batches: EndBatches<string> = new EndBatches(
    (ends) =>
      new Promise((resolve, reject) => {
        this.sent.push(ends);
        this.#answers.push({ resolve, reject });
      }),
  );

  async answer(replies?: readonly unknown[]): Promise<void> {
    const ends = this.sent[this.sent.length - this.#answers.length] ?? [];
    this.#answers.shift()?.resolve(replies ?? ends.map((end) => `${end} done`));
    await turn();
  }

  async fail(error: Error): Promise<void> {
    this.#answers.shift()?.reject(error);
    await turn();
  }
}

const names = (count: number): string[] => Array.from({ length: count }, (_, index) => `end ${index}`);

describe("ends of jobs", () => {
  it("are sent in one command at the end of the turn of the event loop in which they were added", async () => {
    const commands = new Commands();
    const replies = ["a", "b"].map((end) => commands.batches.add(end));
    expect(commands.sent).toEqual([]);
    await turn();
    expect(commands.sent).toEqual([["a", "b"]]);
    await commands.answer();
    expect(await Promise.all(replies)).toEqual(["a done", "b done"]);
  });

  it("are collected while two commands await replies, until one reply arrives, and each end gets its own reply", async () => {
    const commands = new Commands();
    const replies: Promise<unknown>[] = [];
    for (const name of ["a", "b", "c", "d"]) {
      replies.push(commands.batches.add(name));
      await turn();
    }
    expect(commands.sent).toEqual([["a"], ["b"]]);
    await commands.answer();
    expect(commands.sent).toEqual([["a"], ["b"], ["c", "d"]]);
    await commands.answer();
    await commands.answer();
    expect(await Promise.all(replies)).toEqual(["a done", "b done", "c done", "d done"]);
  });

  it("are sent without waiting when sixteen are collected", () => {
    const commands = new Commands();
    for (const name of names(2 * 16 + 3)) void commands.batches.add(name);
    expect(commands.sent.map((ends) => ends.length)).toEqual([16, 16]);
  });

  it("fail one by one, if only their own reply is an error", async () => {
    const commands = new Commands();
    const ends = Promise.allSettled(["a", "b"].map((end) => commands.batches.add(end)));
    await turn();
    const reason = new Error("no such job");
    await commands.answer([reason, "b done"]);
    expect(await ends).toEqual([
      { status: "rejected", reason },
      { status: "fulfilled", value: "b done" },
    ]);
  });

  it("are reported in order before any of them resolves, and an end whose listener throws fails alone", async () => {
    const told: string[] = [];
    let answer: (replies: readonly unknown[]) => void = () => undefined;
    const send = (): Promise<readonly unknown[]> => new Promise((resolve) => (answer = resolve));
    const batches = new EndBatches<string>(send, {
      onReply: (end, reply) => {
        told.push(`${end} ${String(reply)}`);
        if (end === "b") throw new Error("a listener failed");
        return `${end} told`;
      },
      onFailure: (end) => told.push(`${end} failed`),
    });
    const ends = Promise.allSettled(["a", "b", "c", "d"].map((end) => batches.add(end).finally(() => told.push("."))));
    await turn();
    answer(["done", "done", new Error("no such job"), "done"]);
    expect((await ends).map((end) => (end.status === "fulfilled" ? end.value : String(end.reason)))).toEqual([
      "a told",
      "Error: a listener failed",
      "Error: no such job",
      "d told",
    ]);
    expect(told).toEqual(["a done", "b done", "c failed", "d done", ".", ".", ".", "."]);
  });

  it("fail one by one if Redis refuses only their own commands", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.addBulk(jobs(30, (i) => `k${i}`));
    lab.worker(
      async (job) => {
        // A key that BullMQ's script reads has another type.
        if (job.data.i % 10 === 5) await lab.redis.set(`${queue.toKey(String(job.id))}:dependencies`, "no set");
      },
      { key: "k", concurrency: 30 },
    );
    await finished(queue, 30);
    expect(await queue.getJobCounts("completed", "failed", "active")).toEqual({ completed: 27, failed: 3, active: 0 });
    for (const job of await queue.getFailed()) expect(job.failedReason).toContain("WRONGTYPE");
    expect(await lab.leftovers()).toEqual([]);
  });

  it("are accepted with null for an option that is not set", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.addBulk(jobs(9, (i) => `k${i}`));
    const removeOnComplete = { age: null, count: 3 } as never;
    const worker = lab.worker(undefined, { key: "k", concurrency: 1, removeOnComplete, limiter: null as never });
    let completed = 0;
    worker.on("completed", () => (completed += 1));
    await until(() => completed === 9);
    expect(await queue.getJobCounts("completed", "failed")).toEqual({ completed: 3, failed: 0 });
    expect(lab.errors).toEqual([]);
  });

  it("fail together if their command fails, and the next ends are still sent", async () => {
    const commands = new Commands();
    const ends: Promise<unknown>[] = [];
    for (const name of ["a", "b", "c"]) {
      ends.push(commands.batches.add(name));
      await turn();
    }
    const settled = Promise.allSettled(ends);
    const reason = new Error("READONLY");
    await commands.fail(reason);
    expect(commands.sent).toEqual([["a"], ["b"], ["c"]]);
    await commands.answer();
    await commands.answer();
    expect(await settled).toEqual([
      { status: "rejected", reason },
      { status: "fulfilled", value: "b done" },
      { status: "fulfilled", value: "c done" },
    ]);
  });
});
