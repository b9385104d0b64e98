/** A process that does effects or relays, and asks to be killed or frozen at any await on the way to a server. */
import { Effects, OutboxRelay, type PgPool } from "@x/effects";
import { LeaderElection } from "@x/leader";
import { Redlock } from "@x/redlock-core";
import { ExclusiveWorker } from "@x/workers";
import { Queue } from "bullmq";
import { Redis } from "ioredis";
import pg from "pg";

export interface ChildSettings {
  readonly role: "worker" | "relay";
  readonly prefix: string;
  readonly postgres: { readonly host: string; readonly port: number; readonly user: string; readonly database: string };
  readonly redis: number;
  readonly idleTimeout: number;
  /** The probability of a fault at an await. */
  readonly chance: number;
  /** The share of faults that freeze the process instead of killing it. */
  readonly freezes: number;
  readonly maxStalledCount: number;
  readonly onFailure: "block" | "skip";
}

const settings = JSON.parse(process.argv[2] ?? "") as ChildSettings;
const { prefix } = settings;

/** Sends the fault of this place, if there is one. The parent's signal arrives during the pause after it. */
async function at(place: string): Promise<void> {
  if (Math.random() >= settings.chance) return;
  process.send?.({ fault: Math.random() < settings.freezes ? "freeze" : "kill", place });
  await new Promise((resolve) => setTimeout(resolve, 50));
}

const pool = new pg.Pool({ ...settings.postgres, max: 20 });
pool.on("error", () => undefined);

/** A client whose statements, including BEGIN and COMMIT, each have a place before and a place after. */
const faulty = new WeakSet<object>();
const connect = pool.connect.bind(pool) as () => Promise<pg.PoolClient>;
async function connectFaulty(): Promise<pg.PoolClient> {
  await at("connect");
  const client = await connect();
  if (faulty.has(client)) return client;
  faulty.add(client);
  const query = client.query.bind(client) as (text: string, values?: unknown[]) => Promise<pg.QueryResult>;
  const own = async (text: string, values?: unknown[]): Promise<pg.QueryResult> => {
    const verb = text.trim().split(" ", 1)[0] ?? "";
    await at(`before ${verb}`);
    const result = await query(text, values);
    await at(`after ${verb}`);
    return result;
  };
  Object.defineProperty(client, "query", { value: own });
  return client;
}
const faultyPool: PgPool = {
  totalCount: 0,
  connect: connectFaulty,
  query: async (text: string, values: unknown[]) => {
    const client = await connectFaulty();
    try {
      return await client.query(text, values);
    } finally {
      client.release();
    }
  },
};

const effects = new Effects(faultyPool, { prefix, idleTimeout: settings.idleTimeout });
const connection = new Redis({ host: "127.0.0.1", port: settings.redis, maxRetriesPerRequest: null });

async function work(): Promise<() => Promise<void>> {
  const worker = new ExclusiveWorker<{ account: number; n: number }>(
    `${prefix}payments`,
    async (job, _token, _signal, lock) => {
      const { account, n } = job.data;
      await at("received");
      const result = await effects.once({ job, lock }, async (tx) => {
        await tx.query(`UPDATE ${prefix}account SET balance = balance - 1 WHERE id = $1::int`, [account]);
        await tx.query(`INSERT INTO ${prefix}log (account, n) VALUES ($1::int, $2::int)`, [account, n]);
        tx.enqueue(`${prefix}receipts`, "send", { account, n }, { removeOnComplete: true });
        return { n };
      });
      await at("committed");
      return result;
    },
    {
      connection,
      concurrency: 8,
      key: "account",
      resource: `${prefix}account:`,
      onFailure: settings.onFailure,
      lockDuration: 1_500,
      stalledInterval: 400,
      maxStalledCount: settings.maxStalledCount,
    },
  );
  worker.on("error", () => undefined);
  return await Promise.resolve(() => worker.close());
}

async function relay(): Promise<() => Promise<void>> {
  const addBulk = Reflect.get(Queue.prototype, "addBulk") as Queue["addBulk"];
  Queue.prototype.addBulk = async function (this: Queue, jobs) {
    await at("before addBulk");
    const added = await addBulk.call(this, jobs);
    await at("after addBulk");
    return added;
  } as Queue["addBulk"];
  const redlock = new Redlock(`redis://127.0.0.1:${settings.redis}`);
  const election = new LeaderElection(redlock, { name: `${prefix}relay`, leaseDuration: 1_500 });
  const outbox = new OutboxRelay(effects, { election, connection });
  outbox.on("error", () => undefined);
  outbox.start();
  return await Promise.resolve(async () => {
    await outbox.stop();
    await election.stop();
    await redlock.close();
  });
}

const close = await (settings.role === "worker" ? work() : relay());
process.send?.({ started: true });
process.on("message", () => {
  void close().then(() => process.exit(0));
});
