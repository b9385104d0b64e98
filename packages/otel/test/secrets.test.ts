/** No span or metric contains a password or the data of a job, even after failures. */
import { LeaderElection } from "@x/leader";
import { Redlock } from "@x/redlock-core";
import { askWithoutRights, placesOf, startRedis } from "@x/test-support";
import { ExclusiveQueue, ExclusiveWorker } from "@x/workers";
import { Queue } from "bullmq";
import { expect, it } from "vitest";
import { startSdk } from "./support/sdk.ts";

const password = "s3cr3t-pa55word";
const card = "4111-1111-1111-1111";

it("shows no secret of a connection that is refused, lost or without rights, nor of a job that fails", async () => {
  await using server = await startRedis();
  await server.call("ACL", "SETUSER", "app", "on", `>${password}`, "~*", "&*", "+@all");
  const connection = { host: server.host, port: server.port, username: "app", password };
  const worker = new ExclusiveWorker<{ account: number; card: string }>(
    "payments",
    (job) => Promise.reject(new Error(`job ${String(job.id)} failed`)),
    { connection, key: "account", skipStalledCheck: true, drainDelay: 1 },
  );
  const errors: unknown[] = [];
  worker.on("error", (error) => errors.push(error));
  const observed = new ExclusiveQueue("payments", { connection });
  observed.on("error", (error) => errors.push(error));
  await using sdk = await startSdk({ queues: [observed], topKeys: 10 });
  const queue = new Queue("payments", { connection: { host: server.host, port: server.port } });
  const failed = new Promise((resolve) => worker.on("failed", resolve));
  await queue.add("charge", { account: 1, card });
  await failed;
  const redlock = new Redlock(`redis://app:${password}@${server.host}:${server.port}`, { timeout: 300 });
  const election = new LeaderElection(redlock, { name: "told" });
  election.on("error", (error) => errors.push(error));
  const ask = async (): Promise<void> => {
    const asked = [
      redlock.using("r", () => Promise.reject(new Error("no")), { ttl: 1_000 }),
      redlock.acquire("a", { ttl: 1_000 }).then((lock) => lock.release()),
      election.run(() => Promise.reject(new Error("done")), { signal: AbortSignal.timeout(500) }),
    ];
    errors.push(await Promise.allSettled(asked));
    await sdk.scrape();
  };
  await askWithoutRights(server, ask);
  const spans = sdk.spans().map(({ name, attributes, events, status, links }) => ({
    ...{ name, attributes, events, status, links },
  }));
  expect(spans.some(({ status }) => status.message !== undefined)).toBe(true);
  const shown = [spans, await sdk.scrape(), errors];
  await server.call("ACL", "SETUSER", "app", "resetpass", `>${password}`);
  // A worker that is closed leaves the timer of a connection that BullMQ is reopening.
  await queue.add("charge", { account: 2, card });
  await expect.poll(async () => await queue.getFailedCount(), { timeout: 60_000 }).toBe(2);
  await election.stop();
  await Promise.all([redlock.close(), worker.close(true), observed.close(), queue.close()]);
  expect(await placesOf(password, shown)).toEqual([]);
  expect(await placesOf(card, shown)).toEqual([]);
});
