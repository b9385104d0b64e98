/** Orders reduce stock in a SQL database, which refuses the late write of a job that has lost its lock: the fencing token. */
import { pathToFileURL } from "node:url";
import { ExclusiveWorker, type JobLock } from "@x/workers";
import { Queue } from "bullmq";
import { Redis } from "ioredis";
import initSqlJs, { type Database } from "sql.js";

interface Order {
  readonly sku: string;
  readonly quantity: number;
  /** For the demonstration: this order's job loses its lock before it writes, as after a long pause of its process. */
  readonly isPaused?: boolean;
}

class Stock {
  readonly #database: Database;

  private constructor(database: Database) {
    this.#database = database;
    database.run(
      "CREATE TABLE stock (sku TEXT PRIMARY KEY, quantity INTEGER NOT NULL CHECK (quantity >= 0), fence INTEGER NOT NULL)",
    );
  }

  static async open(): Promise<Stock> {
    const { Database } = await initSqlJs();
    return new Stock(new Database());
  }

  put(sku: string, quantity: number): void {
    this.#database.run("INSERT INTO stock VALUES (?, ?, 0)", [sku, quantity]);
  }

  quantity(sku: string): number {
    return Number(this.#database.exec("SELECT quantity FROM stock WHERE sku = ?", [sku])[0]?.values[0]?.[0]);
  }

  /** Reads for the holder of a lock; from then on all earlier holders are refused. */
  claim(sku: string, fencingToken: number): number {
    const claim = "UPDATE stock SET fence = $2 WHERE sku = $1 AND fence <= $2 RETURNING quantity";
    const rows = this.#database.exec(claim, { $1: sku, $2: fencingToken });
    if (rows[0] === undefined) throw new Error(`${sku}: a later holder has claimed it`);
    return Number(rows[0].values[0]?.[0]);
  }

  /** Writes what the job computed, unless a later holder has claimed it since. */
  set(sku: string, quantity: number, fencingToken: number): boolean {
    const change = "UPDATE stock SET quantity = $3 WHERE sku = $1 AND fence = $2";
    this.#database.run(change, { $1: sku, $2: fencingToken, $3: quantity });
    return this.#database.getRowsModified() === 1;
  }
}

export async function run(redisUrl: string): Promise<{ left: number; refusedWrites: number; sold: number }> {
  const redis = new Redis(redisUrl, { maxRetriesPerRequest: null });
  const stock = await Stock.open();
  stock.put("socks", 100);
  const queue = new Queue<Order>("orders", { connection: redis });
  let [refusedWrites, sold] = [0, 0];

  const sell = async ({ sku, quantity, isPaused }: Order, lock: JobLock, attempt: number): Promise<void> => {
    const left = stock.claim(sku, lock.fencingToken);
    const write = (): void => {
      if (!stock.set(sku, left - quantity, lock.fencingToken)) {
        refusedWrites += 1;
        throw new Error(`order for ${sku}: lost its lock, will be run again`);
      }
      sold += quantity;
    };
    if (isPaused === true && attempt === 0) {
      // The lease ends, and this job goes on with what it has read when somebody else has read, too, and not yet written.
      await worker.redlock.forceRelease(sku);
      await worker.redlock.using(sku, (other) => {
        const seen = stock.claim(sku, other.fencingToken);
        try {
          write();
        } finally {
          stock.set(sku, seen - 10, other.fencingToken);
        }
      });
    } else write();
  };

  const worker = new ExclusiveWorker<Order>(
    "orders",
    async (job, _token, _signal, lock) => await sell(job.data, lock, job.attemptsMade),
    { connection: redis, concurrency: 10, key: "sku", onFailure: "block" },
  );
  const orders: Order[] = [...Array.from({ length: 20 }, () => ({ sku: "socks", quantity: 2 }))];
  orders.splice(7, 0, { sku: "socks", quantity: 5, isPaused: true });
  try {
    const done = new Promise<void>((resolve, reject) => {
      let open = orders.length;
      worker.on("completed", () => (--open === 0 ? resolve() : undefined));
      worker.on("failed", (job, error) => (job !== undefined && job.attemptsMade < 2 ? undefined : reject(error)));
    });
    await queue.addBulk(orders.map((data) => ({ name: "sell", data, opts: { attempts: 2 } })));
    await done;
    return { left: stock.quantity("socks"), refusedWrites, sold };
  } finally {
    await worker.close();
    await queue.close();
    redis.disconnect();
  }
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  const outcome = await run(process.env["REDIS_URL"] ?? "redis://127.0.0.1:6379");
  process.stdout.write(`${JSON.stringify(outcome, null, 2)}\n`);
}
