/** The adapter for Bull Board, by its calls and in a real browser. */
import { mkdirSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { fileURLToPath } from "node:url";
import { createBullBoard } from "@bull-board/api";
import { ExpressAdapter } from "@bull-board/express";
import { isWithoutBrowser, type RedisServer, startBrowser, startRedis, temporaryFolder } from "@x/test-support";
import { ExclusiveQueue, ExclusiveWorker } from "@x/workers";
import { ExclusiveQueueAdapter } from "@x/workers/bull-board";
import { type Job } from "bullmq";
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from "vitest";

let server: RedisServer;
beforeAll(async () => {
  server = await startRedis();
});
afterAll(async () => await server.stop());

interface Shown {
  readonly queue: ExclusiveQueue;
  readonly worker: ExclusiveWorker;
  readonly adapter: ExclusiveQueueAdapter;
  readonly end: () => void;
}

/** Key 42 has a running job and two waiting ones, key 7 has a running job, and one job is delayed. */
async function busyQueue(name: string): Promise<Shown> {
  const connection = { url: server.url, maxRetriesPerRequest: null };
  const queue = new ExclusiveQueue(name, { connection });
  const ends: (() => void)[] = [];
  const worker = new ExclusiveWorker(name, () => new Promise<void>((resolve) => ends.push(resolve)), {
    connection,
    key: "account",
    concurrency: 5,
  });
  onTestFinished(async () => {
    const ending = setInterval(() => ends.splice(0).forEach((end) => end()), 20);
    await worker.close();
    clearInterval(ending);
    await queue.close();
  });
  await queue.addBulk(["42", "42", "42", "7"].map((account) => ({ name: "charge", data: { account } })));
  await queue.add("later", { account: "42" }, { delay: 3_600_000 });
  await expect.poll(() => queue.counts()).toMatchObject({ active: 2, parked: 2 });
  const adapter = new ExclusiveQueueAdapter(queue, { description: "payments of accounts" });
  return { queue, worker, adapter, end: () => ends.splice(0).forEach((end) => end()) };
}

interface Listed {
  readonly key: string | undefined;
  readonly name: string;
}

function listed(job: Job | undefined): Listed | undefined {
  const json = job?.toJSON();
  return (
    json && { key: (json.opts as { group?: { id?: string } }).group?.id, name: json.name.replace("\u2003", " | ") }
  );
}

describe("ExclusiveQueueAdapter", () => {
  it("counts jobs that wait for their key as waiting, and names the keys with a backlog", async () => {
    const { adapter, queue } = await busyQueue("counted");
    expect(await queue.getDelayedCount()).toBe(3);
    expect(await adapter.getJobCounts()).toMatchObject({ active: 2, waiting: 2, delayed: 1 });
    expect(adapter.getDescription()).toBe('payments of accounts · key "42": 2 wait');
  });

  it("lists the jobs that wait for a key page by page in the order of their line, each with its key and its reason", async () => {
    const { adapter } = await busyQueue("listed");
    const active = (await adapter.getJobs(["active"], 0, 9)).map(listed);
    expect(active).toEqual(["7", "42"].map((key) => ({ key, name: "charge" })));
    expect((await adapter.getJobs(["waiting"], 0, 9)).map(listed)).toEqual([
      { key: "42", name: 'charge | key "42": first in line, job 1 has it' },
      { key: "42", name: 'charge | key "42": behind 1 other job, job 1 has it' },
    ]);
    const [parked] = await adapter.getJobs(["waiting"], 0, 0);
    expect(parked?.toJSON().delay).toBe(0);
    expect((await adapter.getJobs(["waiting"], 1, 1)).map(({ id }) => id)).toEqual(["3"]);
    expect(await adapter.getJobs(["waiting"], 2, 9)).toEqual([]);
    expect((await adapter.getJobs(["delayed"], 0, 9)).map(({ name }) => name)).toEqual(["later"]);
    expect(await adapter.getJobs(["delayed"], 1, 9)).toEqual([]);
    const all = await adapter.getJobs(adapter.getJobStatuses(), 0, 9);
    expect(new Set(all.map(({ id }) => id))).toEqual(new Set(["1", "2", "3", "4", "5"]));
  });

  it("shows the key and reason of a single job, and leaves both out of a copy of the job", async () => {
    const { adapter, queue, end } = await busyQueue("alone");
    const job = await adapter.getJob("3");
    expect(listed(job)).toEqual({ key: "42", name: 'charge | key "42": behind 1 other job, job 1 has it' });
    const json = job?.toJSON();
    const { id = "" } = await adapter.addJob(json?.name ?? "", json?.data, { ...json?.opts });
    const copy = await queue.getJob(id);
    expect(copy?.name).toBe("charge");
    expect(copy?.opts).not.toHaveProperty("group");
    expect(await adapter.getJob("no-such-job")).toBeUndefined();
    end();
    await expect.poll(() => queue.getCompletedCount()).toBeGreaterThan(0);
    expect((await adapter.getJob("1"))?.toJSON().opts).not.toHaveProperty("group");
  });
});

describe.skipIf(isWithoutBrowser("Bull Board in a browser"))("in a browser", () => {
  it("shows a job that waits for its key as waiting, with the key and the job that holds it", async () => {
    const { adapter } = await busyQueue("payments");
    const board = new ExpressAdapter();
    createBullBoard({ queues: [adapter], serverAdapter: board });
    const http = createServer(board.getRouter());
    await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
    const browser = await startBrowser();
    onTestFinished(async () => {
      await browser.close();
      http.closeAllConnections();
      await new Promise((resolve) => http.close(resolve));
    });
    const page = await browser.newPage();
    await page.setViewport({ width: 1_100, height: 620 });
    const { port } = http.address() as AddressInfo;
    await page.goto(`http://127.0.0.1:${port}/queue/payments?status=waiting`);
    const text = (): Promise<string> => page.evaluate("document.body.innerText") as Promise<string>;
    await expect.poll(text, { timeout: 60_000 }).toContain('key "42": behind 1 other job, job 1 has it');
    expect(await text()).toContain('key "42": first in line, job 1 has it');
    await page.screenshot({ path: picture() });
    await page.goto(`http://127.0.0.1:${port}/queue/payments?status=delayed`);
    await expect.poll(text, { timeout: 60_000 }).toContain("later");
    expect(await text()).not.toContain("in line");
  });
});

/**
 * Returns the path of the picture. Only PICTURES=1 replaces the picture of the documents, because two pictures always
 * differ in some bytes.
 */
function picture(): `${string}.png` {
  const folder =
    process.env["PICTURES"] === "1"
      ? fileURLToPath(new URL("../../../docs/workers/pictures", import.meta.url))
      : temporaryFolder();
  mkdirSync(folder, { recursive: true });
  return `${folder}/bull-board.png`;
}
