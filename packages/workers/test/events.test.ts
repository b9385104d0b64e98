import { type WorkerEvents } from "@x/workers";
import { describe, expect, it } from "vitest";
import { finished, jobs, Lab, listen, redlockOn, until } from "./support/lab.ts";

const NAMES = ["parked", "locked", "yielded", "woken", "released", "keyPaused", "keyResumed"] as const;

describe("the events of an exclusive worker", () => {
  it("go to its listeners and to the channels alike", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const events: [string, unknown][] = [];
    const messages = NAMES.map((name) => [name, listen(lab, `x.workers.${name}`)] as const);
    const held = await redlockOn(lab, lab.connection).acquire("a");
    const worker = lab.worker(undefined, { concurrency: 1, timeout: 10, recheckInterval: 60_000 });
    for (const name of NAMES) worker.on(name, (message: WorkerEvents[typeof name]) => events.push([name, message]));
    await worker.pauseKey("other", "for a test");
    await worker.resumeKey("other");
    await queue.addBulk([...jobs(2, () => "a"), ...jobs(1, () => "b")]);
    await until(() => ["yielded", "parked"].every((each) => events.some(([name]) => name === each)));
    await held.release();
    await finished(queue, 3);
    await until(() => events.filter(([name]) => name === "released").length === 3);
    const told = (name: string): unknown[] => events.filter(([each]) => each === name).map(([, message]) => message);
    for (const [name, onChannel] of messages) expect(onChannel).toEqual(told(name));
    const first = { queue: "q", jobId: "1", keys: ["a"] };
    expect(told("keyPaused")).toEqual([{ queue: "q", key: "other", reason: "for a test" }]);
    expect(told("keyResumed")).toEqual([{ queue: "q", key: "other" }]);
    expect(told("parked")).toEqual([{ queue: "q", jobs: 1 }]);
    expect(told("yielded")).toEqual([{ ...first, reason: "held", delayMs: 60_000 }]);
    expect(told("woken")).toEqual([first]);
    const facts = { ...first, fencingToken: expect.any(Number) };
    expect(told("locked")).toContainEqual({ ...facts, waitMs: expect.any(Number) });
    expect(told("released")).toContainEqual({ ...facts, heldMs: expect.any(Number), confirmed: true });
  });

  it("are told once to a listener of once(), and not to one that was removed", async () => {
    await using lab = await Lab.start();
    const worker = lab.worker();
    const heard: string[] = [];
    const removed = (): void => void heard.push("removed");
    worker.once("keyPaused", ({ key }) => heard.push(key));
    worker.on("keyPaused", removed).off("keyPaused", removed);
    for (const key of ["a", "b"]) await worker.pauseKey(key);
    expect(heard).toEqual(["a"]);
  });

  it("go on when a listener throws, which is an error event", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const worker = lab.worker();
    worker.on("locked", () => {
      throw new Error("a listener's");
    });
    await queue.addBulk(jobs(3, () => "a"));
    await finished(queue, 3);
    expect(lab.errors.map(String)).toEqual(Array.from({ length: 3 }, () => "Error: a listener's"));
  });
});
