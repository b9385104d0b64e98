/**
 * Orders reduce stock in Postgres, and confirm each sale by another queue. Jobs run twice, transactions fail, and a worker
 * loses its lock in the middle of a sale; each sale and each confirmation still happens once.
 *
 * `DATABASE_URL` names a PostgreSQL server. Without it the example runs on a PGlite, inside the process.
 */
import { pathToFileURL } from "node:url";
import { PGlite } from "@electric-sql/pglite";
import { Effects, OutboxRelay } from "@x/effects";
import { LeaderElection } from "@x/leader";
import { FencedOffError, Redlock } from "@x/redlock-core";
import { ExclusiveWorker } from "@x/workers";
import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";
import pg from "pg";

interface Order {
  readonly sku: string;
  readonly quantity: number;
  /** For the demonstration: what goes wrong at the first attempt. */
  readonly fault?: "fails after its sale" | "dies after its commit" | "loses its lock";
}

export interface Outcome {
  /** Stock that is left of 100. */
  readonly left: number;
  readonly sold: number;
  readonly confirmations: number;
  /** How often a processor ran, which is more often than there are orders. */
  readonly runs: number;
  /** Sales of a holder that had lost its lock, which the fence refused. */
  readonly fencedOff: number;
}

const SKU = "socks";
const STOCK = 100;

function openDatabase(url: string | undefined): { database: PGlite | pg.Pool; close: () => Promise<void> } {
  const database = url === undefined ? new PGlite() : new pg.Pool({ connectionString: url });
  return { database, close: () => (database instanceof PGlite ? database.close() : database.end()) };
}

export async function run(redisUrl: string, databaseUrl?: string): Promise<Outcome> {
  const { database, close } = openDatabase(databaseUrl);
  const connection = new Redis(redisUrl, { maxRetriesPerRequest: null });
  const redlock = new Redlock(redisUrl);
  const effects = new Effects(database, { prefix: "inventory_" });
  await effects.migrate();
  await effects.transaction(async (tx) => {
    await tx.query("DROP TABLE IF EXISTS stock");
    await tx.query("DROP TABLE IF EXISTS confirmations");
    await tx.query("CREATE TABLE stock (sku text PRIMARY KEY, quantity int NOT NULL CHECK (quantity >= 0))");
    await tx.query("CREATE TABLE confirmations (order_id text PRIMARY KEY, quantity int NOT NULL)");
    await tx.query("INSERT INTO stock VALUES ($1, $2::int)", [SKU, STOCK]);
  });
  let [runs, fencedOff] = [0, 0];

  const worker = new ExclusiveWorker<Order>(
    "orders",
    async (job, _token, _signal, lock) => {
      runs += 1;
      const { sku, quantity } = job.data;
      const fault = job.attemptsMade === 0 ? job.data.fault : undefined;
      if (fault === "loses its lock") await sellElsewhere(sku);
      const sale = await effects
        .once({ job, lock }, async (tx) => {
          const [stock] = await tx.query<{ quantity: number }>(
            "UPDATE stock SET quantity = quantity - $1::int WHERE sku = $2 RETURNING quantity",
            [quantity, sku],
          );
          tx.enqueue("confirmations", "confirm", { orderId: job.id, quantity });
          if (fault === "fails after its sale") throw new Error("a bug after the sale, before its commit");
          return { left: stock?.quantity };
        })
        .catch((error: unknown) => {
          if (error instanceof FencedOffError) fencedOff += 1;
          throw error;
        });
      // BullMQ runs the job again, because it has not heard of the sale.
      if (fault === "dies after its commit") throw new Error("died after the commit");
      return sale;
    },
    { connection, concurrency: 10, key: "sku", resource: "stock:", onFailure: "block", maxStalledCount: 1_000 },
  );
  worker.on("error", () => undefined);

  /** Another holder takes the lock away, as after a long pause of this process, and sells ten at the counter. */
  async function sellElsewhere(sku: string): Promise<void> {
    await worker.redlock.forceRelease(`stock:${sku}`);
    await worker.redlock.using(`stock:${sku}`, async (lock) => {
      await effects.once({ key: "counter", lock }, async (tx) => {
        await tx.query("UPDATE stock SET quantity = quantity - 10 WHERE sku = $1", [sku]);
      });
    });
  }

  const confirmer = new Worker<{ orderId: string; quantity: number }>(
    "confirmations",
    async (job) =>
      await effects.once({ job }, async (tx) => {
        const { orderId, quantity } = job.data;
        await tx.query("INSERT INTO confirmations VALUES ($1, $2::int)", [orderId, quantity]);
      }),
    { connection, maxStalledCount: 1_000 },
  );
  const election = new LeaderElection(redlock, { name: "inventory-outbox" });
  const relay = new OutboxRelay(effects, { election, connection });
  relay.start();

  const orders: Order[] = Array.from({ length: 20 }, () => ({ sku: SKU, quantity: 2 }));
  orders.splice(5, 0, { sku: SKU, quantity: 3, fault: "fails after its sale" });
  orders.splice(9, 0, { sku: SKU, quantity: 4, fault: "dies after its commit" });
  orders.splice(13, 0, { sku: SKU, quantity: 5, fault: "loses its lock" });
  const queue = new Queue<Order>("orders", { connection });
  try {
    const done = new Promise<void>((resolve, reject) => {
      let open = orders.length;
      confirmer.on("completed", () => (--open === 0 ? resolve() : undefined));
      worker.on("failed", (job, error) => (job !== undefined && job.attemptsMade < 3 ? undefined : reject(error)));
    });
    await queue.addBulk(orders.map((data) => ({ name: "sell", data, opts: { attempts: 3 } })));
    await done;
    return await effects.transaction(async (tx) => {
      const [stock] = await tx.query<{ quantity: number }>("SELECT quantity FROM stock");
      const [sum] = await tx.query<{ sold: number; n: number }>(
        "SELECT sum(quantity)::int AS sold, count(*)::int AS n FROM confirmations",
      );
      return { left: stock?.quantity ?? 0, sold: sum?.sold ?? 0, confirmations: sum?.n ?? 0, runs, fencedOff };
    });
  } finally {
    await relay.stop();
    await Promise.all([worker.close(), confirmer.close(), queue.close()]);
    await election.stop();
    await redlock.close();
    connection.disconnect();
    await close();
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const outcome = await run(process.env["REDIS_URL"] ?? "redis://127.0.0.1:6379", process.env["DATABASE_URL"]);
  process.stdout.write(`${JSON.stringify(outcome, null, 2)}\n`);
}
