/** Three replicas with a tick every second; the leader is killed twice. At the end each second has one job, and no second has two. */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as delay } from "node:timers/promises";
import { Queue } from "bullmq";

const queueUrl = process.env["REDIS_URL"] ?? "redis://127.0.0.1:6379";
const file = new URL(import.meta.url.endsWith(".ts") ? "./replica.ts" : "./replica.js", import.meta.url);

const replicas = new Set<ChildProcess>();
let leader: ChildProcess | undefined;
const terms: number[] = [];

function start(): void {
  const replica = fork(file, { env: { ...process.env, BILLING_CRON: "* * * * * *", LEASE_DURATION: "2000" } });
  replicas.add(replica);
  replica.once("exit", () => replicas.delete(replica));
  replica.on("message", (message) => {
    leader = replica;
    terms.push((message as { elected: number }).elected);
  });
}

async function untilElected(count: number): Promise<void> {
  while (terms.length < count) await delay(50);
}

const queue = new Queue("billing", { connection: { url: queueUrl } });
await queue.obliterate({ force: true });
for (let replica = 0; replica < 3; replica += 1) start();
for (let deaths = 1; deaths <= 2; deaths += 1) {
  await untilElected(deaths);
  await delay(3_000);
  leader?.kill("SIGKILL");
  start();
}
await untilElected(3);
await delay(3_000);
await Promise.all(
  [...replicas].map(async (replica) => {
    replica.kill("SIGTERM");
    await once(replica, "exit");
  }),
);

const jobs = await queue.getJobs(["waiting"]);
const seconds = jobs.map((job) => Date.parse((job.data as { night: string }).night) / 1_000).sort((a, b) => a - b);
const missing = seconds.filter((second, index) => index > 0 && second !== (seconds[index - 1] ?? 0) + 1).length;
await queue.obliterate({ force: true });
await queue.close();
const report = {
  leaders: terms.length,
  jobs: jobs.length,
  late: jobs.filter((job) => (job.data as { late: boolean }).late).length,
  missing,
  duplicates: jobs.length - new Set(seconds).size,
};
process.stdout.write(`${JSON.stringify(report)}\n`);
