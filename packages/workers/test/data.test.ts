/** Valid data of jobs that Lua cannot read. */
import { describe, expect, it } from "vitest";
import { valueAt } from "../src/rules/entity-key.ts";
import { type Data, finished, jobs, Lab } from "./support/lab.ts";

const nested = (depth: number): unknown => JSON.parse(`${"[".repeat(depth)}${"]".repeat(depth)}`);

describe("a worker whose key is a path", () => {
  it.each([
    ["half of a surrogate pair", "hello 😀".slice(0, 7)],
    ["2,000 levels", nested(2_000)],
  ])("finds the keys of jobs whose data has %s", async (_what, strange) => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    await queue.addBulk(
      Array.from({ length: 40 }, (_, i) => ({
        name: "job",
        data: i % 3 === 0 ? { k: "a", i, strange } : i % 3 === 1 ? { k: "a", i } : { i, strange },
      })),
    );
    lab.worker(undefined, { concurrency: 10 });
    await finished(queue, 40);
    expect([lab.overlaps(), lab.inversions(), lab.errors]).toEqual([[], [], []]);
    expect(lab.ran.filter(({ key }) => key === "a").map(({ i }) => i)).toEqual(
      Array.from({ length: 40 }, (_, i) => i).filter((i) => i % 3 !== 2),
    );
    expect(await lab.leftovers()).toEqual([]);
  });

  it("frees a key whose bytes are not UTF-8: first for the next job, then for every process", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const bytes = (i: number): Buffer =>
      Buffer.concat([Buffer.from('{"k":"a'), Buffer.from([0xff]), Buffer.from(`","i":${i}}`)]);
    for (const i of [0, 1, 2]) {
      await queue.add("job", { k: "", i }, { jobId: `job-${i}` });
      await lab.redis.hset(`bull:q:job-${i}`, "data", bytes(i));
    }
    lab.worker(undefined, { concurrency: 2 });
    await finished(queue, 3);
    expect([lab.overlaps(), lab.ran.map(({ i }) => i)]).toEqual([[], [0, 1, 2]]);
    expect(await lab.leftovers()).toEqual([]);
  });

  it("finds only own properties and elements of the data", () => {
    const data = JSON.parse('{"a":{"0":"zero","__proto__":"own"},"list":["x",{"id":"y"}],"n":null}') as unknown;
    const at = (path: string): unknown => valueAt(data, path.split("."));
    expect(["a.0", "a.__proto__", "list.0", "list.1.id"].map(at)).toEqual(["zero", "own", "x", "y"]);
    for (const path of [
      "constructor",
      "a.toString",
      "list.length",
      "list.01",
      "list.2",
      "n.x",
      "a.0.length",
      "list.-1",
    ]) {
      expect(at(path)).toBeUndefined();
    }
    expect(at(`list.${"9".repeat(400)}`)).toBeUndefined();
  });

  it("takes a number of any length as the name of a field", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const field = "9".repeat(400);
    await queue.addBulk([
      { name: "job", data: { i: 0, [field]: "a" } },
      { name: "job", data: { i: 1 } },
    ]);
    const keysOf = new Map<number, readonly string[]>();
    lab.worker(async (job, _signal, lock) => void keysOf.set(job.data.i, lock.keys), { key: field as "k" });
    await finished(queue, 2);
    expect([keysOf.get(0), keysOf.get(1)]).toEqual([["a"], []]);
  });
});

describe("a worker whose key is a function", () => {
  it("receives large data in small batches", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue();
    const pad = "x".repeat(300_000);
    let [computed, computedAtStart] = [0, 0];
    const key = ({ data }: { readonly data: Data }): string => {
      computed += 1;
      return String(data.k);
    };
    await queue.addBulk(jobs(24, (i) => `k${i % 2}`).map((job) => ({ ...job, data: { ...job.data, pad } })));
    lab.worker(() => void (computedAtStart ||= computed), { key, concurrency: 1 });
    await finished(queue, 24);
    expect(computedAtStart).toBeLessThan(10);
    expect([lab.overlaps(), lab.inversions(), lab.errors]).toEqual([[], [], []]);
  });
});
