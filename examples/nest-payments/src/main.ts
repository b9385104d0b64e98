/** Two replicas behind one client. The one that leads is killed half-way; no change of an account is lost, and none is made twice. */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { Queue } from "bullmq";
import { Redis } from "ioredis";
import type { Account } from "./accounts.ts";
import { redisUrl } from "./settings.ts";

interface Replica {
  readonly process: ChildProcess;
  readonly url: string;
}

const file = new URL("./replica.js", import.meta.url);
const accounts = ["alice", "bob", "carol", "dave"];
const changes = Array.from({ length: 400 }, (_, i) => ({
  id: `change-${i}`,
  accountId: accounts[i % accounts.length] ?? "",
  way: i % 3 === 0 ? "withdrawals" : "payments",
  amount: 100 + i,
}));

async function start(name: string): Promise<Replica> {
  const replica = fork(file, { env: { ...process.env, REPLICA: name } });
  const exited = once(replica, "exit").then(([code]) => {
    throw new Error(`the replica ${name} ended with code ${code} before it listened`);
  });
  const [message] = (await Promise.race([once(replica, "message"), exited])) as [{ url: string }];
  exited.catch(() => {});
  return { process: replica, url: message.url };
}

/** Asks one replica after another, from the `first`, until one has done it; a change that is sent twice is made once. */
async function send(
  replicas: readonly Replica[],
  { way, accountId, id, amount }: (typeof changes)[number],
  first: number,
): Promise<number> {
  for (let attempt = 0; ; attempt += 1) {
    const replica = replicas[(first + attempt) % replicas.length];
    const status = await fetch(`${replica?.url}/accounts/${accountId}/${way}`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ id, amount }),
    }).then(
      (response) => response.status,
      () => undefined,
    );
    if (status === 202 || status === 204) return attempt;
    if (status !== undefined && status < 500) throw new Error(`${id}: HTTP ${status}`);
    await delay(100);
  }
}

async function untilLeader(replicas: readonly Replica[]): Promise<Replica> {
  for (;;) {
    for (const replica of replicas) {
      const health = (await (await fetch(`${replica.url}/health`)).json()) as { election: { state: string } };
      if (health.election.state === "leader") return replica;
    }
    await delay(50);
  }
}

const redis = new Redis(redisUrl, { maxRetriesPerRequest: null });
const queue = new Queue("payments", { connection: redis });
await queue.obliterate({ force: true });
await redis.del("closings", ...accounts.flatMap((account) => [`balance:${account}`, `{balance:${account}}:claim`]));

const replicas = await Promise.all([start("blue"), start("green")]);
const leader = await untilLeader(replicas);
await delay(2_000);
const half = changes.length / 2;
const retries = await Promise.all(
  changes.map(async (change, i) => {
    await delay(5 * i);
    if (i === half) leader.process.kill("SIGKILL");
    return await send(replicas, change, i);
  }),
);

const survivor = replicas.filter((replica) => replica !== leader);
await untilLeader(survivor);
for (;;) {
  const { waiting = 0, active = 0, delayed = 0 } = await queue.getJobCounts("waiting", "active", "delayed");
  if (waiting + active + delayed === 0) break;
  await delay(100);
}
const failed = await queue.getFailedCount();
const read = async (account: string): Promise<Account> => {
  const response = await fetch(`${survivor[0]?.url}/accounts/${account}`);
  return (await response.json()) as Account;
};
const expected = accounts.map((account) =>
  changes
    .filter(({ accountId }) => accountId === account)
    .reduce((sum, { way, amount }) => sum + (way === "payments" ? amount : -amount), 0),
);
const balances = await Promise.all(accounts.map(async (account) => (await read(account)).balance));
await delay(2_000);
survivor[0]?.process.kill("SIGTERM");
const [code, signal] = (await once(survivor[0]?.process ?? process, "exit")) as [number | null, string | null];

const closings = await redis.lrange("closings", 0, -1);
const seconds = closings.map((entry) => entry.split(" ")[0]);
const report = {
  expected,
  balances,
  failed,
  sentAgain: retries.filter((attempts) => attempts > 0).length,
  closings: seconds.length,
  closedTwice: seconds.length - new Set(seconds).size,
  closedBy: new Set(closings.map((entry) => entry.split(" ")[1])).size,
  survivorEnd: code ?? signal, // Nest passes the signal on when it has shut down
};
await queue.obliterate({ force: true });
await queue.close();
redis.disconnect();
process.stdout.write(`${JSON.stringify(report)}\n`);
