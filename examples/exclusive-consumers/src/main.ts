/** Accounts changed from two queues and an HTTP handler: one change of an account at a time, wherever it comes from. */
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { Redlock } from "@x/redlock-core";
import { ExclusiveWorker } from "@x/workers";
import { Queue, QueueEvents } from "bullmq";
import { Redis } from "ioredis";

interface Change {
  readonly accountId: number;
  readonly amount: number;
}

/** A store without transactions: read, think, write. Two changes at a time, and one of them is lost. */
class Accounts {
  readonly #balances = new Map<number, number>();

  async change({ accountId, amount }: Change): Promise<void> {
    const before = this.#balances.get(accountId) ?? 0;
    await delay(1);
    this.#balances.set(accountId, before + amount);
  }

  balance(accountId: number): number {
    return this.#balances.get(accountId) ?? 0;
  }
}

/** POST /<account id>/<amount>: takes the same lock as the jobs of that account. */
function serve(accounts: Accounts, redlock: Redlock): Server {
  return createServer((request, response) => {
    const [accountId, amount] = (request.url ?? "").slice(1).split("/").map(Number);
    redlock
      .using(
        `account:${accountId}`,
        async () => await accounts.change({ accountId: accountId ?? 0, amount: amount ?? 0 }),
      )
      .then(
        () => response.writeHead(204).end(),
        () => response.writeHead(503).end(),
      );
  });
}

export async function run(redisUrl: string, changes = 300): Promise<{ balances: number[]; expected: number[] }> {
  const redis = new Redis(redisUrl, { maxRetriesPerRequest: null });
  const accounts = new Accounts();
  const queues = ["payments", "refunds"].map((name) => new Queue<Change>(name, { connection: redis }));
  for (const queue of queues) queue.setMaxListeners(changes); // one for each job that is waited for below
  const workers = queues.map(
    (queue) =>
      new ExclusiveWorker<Change>(queue.name, async (job) => await accounts.change(job.data), {
        connection: redis,
        concurrency: 20,
        key: "accountId",
        resource: "account:",
      }),
  );
  const events = queues.map((queue) => new QueueEvents(queue.name, { connection: redis }));
  await using redlock = new Redlock(redisUrl);
  const server = serve(accounts, redlock).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;

  const all = Array.from({ length: changes }, (_, i) => ({ accountId: i % 4, amount: i % 3 === 1 ? -i : i }));
  const done = all.map(async (change, i) => {
    const [queue, queueEvents] = [queues[i % 3], events[i % 3]];
    if (queue !== undefined && queueEvents !== undefined) {
      await (await queue.add("change", change)).waitUntilFinished(queueEvents);
    } else {
      const { status } = await fetch(`http://127.0.0.1:${port}/${change.accountId}/${change.amount}`, {
        method: "POST",
      });
      if (status !== 204) throw new Error(`account ${change.accountId}: HTTP ${status}`);
    }
  });
  try {
    await Promise.all(done);
  } finally {
    server.close();
    server.closeAllConnections();
    await Promise.all([...workers, ...queues, ...events].map(async (each) => await each.close()));
    redis.disconnect();
  }
  const expected = [0, 1, 2, 3].map((id) =>
    all.filter((each) => each.accountId === id).reduce((sum, each) => sum + each.amount, 0),
  );
  return { balances: expected.map((_, id) => accounts.balance(id)), expected };
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const outcome = await run(process.env["REDIS_URL"] ?? "redis://127.0.0.1:6379");
  process.stdout.write(`${JSON.stringify(outcome, null, 2)}\n`);
}
