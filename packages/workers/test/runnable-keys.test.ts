/** `counts().runnableKeys` is the number of slots that a queue could use at once, in addition to its running jobs. */
import { until } from "@x/test-support";
import type { ExclusiveWorkerOptions } from "@x/workers";
import { describe, expect, it } from "vitest";
import { type Data, gate, Lab } from "./support/lab.ts";

const rules: Readonly<
  Record<string, { readonly options: Partial<ExclusiveWorkerOptions<Data>>; readonly hasLists?: boolean }>
> = {
  "one slot": { options: {}, hasLists: true },
  "two slots": { options: { perKey: { concurrency: 2 } } },
  "a rate": { options: { perKey: { concurrency: 3, rate: { max: 2, duration: 600_000 } } } },
  rotation: { options: { between: "rotate" } },
};

/** Returns a small generator of random numbers, so that a state can be created again. */
function randomFrom(seed: number): (below: number) => number {
  let state = seed * 2_654_435_761 + 1;
  return (below) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((state / 2_147_483_648) * below);
  };
}

const cases = Object.keys(rules).flatMap((rule) => [1, 2, 3, 4].map((seed) => [rule, seed] as const));

describe("runnableKeys", () => {
  it.each(cases)("is the number of jobs that more workers would start, with %s: state %i", async (rule, seed) => {
    const { options, hasLists = false } = rules[rule] ?? { options: {} };
    const below = randomFrom(seed + rule.length);
    await using lab = await Lab.start();
    const queue = lab.queue();
    const over = gate();
    const keyOf = (): string => `k${below(6)}`;
    const add = async (count: number): Promise<void> => {
      for (let i = 0; i < count; i += 1) {
        const kind = below(10);
        const k = kind === 0 ? undefined : kind < 3 && hasLists ? [keyOf(), keyOf()] : keyOf();
        await queue.add(
          "job",
          { i, ...(k === undefined ? {} : { k }) },
          below(4) === 0 ? { priority: 1 + below(3) } : {},
        );
      }
    };
    await add(4 + below(12));
    const first = lab.worker(() => over.passed, { ...options, concurrency: 1 + below(4) });
    await until(async () => (await queue.setups()).length === 1);
    await until(async () => lab.ran.length === first.concurrency || (await waiting(queue)) === 0);
    if (below(2) === 0) await queue.pauseKey(keyOf());
    await add(below(30));
    await until(async () => lab.ran.length === first.concurrency || (await waiting(queue)) === 0);

    const before = await queue.counts();
    expect(before.active).toBe(lab.ran.length);
    lab.worker(() => over.passed, { ...options, concurrency: 100 });
    await until(async () => (await waiting(queue)) === 0 && (await queue.getActiveCount()) === lab.ran.length);
    await lab.anotherRuns();
    await until(async () => (await queue.getActiveCount()) === lab.ran.length);
    expect(before.runnableKeys).toBe(lab.ran.length - before.active);
    expect((await queue.counts()).runnableKeys).toBe(0);
    over.open();
  });

  it("is bounded, and looks behind a long line of one key", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue("q", { key: "k" });
    const hot = Array.from({ length: 3_000 }, (_, i) => ({ name: "job", data: { k: "hot", i } }));
    await queue.addBulk([...hot, ...["a", "b"].map((k, i) => ({ name: "job", data: { k, i } }))]);
    expect(await queue.counts()).toMatchObject({ runnableKeys: 3, runnable: 3_002 });
    await queue.pause();
    expect(await queue.counts()).toMatchObject({ runnableKeys: 0 });
    await queue.resume();
    await queue.addBulk(Array.from({ length: 1_500 }, (_, i) => ({ name: "job", data: { k: `own-${i}`, i } })));
    expect(await queue.counts()).toMatchObject({ runnableKeys: 1_000 });
  });

  it("counts a delayed job whose time has come, so that a scaler can start the first worker", async () => {
    await using lab = await Lab.start();
    const queue = lab.queue("q", { key: "k" });
    await queue.add("job", { k: "a", i: 0 }, { delay: 1 });
    await queue.add("job", { k: "b", i: 1 }, { delay: 3_600_000 });
    await expect.poll(async () => (await queue.counts()).runnableKeys).toBe(1);
  });
});

async function waiting(queue: {
  getJobCountByTypes(...types: ("wait" | "prioritized")[]): Promise<number>;
}): Promise<number> {
  return await queue.getJobCountByTypes("wait", "prioritized");
}
