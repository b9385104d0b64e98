/** A path that finds no key: the jobs run without a lock, and the worker warns. */
import { describe, expect, it, vi } from "vitest";
import { finished, jobs, Lab } from "./support/lab.ts";

describe("a worker warns", () => {
  it("once, if the first 20 jobs have no key", async () => {
    await using lab = await Lab.start();
    using warned = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
    const queue = lab.queue();
    lab.worker(undefined, { key: "accountID" as "k" });
    await queue.addBulk(jobs(19, () => "a"));
    await finished(queue, 19);
    expect(warned).not.toHaveBeenCalled();
    await queue.addBulk(jobs(30, () => "a"));
    await finished(queue, 49);
    expect(warned).toHaveBeenCalledExactlyOnceWith(
      expect.stringMatching(/^queue q: the first 20 jobs have no key, so each ran without a lock/),
      { type: "ExclusiveWorkerWarning", code: "X_WORKERS_NO_KEY" },
    );
  });

  it("not at all, if one of them has a key, or if jobs without a key fail", async () => {
    await using lab = await Lab.start();
    using warned = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
    const [mixed, strict] = [lab.queue("mixed"), lab.queue("strict")];
    lab.worker(undefined, {}, "mixed");
    lab.worker(undefined, { withoutKey: "fail" }, "strict");
    await mixed.addBulk(jobs(40, (i) => (i === 10 ? "a" : undefined)));
    await strict.addBulk(jobs(40, () => undefined));
    await Promise.all([finished(mixed, 40), finished(strict, 40)]);
    expect(warned).not.toHaveBeenCalled();
  });

  it.each(["data", "job"])("once, about a path that begins with %s, when it runs", async (first) => {
    await using lab = await Lab.start();
    using warned = vi.spyOn(process, "emitWarning").mockImplementation(() => {});
    const worker = lab.worker(undefined, { key: `${first}.k` as "k", autorun: false });
    expect(warned).not.toHaveBeenCalled();
    void worker.run();
    await worker.pause();
    void worker.resume();
    expect(warned).toHaveBeenCalledExactlyOnceWith(
      expect.stringContaining(`key is "${first}.k": a path begins in job.data, so this is the field ${first} of`),
      { type: "ExclusiveWorkerWarning", code: "X_WORKERS_KEY_PATH" },
    );
  });
});
