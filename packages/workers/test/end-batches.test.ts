import { setImmediate as turn } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { EndBatches } from "../src/end-batches.ts";
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
  it("are sent at once while no answer is awaited", async () => {
    const commands = new Commands();
    const first = commands.batches.add("a");
    expect(commands.sent).toEqual([["a"]]);
    await commands.answer();
    expect(await first).toBe("a done");
    void commands.batches.add("b");
    expect(commands.sent).toEqual([["a"], ["b"]]);
  });

  it("are gathered until the answer is there, and each gets its own", async () => {
    const commands = new Commands();
    const replies = ["a", "b", "c"].map((end) => commands.batches.add(end));
    expect(commands.sent).toEqual([["a"]]);
    await commands.answer();
    expect(commands.sent).toEqual([["a"], ["b", "c"]]);
    await commands.answer();
    expect(await Promise.all(replies)).toEqual(["a done", "b done", "c done"]);
  });

  it("do not wait when sixteen are gathered", () => {
    const commands = new Commands();
    for (const name of names(1 + 16 + 3)) void commands.batches.add(name);
    expect(commands.sent.map((ends) => ends.length)).toEqual([1, 16]);
  });

  it("fail alone", async () => {
    const commands = new Commands();
    void commands.batches.add("first");
    const ends = Promise.allSettled(["a", "b"].map((end) => commands.batches.add(end)));
    await commands.answer();
    const reason = new Error("no such job");
    await commands.answer([reason, "b done"]);
    expect(await ends).toEqual([
      { status: "rejected", reason },
      { status: "fulfilled", value: "b done" },
    ]);
  });

  it("fail alone in Redis", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.addBulk(jobs(30, (i) => `k${i}`));
    lab.worker(
      async (job) => {
        // What BullMQ's script looks into is of another type.
        if (job.data.i % 10 === 5) await lab.redis.set(`${queue.toKey(String(job.id))}:dependencies`, "no set");
      },
      { key: "k", concurrency: 30 },
    );
    await finished(queue, 30);
    expect(await queue.getJobCounts("completed", "failed", "active")).toEqual({ completed: 27, failed: 3, active: 0 });
    for (const job of await queue.getFailed()) expect(job.failedReason).toContain("WRONGTYPE");
    expect(await lab.leftovers()).toEqual([]);
  });

  it("fail together with their command, and the next ones are sent", async () => {
    const commands = new Commands();
    const ends = Promise.allSettled(["first", "second"].map((end) => commands.batches.add(end)));
    const reason = new Error("READONLY");
    await commands.fail(reason);
    expect(commands.sent).toEqual([["first"], ["second"]]);
    await commands.answer();
    expect(await ends).toEqual([
      { status: "rejected", reason },
      { status: "fulfilled", value: "second done" },
    ]);
  });
});
